// Answers to unary RPCs: later and from any thread (LongPoll), or at once.
#ifndef AGG_SERVER_RPC_LONG_POLL_H_
#define AGG_SERVER_RPC_LONG_POLL_H_

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/status_conversion.h"

namespace agg {

// The first answer counts, and a cancellation is one; later ones are dropped,
// so that a callback may come long after the RPC's end. Owns itself until
// OnDone.
template <typename Response>
class LongPoll : public grpc::ServerUnaryReactor {
 public:
  // `response` is gRPC's, valid until an answer was given.
  static std::shared_ptr<LongPoll> Make(Response* response) {
    std::shared_ptr<LongPoll> poll(new LongPoll(response));
    poll->self_ = poll;
    return poll;
  }

  // `gone` is called when the RPC is cancelled, before it ends. To be set
  // before the reactor is returned to gRPC, which says nothing earlier.
  void set_on_gone(std::function<void()> gone) { on_gone_ = std::move(gone); }
  // Whether nobody waits for an answer any more. Thread-safe.
  bool answered() const { return answered_.load(); }

  // Thread-safe.
  void Answer(absl::StatusOr<Response> answer) {
    if (answered_.exchange(true)) return;
    if (answer.ok()) *response_ = *std::move(answer);
    Finish(ToGrpcStatus(answer.status()));
  }

 private:
  explicit LongPoll(Response* response) : response_(response) {}

  void OnCancel() override {
    if (on_gone_ != nullptr) on_gone_();
    Answer(absl::CancelledError("cancelled"));
  }
  void OnDone() override { const auto self = std::move(self_); }

  Response* const response_;
  std::atomic<bool> answered_{false};
  std::function<void()> on_gone_;
  std::shared_ptr<LongPoll> self_;
};

// Answers an RPC whose answer is known. `response` is gRPC's. Returns the
// reactor to be returned to gRPC.
template <typename Response>
grpc::ServerUnaryReactor* AnswerNow(Response* response,
                                    absl::StatusOr<Response> answer) {
  auto poll = LongPoll<Response>::Make(response);
  auto* reactor = poll.get();
  poll->Answer(std::move(answer));
  return reactor;
}

}  // namespace agg

#endif  // AGG_SERVER_RPC_LONG_POLL_H_
