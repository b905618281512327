// Callbacks that wait until a lock is released.
#ifndef AGG_SERVER_COORDINATOR_DEFERRED_CALLS_H_
#define AGG_SERVER_COORDINATOR_DEFERRED_CALLS_H_

#include <functional>
#include <utility>
#include <vector>

namespace agg {

// Whoever changes state under a lock collects here what others have to hear,
// and calls Run after the lock is released: a callback may take locks of its
// own, or call back. Thread-compatible.
class DeferredCalls {
 public:
  void Add(std::function<void()> call) { calls_.push_back(std::move(call)); }
  void Add(DeferredCalls others) {
    for (std::function<void()>& call : others.calls_) Add(std::move(call));
  }
  bool empty() const { return calls_.empty(); }

  // In the order of Add. REQUIRES: no lock is held.
  void Run() const {
    for (const std::function<void()>& call : calls_) call();
  }

 private:
  std::vector<std::function<void()>> calls_;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_DEFERRED_CALLS_H_
