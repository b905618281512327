// Pulls that wait for a version. It knows nothing about versions, so that it
// can be tested without a shard.
#ifndef AGG_SERVER_SHARD_PULL_QUEUE_H_
#define AGG_SERVER_SHARD_PULL_QUEUE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace agg {

// T: what a pull gets that is answered with success. Thread-compatible: its
// owner's lock protects it, and the owner runs the callbacks that Resolve hands
// out without that lock.
template <typename T>
class PullQueue {
 public:
  using Callback = std::function<void(absl::StatusOr<T>)>;
  struct Request {
    uint64_t epoch = 0;
    uint64_t version = 0;
    bool latest = false;
    Callback callback;
    bool partial = false;  // also while the version is being written
  };
  using Answer = std::optional<absl::StatusOr<T>>;

  // Ids count from 1.
  int64_t Add(Request request) {
    waiting_.emplace(++last_id_, std::move(request));
    return last_id_;
  }
  void Remove(int64_t id) { waiting_.erase(id); }

  // Asks `answer` about each pull. Those that get an answer are removed, and
  // their callbacks returned, bound to it, to be run without the lock.
  std::vector<std::function<void()>> Resolve(
      const std::function<Answer(const Request&)>& answer) {
    std::vector<std::function<void()>> ready;
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      Answer result = answer(it->second);
      if (!result.has_value()) {
        ++it;
        continue;
      }
      ready.push_back([callback = std::move(it->second.callback),
                       result = *std::move(result)] { callback(result); });
      it = waiting_.erase(it);
    }
    return ready;
  }

 private:
  int64_t last_id_ = 0;
  std::map<int64_t, Request> waiting_;
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_PULL_QUEUE_H_
