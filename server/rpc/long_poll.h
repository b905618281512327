// Answers to unary RPCs: later and from any thread (LongPoll), or at once. Also
// streams that end at once, a call that is ended from outside its reactor, and
// the thread on which long calls run.
#ifndef AGG_SERVER_RPC_LONG_POLL_H_
#define AGG_SERVER_RPC_LONG_POLL_H_

#include <grpc/grpc.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/status_conversion.h"
#include "server/base/mutex.h"

namespace agg {

// Reactors of streams that end at once, with a status. `Reactor`: one of gRPC's
// for a stream of the server. Owns itself.
template <typename Reactor>
class RefusedCall : public Reactor {
 public:
  explicit RefusedCall(const absl::Status& reason) {
    this->Finish(ToGrpcStatus(reason));
  }

 private:
  void OnDone() override { delete this; }
  void OnCancel() override {}
};

// Ends a call from outside its reactor, with a status that reaches the client.
// A reference on a call, valid even after the call has ended. Apart from the
// reactors because it uses gRPC's C core: in C++ TryCancel is all there is, and
// the client would see CANCELLED without a reason. Thread-safe.
class CallCanceller {
 public:
  explicit CallCanceller(grpc::CallbackServerContext* context);
  ~CallCanceller();
  CallCanceller(const CallCanceller&) = delete;
  CallCanceller& operator=(const CallCanceller&) = delete;

  // Ends the call with `status`, and drops the messages that are queued on it
  // with their memory. Does nothing if the call has ended.
  void Cancel(const absl::Status& status);

 private:
  grpc_call* const call_;
};

// A thread that runs closures in order: for calls that compute or allocate,
// which must not hold up gRPC's few callback threads. Thread-safe.
class Executor {
 public:
  Executor();
  // Runs what is queued, then ends the thread.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void Run(std::function<void()> closure);

 private:
  void Loop();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

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

  // Answers with `convert` of a result, or with its error. Thread-safe.
  template <typename Result, typename Convert>
  void AnswerAs(const absl::StatusOr<Result>& result, const Convert& convert) {
    if (result.ok()) {
      Answer(convert(*result));
    } else {
      Answer(result.status());
    }
  }

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

// Handles a unary RPC: `handle` gets a LongPoll, which it answers, now or from
// any thread later, or returns the error that is the answer. `response` is
// gRPC's. Returns the reactor to be returned to gRPC.
template <typename Response, typename Handle>
grpc::ServerUnaryReactor* Serve(Response* response, const Handle& handle) {
  const auto poll = LongPoll<Response>::Make(response);
  const absl::Status status = handle(poll);
  if (!status.ok()) poll->Answer(status);
  return poll.get();
}

// Answers an RPC whose answer is known. `response` is gRPC's. Returns the
// reactor to be returned to gRPC.
template <typename Response>
grpc::ServerUnaryReactor* AnswerNow(Response* response,
                                    absl::StatusOr<Response> answer) {
  const auto poll = LongPoll<Response>::Make(response);
  poll->Answer(std::move(answer));
  return poll.get();
}

}  // namespace agg

#endif  // AGG_SERVER_RPC_LONG_POLL_H_
