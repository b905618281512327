// Receipts by shard: a row is safe at a shard as long as the process that
// acknowledged it lives.
#include "worker_client/row_ledger.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/file_descriptor.h"

namespace agg {

RowLedger::RowLedger(std::vector<bool> holds_slices)
    : holds_slices_(std::move(holds_slices)), receipts_(holds_slices_.size()) {}

RowName RowLedger::Begin(bool seed, uint64_t round, uint64_t session) {
  RowName name{seed, round, session, 0};
  const auto former =
      std::find_if(names_.begin(), names_.end(), [&](const RowName& each) {
        return each.seed == seed && each.round == round;
      });
  if (former != names_.end()) {
    // Attempts are counted by session. They go on after a rewind, too, so that
    // a late frame of an abandoned past can never look like the new row's.
    if (former->session == session) name.attempt = former->attempt + 1;
    names_.erase(former);
  }
  names_.push_back(name);
  if (names_.size() > kMaxNames) names_.pop_front();
  row_ = name;
  state_ = State::kPushing;
  lost_ = false;
  absent_tensors_.clear();
  receipts_.assign(holds_slices_.size(), Receipt());
  return name;
}

bool RowLedger::Has(int shard, const ShardLives& epoch) const {
  const Receipt& receipt = receipts_[shard];
  if (!receipt.acknowledged) return false;
  if (receipt.epoch == epoch.epoch) return true;
  const size_t i = static_cast<size_t>(shard);
  return receipt.landed && receipt.life != 0 && i < epoch.lives.size() &&
         receipt.life == epoch.lives[i];
}

std::vector<int> RowLedger::Owed(const ShardLives& epoch) const {
  std::vector<int> owed;
  if (state_ != State::kPushing) return owed;
  for (size_t i = 0; i < holds_slices_.size(); ++i) {
    const int shard = static_cast<int>(i);
    if (holds_slices_[i] && !Has(shard, Newest(epoch))) owed.push_back(shard);
  }
  return owed;
}

void RowLedger::Acknowledge(int shard, const ShardLives& epoch, bool landed,
                            absl::optional<uint32_t> crc32c) {
  Receipt& receipt = receipts_[shard];
  const size_t i = static_cast<size_t>(shard);
  receipt.acknowledged = true;
  receipt.landed = landed;
  receipt.epoch = epoch.epoch;
  receipt.life = i < epoch.lives.size() ? epoch.lives[i] : 0;
  // The same attempt has the same bytes: a sum that is known stays.
  if (crc32c.has_value()) receipt.crc32c = crc32c;
  if (state_ == State::kPushing && Owed(epoch).empty()) {
    state_ = State::kAcked;
    lost_ = false;
  }
}

void RowLedger::Commit() {
  if (state_ == State::kAcked) state_ = State::kCommitted;
}

void RowLedger::Know() {
  if (state_ != State::kNone) state_ = State::kKnown;
  lost_ = false;
}

void RowLedger::Forget() {
  state_ = State::kNone;
  lost_ = false;
}

void RowLedger::NewEpoch(const ShardLives& epoch) {
  newest_ = epoch;
  if (state_ == State::kNone || state_ == State::kKnown) return;
  const bool complete = state_ != State::kPushing;
  state_ = State::kPushing;
  if (Owed(epoch).empty()) {
    // Commits are forgotten with the epoch: it is to be committed again.
    state_ = State::kAcked;
    lost_ = false;
  } else if (complete) {
    lost_ = true;
  }
}

std::vector<uint32_t> RowLedger::row_crc32c() const {
  std::vector<uint32_t> sums(holds_slices_.size(), 0);  // 0: without slices
  for (size_t i = 0; i < holds_slices_.size(); ++i) {
    if (!holds_slices_[i]) continue;
    if (!receipts_[i].crc32c.has_value()) return {};
    sums[i] = *receipts_[i].crc32c;
  }
  return sums;
}

RowName RowLedger::Find(bool seed, uint64_t round) const {
  for (const RowName& name : names_) {
    if (name.seed == seed && name.round == round) return name;
  }
  return RowName();
}

// Plain system calls, one write() for each line: a process that is killed
// leaves complete lines behind.

namespace {

const char* JsonBool(bool value) { return value ? "true" : "false"; }

std::string Reason() { return std::strerror(errno); }

}  // namespace

std::string ToLine(const AuditedPush& push) {
  return absl::StrCat(
      "{\"round\":", push.row.round, ",\"rank\":", push.rank,
      ",\"session\":", push.row.session, ",\"attempt\":", push.row.attempt,
      ",\"row_crc32c\":[", absl::StrJoin(push.row_crc32c, ","),
      "],\"included\":", JsonBool(push.included), ",\"version\":", push.version,
      ",\"made\":", push.made, ",\"rewound\":", JsonBool(push.rewound), "}");
}

AuditLog::AuditLog(const std::string& path,
                   std::function<void(const std::string&)> on_error)
    : path_(path), on_error_(std::move(on_error)) {
  if (path_.empty()) return;
  const std::string error = Open();
  if (!error.empty()) on_error_(absl::StrCat(path_, ": ", error));
}

AuditLog::~AuditLog() {
  MutexLock lock(&mutex_);
  if (fd_ >= 0) close(fd_);
}

std::string AuditLog::Open() {
  MutexLock lock(&mutex_);
  // O_NONBLOCK: a FIFO that nobody reads must not stop the worker.
  const int fd =
      open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK,
           0644);
  if (fd < 0) return Reason();
  struct stat info;
  std::string error;
  if (fstat(fd, &info) != 0) {
    error = Reason();
  } else if (!S_ISREG(info.st_mode)) {
    error = "not a regular file";
  }
  if (!error.empty()) {
    close(fd);
    return error;
  }
  fd_ = fd;
  // A disk that was full may have left a piece of a line.
  char last = '\n';
  if (info.st_size > 0 && pread(fd, &last, 1, info.st_size - 1) == 1 &&
      last != '\n') {
    return Write("\n");
  }
  return "";
}

std::string AuditLog::Write(absl::string_view line) {
  struct stat info = {};
  fstat(fd_, &info);
  const absl::Status size =
      CheckFileSize(info.st_size + static_cast<int64_t>(line.size()));
  if (!size.ok()) {
    close(fd_);
    fd_ = -1;
    return std::string(size.message());
  }
  ssize_t written;
  do {
    written = write(fd_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) return "";
  const std::string error =
      written < 0 ? Reason() : "no room for a complete line";
  close(fd_);
  fd_ = -1;
  return error;
}

void AuditLog::Add(const AuditedPush& push) {
  std::string error;
  {
    MutexLock lock(&mutex_);
    if (fd_ < 0 || (push.row == last_ && !push.rewound)) return;
    last_ = push.row;
    error = Write(absl::StrCat(ToLine(push), "\n"));
  }
  if (!error.empty()) on_error_(absl::StrCat(path_, ": ", error));
}

}  // namespace agg
