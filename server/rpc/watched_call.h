// A streaming call to another shard in which no wait lasts for ever (P31).
#ifndef AGG_SERVER_RPC_WATCHED_CALL_H_
#define AGG_SERVER_RPC_WATCHED_CALL_H_

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "server/base/clock.h"

namespace agg {

// Blocks as gRPC's synchronous calls do, but ends the call when one operation
// takes longer than `stall` by `clock`, or the connection longer than
// kResumeTime. One write goes on while its caller makes the next message. After
// a false the call is over: Finish says why. Used by one thread at a time.
class WatchedCall {
 public:
  // Begins the call, which holds the stub's channel. `clock` outlives it.
  WatchedCall(grpc::GenericStub* stub, const std::string& method,
              const Clock* clock, absl::Duration stall);
  // Cancels it, unless it is finished.
  ~WatchedCall();
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

  // Waits until the message before has gone, and sends this one.
  bool Write(const grpc::ByteBuffer& message);
  // Waits until all messages have gone, and says that no more come.
  bool WritesDone();
  // The other side's next message.
  bool Read(grpc::ByteBuffer* message);
  // The call's end; the other side's messages have been read, or it is
  // cancelled. Once, and last.
  grpc::Status Finish();
  void Cancel() { context_.TryCancel(); }

  // How long nothing moved, if that is why it was ended; else 0.
  absl::Duration stalled_for() const { return stalled_for_; }
  // After Finish: the other side has ended it, and no broken connection.
  bool answered() const;

 private:
  // Waits for the operation under way, if any. Whether it went well.
  bool Await();

  const Clock* const clock_;
  const absl::Duration stall_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  bool pending_ = false;  // an operation is under way
  bool finished_ = false;
  bool connected_ = false;
  absl::Duration stalled_for_ = absl::ZeroDuration();
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_WATCHED_CALL_H_
