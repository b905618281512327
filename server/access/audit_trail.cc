#include "server/access/audit_trail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "server/base/file_descriptor.h"
#include "server/base/json.h"
#include "server/base/line_limits.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"

namespace agg {

std::string AuditLine(const AuditEvent& event) {
  Json line;
  line["time"] =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", event.time, absl::UTCTimeZone());
  line["action"] = event.action;
  line["who"] = event.who;
  line["from"] = event.from;
  if (event.rank >= 0) line["rank"] = event.rank;
  if (event.session != 0) line["session"] = event.session;
  if (!event.detail.empty()) line["detail"] = event.detail;
  line["outcome"] = event.outcome;
  if (event.times > 1) line["times"] = event.times;
  return JsonLine(line);
}

namespace {

// Above all that can be set: these lines are never dropped.
constexpr LogLevel kAlways{static_cast<int>(LogLevel::kError) + 1};
// What all denials beyond kMaxNewDenials are.
constexpr char kMany[] = "further denials";

void Cut(std::string* text) {
  if (text->size() <= kMaxAuditTextBytes) return;
  text->resize(kMaxAuditTextBytes);
}

void CutTexts(AuditEvent* event) {
  for (std::string* text : {&event->action, &event->who, &event->from,
                            &event->detail, &event->outcome}) {
    Cut(text);
  }
}

// Without the port, which differs from connection to connection.
absl::string_view HostOf(absl::string_view from) {
  if (!absl::StartsWith(from, "ipv4:") && !absl::StartsWith(from, "ipv6:")) {
    return from;
  }
  return from.substr(0, from.rfind(':'));
}

bool Alike(const AuditEvent& a, const AuditEvent& b) {
  return a.who == b.who && a.detail == b.detail && a.outcome == b.outcome &&
         HostOf(a.from) == HostOf(b.from);
}

}  // namespace

AuditTrail::~AuditTrail() {
  MutexLock lock(&mutex_);
  CloseBefore(absl::InfiniteFuture());
}

void AuditTrail::WriteLine(const AuditEvent& event) const {
  const std::string line = AuditLine(event);
  LogLine(kAlways, absl::StrCat("audit: ", line));
  if (write_ != nullptr) write_(line);
}

void AuditTrail::Keep(AuditEvent event, size_t most,
                      std::deque<AuditEvent>* kept) {
  WriteLine(event);
  kept->push_back(std::move(event));
  if (kept->size() <= most) return;
  if (kept == &denials_) {
    if (num_closed_ == 0) CloseOldest();
    --num_closed_;
  }
  kept->pop_front();
}

void AuditTrail::CloseOldest() {
  const AuditEvent& denial = denials_[num_closed_++];
  if (denial.times > 1) WriteLine(denial);
}

void AuditTrail::CloseBefore(absl::Time before) {
  while (num_closed_ < denials_.size() &&
         denials_[num_closed_].time <= before) {
    CloseOldest();
  }
}

void AuditTrail::CloseDenials() {
  MutexLock lock(&mutex_);
  CloseBefore(clock_->Now() - kTogether);
}

void AuditTrail::Note(AuditEvent event) {
  CutTexts(&event);
  MutexLock lock(&mutex_);
  event.time = clock_->Now();
  CloseBefore(event.time - kTogether);
  Keep(std::move(event), kMaxEvents, &events_);
}

bool AuditTrail::CountsWithOthers(const AuditEvent& event) {
  const auto closed =
      denials_.rend() - static_cast<std::ptrdiff_t>(num_closed_);
  const auto alike =
      std::find_if(denials_.rbegin(), closed,
                   [&](const AuditEvent& kept) { return Alike(kept, event); });
  if (alike == closed) return false;
  ++alike->times;
  return true;
}

void AuditTrail::NoteDenial(AuditEvent event) {
  CutTexts(&event);
  event.action = "denial";
  MutexLock lock(&mutex_);
  event.time = clock_->Now();
  CloseBefore(event.time - kTogether);
  if (CountsWithOthers(event)) return;
  if (event.time - window_ >= kTogether) {
    window_ = event.time;
    new_denials_ = 0;
  }
  if (new_denials_ >= kMaxNewDenials) {
    AuditEvent many;
    many.action = event.action;
    many.time = event.time;
    many.outcome = kMany;
    event = std::move(many);
    if (CountsWithOthers(event)) return;
  } else {
    ++new_denials_;
  }
  Keep(std::move(event), kMaxDenials, &denials_);
}

std::vector<AuditEvent> AuditTrail::Last(size_t limit) const {
  std::vector<AuditEvent> all;
  {
    MutexLock lock(&mutex_);
    std::merge(events_.begin(), events_.end(), denials_.begin(), denials_.end(),
               std::back_inserter(all),
               [](const AuditEvent& a, const AuditEvent& b) {
                 return a.time < b.time;
               });
  }
  if (limit > 0 && all.size() > limit) {
    all.erase(all.begin(), all.end() - static_cast<ptrdiff_t>(limit));
  }
  return all;
}

namespace {

absl::Status SystemError(const std::string& path) {
  return absl::Status(CodeOfRefusedFile(errno),
                      absl::StrCat("\"", path, "\": ", std::strerror(errno)));
}

absl::StatusOr<FileDescriptor> OpenForLines(const std::string& path) {
  FileDescriptor file(
      open(path.c_str(),
           O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
           S_IRUSR | S_IWUSR));
  struct stat about;
  if (!file.valid() || fstat(file.get(), &about) != 0) return SystemError(path);
  if (!S_ISREG(about.st_mode)) {
    return absl::UnavailableError(
        absl::StrCat("\"", path, "\": it is not a regular file"));
  }
  return file;
}

absl::Status WriteAll(int file, absl::string_view bytes,
                      const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError(path);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<AuditFile>> AuditFile::Open(
    const AuditFileOptions& options, size_t max_waiting) {
  absl::StatusOr<FileDescriptor> file = OpenForLines(options.path);
  if (!file.ok()) {
    return absl::Status(
        file.status().code(),
        absl::StrCat("security.audit.path is ", file.status().message(),
                     "; allowed: a file that can be written"));
  }
  return absl::WrapUnique(
      new AuditFile(options, max_waiting, *std::move(file)));
}

AuditFile::AuditFile(const AuditFileOptions& options, size_t max_waiting,
                     FileDescriptor file)
    : options_(options),
      max_waiting_(max_waiting),
      file_(std::move(file)),
      thread_([this] { Work(); }) {}

AuditFile::~AuditFile() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void AuditFile::Write(std::string line) {
  {
    MutexLock lock(&mutex_);
    if (lines_.size() >= max_waiting_) {
      // The thread hears of it when it comes for those that wait.
      ++num_lost_;
      ++num_errors_;
      return;
    }
    lines_.push_back(std::move(line));
  }
  changed_.NotifyAll();
}

void AuditFile::Work() {
  uint64_t all_lost = 0;
  for (;;) {
    // All at once, so that a flood has one line of the log for many lost ones.
    std::deque<std::string> lines;
    uint64_t num_lost = 0;
    {
      MutexLock lock(&mutex_);
      while (lines_.empty() && !stopped_) changed_.Wait(&mutex_);
      lines.swap(lines_);
      num_lost = std::exchange(num_lost_, 0);
    }
    if (num_lost > 0) {
      all_lost += num_lost;
      LogErrorOf("audit lost", "the audit file has lost ", all_lost,
                 " lines: the disk is too slow");
    }
    if (lines.empty()) return;
    for (const std::string& line : lines) AppendOrLog(line);
  }
}

void AuditFile::AppendOrLog(const std::string& line) {
  const absl::Status status = Append(absl::StrCat(line, "\n"));
  const std::string error(status.message());
  if (!status.ok()) ++num_errors_;
  if (std::exchange(logged_, error) != error && !status.ok()) {
    LogErrorOf(WithoutNumbers(error),
               "the audit file cannot be written: ", error);
  }
}

absl::Status AuditFile::Append(const std::string& line) {
  // Asked each time: others may cut the file short, or write to it.
  struct stat about;
  if (fstat(file_.get(), &about) != 0) return SystemError(options_.path);
  if (about.st_size > 0 &&
      about.st_size + static_cast<int64_t>(line.size()) > options_.max_bytes) {
    AGG_RETURN_IF_ERROR(BeginNew());
    about.st_size = 0;
  }
  const absl::Status size =
      CheckFileSize(about.st_size + static_cast<int64_t>(line.size()));
  if (!size.ok()) {
    return absl::UnavailableError(
        absl::StrCat("\"", options_.path, "\": ", size.message()));
  }
  const absl::Status status = WriteAll(file_.get(), line, options_.path);
  if (status.ok() || ftruncate(file_.get(), about.st_size) == 0) return status;
  // A part of a line stays, which the next one would make worse.
  return absl::Status(status.code(), absl::StrCat(status.message(), ", and ",
                                                  std::strerror(errno)));
}

absl::Status AuditFile::BeginNew() {
  const std::string before = absl::StrCat(options_.path, ".1");
  // It is not there if it was renamed, and no new one could be opened.
  if (rename(options_.path.c_str(), before.c_str()) != 0 && errno != ENOENT) {
    return SystemError(options_.path);
  }
  AGG_ASSIGN_OR_RETURN(file_, OpenForLines(options_.path));
  return absl::OkStatus();
}

}  // namespace agg
