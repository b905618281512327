// What a callback was called with, for tests.
#ifndef AGG_TESTS_SERVER_ROUND_REPLY_H_
#define AGG_TESTS_SERVER_ROUND_REPLY_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"

namespace agg {

// Copies share what they hear. Thread-safe.
template <typename T>
class Reply {
 public:
  std::function<void(T)> callback() {
    return [state = state_](T value) {
      MutexLock lock(&state->mutex);
      state->values.push_back(std::move(value));
      state->called.NotifyAll();
    };
  }

  int num_calls() const {
    MutexLock lock(&state_->mutex);
    return static_cast<int>(state_->values.size());
  }
  bool called() const { return num_calls() > 0; }

  // Waits for the call. Tests without threads ask called() first.
  T Get() const {
    MutexLock lock(&state_->mutex);
    while (state_->values.empty()) state_->called.Wait(&state_->mutex);
    return state_->values.front();
  }

 private:
  struct State {
    Mutex mutex;
    CondVar called;
    std::vector<T> values ABSL_GUARDED_BY(mutex);
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace agg

#endif  // AGG_TESTS_SERVER_ROUND_REPLY_H_
