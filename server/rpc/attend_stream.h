// One worker's Attend stream: renewals in, events out.
#ifndef AGG_SERVER_RPC_ATTEND_STREAM_H_
#define AGG_SERVER_RPC_ATTEND_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "proto/agg.pb.h"
#include "server/coordinator/coordinator.h"
#include "server/rpc/bidi_stream.h"
#include "server/rpc/open_streams.h"

namespace agg {

// Translates between the stream and Coordinator::Attend, Renew and Detach; who
// attends, the coordinator knows.
class AttendStream : public BidiStream<v1::LeaseRenewal, v1::JobEvent> {
 public:
  // Whether the caller may use the session that it names.
  using CheckSession =
      std::function<absl::Status(uint64_t epoch, uint64_t session)>;

  // `coordinator` and `open` outlive the gRPC server. `check` is asked
  // once an epoch.
  static AttendStream* Start(Coordinator* coordinator, OpenStreams* open,
                             CheckSession check);
  // A stream that ends at once, with `reason`.
  static AttendStream* Refuse(const absl::Status& reason, OpenStreams* open);

 private:
  AttendStream(Coordinator* coordinator, OpenStreams* open, CheckSession check)
      : BidiStream(open), coordinator_(coordinator), check_(std::move(check)) {}

  void OnReadDone(bool ok) override;
  void OnEnded() override;
  absl::Status Handle(const v1::LeaseRenewal& renewal);

  Coordinator* const coordinator_;
  const CheckSession check_;
  v1::LeaseRenewal renewal_;
  uint64_t epoch_ = 0;    // of the last renewal that was the caller's
  uint64_t session_ = 0;  // of the first renewal; 0: not attended yet
  uint64_t number_ = 0;   // the coordinator's for this stream
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_ATTEND_STREAM_H_
