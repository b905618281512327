// What the fake jobs of these tests have in common: state that servers' threads
// share with the test.
#ifndef AGG_TESTS_WORKER_CLIENT_FAKE_STATE_H_
#define AGG_TESTS_WORKER_CLIENT_FAKE_STATE_H_

#include <condition_variable>
#include <mutex>
#include <utility>

namespace agg {

// A mutex, and who waits for what it guards. The parameters are members of the
// class that derives from it.
class FakeState {
 protected:
  template <typename T>
  T Read(const T& member) const {
    std::lock_guard<std::mutex> lock(mutex_);
    return member;
  }
  // Wakes those who wait.
  template <typename T>
  void Set(T* member, T value) {
    std::lock_guard<std::mutex> lock(mutex_);
    *member = std::move(value);
    changed_.notify_all();
  }
  template <typename Condition>
  void Await(const Condition& is_there) const {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, is_there);
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
};

}  // namespace agg

#endif  // AGG_TESTS_WORKER_CLIENT_FAKE_STATE_H_
