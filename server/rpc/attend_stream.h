// One worker's Attend stream: renewals in, events out.
#ifndef AGG_SERVER_RPC_ATTEND_STREAM_H_
#define AGG_SERVER_RPC_ATTEND_STREAM_H_

#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "proto/agg.pb.h"
#include "server/base/mutex.h"
#include "server/coordinator/coordinator.h"
#include "server/rpc/bidi_stream.h"
#include "server/rpc/open_streams.h"

namespace agg {

// Which stream speaks for a session. A worker that reconnects opens the next
// stream before the server notices the end of the last one, which then must
// not detach it. Thread-safe; lock order: this, then the coordinator's.
class Attendance {
 public:
  explicit Attendance(Coordinator* coordinator) : coordinator_(coordinator) {}

  absl::Status Attend(uint64_t epoch, uint64_t session, const void* stream,
                      std::function<void(const JobEvent&)> on_event);
  void Detach(uint64_t session, const void* stream);
  Coordinator* coordinator() const { return coordinator_; }

 private:
  Coordinator* const coordinator_;
  Mutex mutex_;
  std::map<uint64_t, const void*> streams_ ABSL_GUARDED_BY(mutex_);
};

class AttendReactor : public BidiStream<v1::LeaseRenewal, v1::JobEvent> {
 public:
  // `attendance` and `open` outlive the gRPC server.
  static AttendReactor* Start(Attendance* attendance, OpenStreams* open);

 private:
  AttendReactor(Attendance* attendance, OpenStreams* open)
      : BidiStream(open), attendance_(attendance) {}

  void OnReadDone(bool ok) override;
  void OnEnded() override;
  absl::Status Handle(const v1::LeaseRenewal& renewal);

  Attendance* const attendance_;
  v1::LeaseRenewal renewal_;
  uint64_t session_ = 0;  // of the first renewal
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_ATTEND_STREAM_H_
