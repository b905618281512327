// The threads live as long as the group: a round makes several calls, and
// starting a thread for each would add to its time.
#include "server/coordinator/peer_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/round/orderly_stop.h"

namespace agg {
namespace {

// The message goes to workers, and gRPC carries at most some 8 KiB of it.
constexpr size_t kMaxErrors = 8;
constexpr size_t kMaxErrorBytes = 400;

}  // namespace

PeerGroup::PeerGroup(std::vector<ShardPeer*> peers, Order order)
    : peers_(std::move(peers)),
      order_(std::move(order)),
      pending_(peers_.size(), false),
      statuses_(peers_.size()) {
  for (int i = 0; i + 1 < size() && order_ == nullptr; ++i) {
    threads_.emplace_back([this, i] { Work(i); });
  }
}

PeerGroup::~PeerGroup() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

std::vector<std::string> PeerGroup::names() const {
  std::vector<std::string> names;
  for (const ShardPeer* peer : peers_) names.push_back(peer->name());
  return names;
}

void PeerGroup::Work(int ordinal) {
  for (;;) {
    const std::function<absl::Status(int, ShardPeer*)>* call;
    {
      MutexLock lock(&mutex_);
      while (!pending_[ordinal] && !stop_) changed_.Wait(&mutex_);
      if (stop_) return;
      call = call_;
    }
    absl::Status status = (*call)(ordinal, peers_[ordinal]);
    MutexLock lock(&mutex_);
    pending_[ordinal] = false;
    statuses_[ordinal] = std::move(status);
    --num_running_;
    changed_.NotifyAll();
  }
}

absl::Status PeerGroup::ForEach(
    const std::function<absl::Status(int, ShardPeer*)>& call,
    const std::vector<bool>& skipped) {
  std::vector<bool> called(peers_.size(), true);
  for (size_t i = 0; i < skipped.size(); ++i) called[i] = !skipped[i];
  if (order_ != nullptr) {
    std::vector<absl::Status> statuses(peers_.size());
    for (const int i : order_(size())) {
      if (called[i]) statuses[i] = call(i, peers_[i]);
    }
    MutexLock lock(&mutex_);
    statuses_ = std::move(statuses);
    return AllErrors();
  }
  int own = size() - 1;
  while (own >= 0 && !called[own]) --own;
  if (own >= 0) called[own] = false;
  {
    MutexLock lock(&mutex_);
    call_ = &call;
    statuses_.assign(peers_.size(), absl::OkStatus());
    num_running_ =
        static_cast<int>(std::count(called.begin(), called.end(), true));
    pending_ = called;
    if (num_running_ > 0) changed_.NotifyAll();
  }
  absl::Status last;
  if (own >= 0) last = call(own, peers_[own]);
  MutexLock lock(&mutex_);
  while (num_running_ > 0) changed_.Wait(&mutex_);
  if (own >= 0) statuses_[own] = std::move(last);
  return AllErrors();
}

absl::Status PeerGroup::AllErrors() const {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::vector<std::string> messages;
  size_t num_errors = 0;
  bool orderly = false;     // a shard stops in good order
  bool disorderly = false;  // a shard is lost otherwise
  for (int i = 0; i < size(); ++i) {
    const absl::Status& status = statuses_[i];
    if (status.ok()) continue;
    if (IsOrderlyStop(status)) {
      orderly = true;
    } else if (absl::IsUnavailable(status)) {
      disorderly = true;
    }
    if (num_errors++ == 0 || absl::IsUnavailable(status)) code = status.code();
    if (num_errors > kMaxErrors) continue;
    const std::string name = peers_[i]->name();
    messages.push_back(absl::StartsWith(status.message(), name)
                           ? std::string(status.message())
                           : absl::StrCat(name, ": ", status.message()));
    if (messages.back().size() > kMaxErrorBytes) {
      messages.back().resize(kMaxErrorBytes);
      messages.back() += "..";
    }
  }
  if (num_errors > kMaxErrors) {
    messages.push_back(absl::StrCat(num_errors - kMaxErrors, " more shards"));
  }
  const std::string message = absl::StrJoin(messages, "; ");
  return orderly && !disorderly ? OrderlyStop(message)
                                : absl::Status(code, message);
}

}  // namespace agg
