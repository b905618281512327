// One operation at a time on a queue of the call's own: the thread that waits
// for it looks at the clock in between.
#include "server/rpc/watched_call.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "server/rpc/broken_connection.h"

namespace agg {
namespace {

// Between two looks at the clock.
constexpr absl::Duration kPause = absl::Milliseconds(100);

}  // namespace

WatchedCall::WatchedCall(grpc::GenericStub* stub, const std::string& method,
                         const Clock* clock, absl::Duration stall)
    : clock_(clock), stall_(stall) {
  // The other side may just have been started again.
  context_.set_wait_for_ready(true);
  stream_ = stub->PrepareCall(&context_, method, &queue_);
  pending_ = true;
  stream_->StartCall(this);
}

WatchedCall::~WatchedCall() {
  if (!finished_) {
    Cancel();
    // gRPC wants a stream read to its end before Finish.
    grpc::ByteBuffer rest;
    while (Read(&rest)) {
    }
    Finish();
  }
  queue_.Shutdown();
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
  }
}

bool WatchedCall::Await() {
  if (!pending_) return true;
  const absl::Time since = clock_->Now();
  const absl::Duration limit =
      connected_ ? stall_ : std::min(stall_, kResumeTime);
  void* tag;
  bool ok = false;
  while (
      queue_.AsyncNext(&tag, &ok, absl::ToChronoTime(absl::Now() + kPause)) ==
      grpc::CompletionQueue::TIMEOUT) {
    if (stalled_for_ == absl::ZeroDuration() &&
        clock_->Now() - since >= limit) {
      stalled_for_ = limit;
      Cancel();  // ends the operation
    }
  }
  pending_ = false;
  connected_ |= ok;
  return ok;
}

bool WatchedCall::Write(const grpc::ByteBuffer& message) {
  if (!Await()) return false;
  pending_ = true;
  stream_->Write(message, this);
  return true;
}

bool WatchedCall::WritesDone() {
  if (!Await()) return false;
  pending_ = true;
  stream_->WritesDone(this);
  return Await();
}

bool WatchedCall::Read(grpc::ByteBuffer* message) {
  if (!Await()) return false;
  pending_ = true;
  stream_->Read(message, this);
  return Await();
}

grpc::Status WatchedCall::Finish() {
  Await();
  grpc::Status status;
  pending_ = true;
  stream_->Finish(&status, this);
  Await();
  finished_ = true;
  return status;
}

bool WatchedCall::answered() const { return IsAnswered(context_); }

}  // namespace agg
