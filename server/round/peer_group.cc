#include "server/round/peer_group.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace agg {

PeerGroup::PeerGroup(std::vector<ShardPeer*> peers)
    : peers_(std::move(peers)),
      pending_(peers_.size(), false),
      statuses_(peers_.size()) {
  for (int i = 1; i < size(); ++i) {
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
    const std::function<absl::Status(int, ShardPeer*)>& call) {
  {
    MutexLock lock(&mutex_);
    call_ = &call;
    num_running_ = size() - 1;
    pending_.assign(peers_.size(), true);
    changed_.NotifyAll();
  }
  absl::Status first = call(0, peers_[0]);
  MutexLock lock(&mutex_);
  while (num_running_ > 0) changed_.Wait(&mutex_);
  statuses_[0] = std::move(first);
  for (int i = 0; i < size(); ++i) {
    if (statuses_[i].ok()) continue;
    const std::string name = peers_[i]->name();
    if (absl::StartsWith(statuses_[i].message(), name)) return statuses_[i];
    return absl::Status(statuses_[i].code(),
                        absl::StrCat(name, ": ", statuses_[i].message()));
  }
  return absl::OkStatus();
}

}  // namespace agg
