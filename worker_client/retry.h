// When a failed transfer is tried again. Pure, and apart from the streams: the
// time is an argument.
#ifndef AGG_WORKER_CLIENT_RETRY_H_
#define AGG_WORKER_CLIENT_RETRY_H_

#include <grpcpp/support/status.h>

#include "absl/time/time.h"
#include "absl/types/optional.h"

namespace agg {

// The policy for one call at one shard. Connection losses are retried for a
// window after the first one, with growing pauses. A refused connection is
// retried only once: a process that has ended does not come back with this
// session. Damaged bytes (DATA_LOSS) are retried kMaxDamaged times. Other
// failures are not retried. Thread-compatible.
class RetryPolicy {
 public:
  static constexpr int kMaxDamaged = 3;

  explicit RetryPolicy(absl::Duration window) : window_(window) {}

  // The pause before the next attempt; nullopt: give up.
  absl::optional<absl::Duration> AfterFailure(const grpc::Status& status,
                                              absl::Time now);

 private:
  absl::Duration window_;
  absl::Time first_loss_ = absl::InfiniteFuture();
  absl::Duration pause_ = absl::ZeroDuration();
  int refused_ = 0;
  int damaged_ = 0;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_RETRY_H_
