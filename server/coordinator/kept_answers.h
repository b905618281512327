// Answers that go out when all shards keep what they say (P50): so that no
// process that is lost behind one takes it along.
#ifndef AGG_SERVER_COORDINATOR_KEPT_ANSWERS_H_
#define AGG_SERVER_COORDINATOR_KEPT_ANSWERS_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/coordinator/deferred_calls.h"

namespace agg {

// Thread-compatible. Each `done` is called once, by what the methods return.
class KeptAnswers {
 public:
  using Done = std::function<void(const absl::Status&)>;
  // How long an answer waits for shards, which may be frozen or gone.
  static constexpr absl::Duration kTimeout = absl::Seconds(30);

  size_t size() const { return waiting_.size() + sent_.size(); }
  // `what` has been done, in words: "rank 1 is evicted". It waits for the next
  // Send.
  void Add(std::string what, absl::Time now, Done done);
  // All that wait so far go to the shards with what is sent now.
  void Send();
  // All shards have what was sent.
  DeferredCalls Kept();
  // They have not: it is sent again.
  void NotKept();
  // Nothing will be sent any more.
  DeferredCalls Refuse(const absl::Status& reason);
  // UNAVAILABLE for those that have waited for kTimeout: what was done, who is
  // waited for (`why`), and that the call may be repeated.
  DeferredCalls Expire(absl::Time now, const std::string& why);

 private:
  struct Answer {
    std::string what;
    absl::Time until;
    Done done;
  };
  std::vector<Answer> waiting_;
  std::vector<Answer> sent_;  // on their way
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_KEPT_ANSWERS_H_
