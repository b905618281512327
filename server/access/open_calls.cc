#include "server/access/open_calls.h"

#include <utility>
#include <vector>

namespace agg {

std::shared_ptr<void> OpenCalls::Add(OpenCall call) {
  MutexLock lock(&mutex_);
  const uint64_t number = next_++;
  open_[number] = std::make_shared<const OpenCall>(std::move(call));
  return std::shared_ptr<void>(static_cast<void*>(this), [this, number](void*) {
    std::shared_ptr<const OpenCall> ended;  // destroyed without the lock
    MutexLock lock(&mutex_);
    const auto found = open_.find(number);
    if (found == open_.end()) return;
    ended = std::move(found->second);
    open_.erase(found);
  });
}

void OpenCalls::Recheck(
    const std::function<absl::Status(const OpenCall&)>& check) {
  std::vector<std::pair<uint64_t, std::shared_ptr<const OpenCall>>> calls;
  {
    MutexLock lock(&mutex_);
    calls.assign(open_.begin(), open_.end());
  }
  for (const auto& [number, call] : calls) {
    const absl::Status status = check(*call);
    if (status.ok()) continue;
    {
      MutexLock lock(&mutex_);
      if (open_.erase(number) == 0) continue;  // it has ended by itself
    }
    call->end(status);
  }
}

size_t OpenCalls::size() const {
  MutexLock lock(&mutex_);
  return open_.size();
}

}  // namespace agg
