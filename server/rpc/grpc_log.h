// gRPC's own lines in the server's log. A peer can cause one with each
// connection, such as a TLS handshake that fails.
#ifndef AGG_SERVER_RPC_GRPC_LOG_H_
#define AGG_SERVER_RPC_GRPC_LOG_H_

#include "absl/time/time.h"

namespace agg {

// How many lines may be written: kMost in each kPeriod. Thread-compatible.
class LineLimit {
 public:
  static constexpr int kMost = 10;
  static constexpr absl::Duration kPeriod = absl::Seconds(60);

  // Whether a line may be written at `now`; if so, *dropped is how many could
  // not be since the last one that was.
  bool Take(absl::Time now, int* dropped);

 private:
  absl::Time began_ = absl::InfinitePast();
  int written_ = 0;
  int dropped_ = 0;
};

// Makes gRPC's errors warnings of the log, as far as LineLimit lets them, in
// the whole process until its end. What GRPC_VERBOSITY and GRPC_TRACE ask for
// besides is there for a person who debugs gRPC: info, all of it. Thread-safe.
void LogGrpcErrors();

}  // namespace agg

#endif  // AGG_SERVER_RPC_GRPC_LOG_H_
