// Ends a call through gRPC's C core, since its C++ interface cannot end one
// with a status while a write is under way; and runs the closures of an
// Executor.
#include "server/rpc/long_poll.h"

#include <utility>

#include "proto/status_conversion.h"

namespace agg {

CallCanceller::CallCanceller(grpc::CallbackServerContext* context)
    : call_(context->c_call()) {
  grpc_call_ref(call_);
}

CallCanceller::~CallCanceller() { grpc_call_unref(call_); }

void CallCanceller::Cancel(const absl::Status& status) {
  const grpc::Status converted = ToGrpcStatus(status);
  grpc_call_cancel_with_status(
      call_, static_cast<grpc_status_code>(converted.error_code()),
      converted.error_message().c_str(), nullptr);
}

// A queue and one thread: closures run in order and never at the same time.
Executor::Executor() : thread_([this] { Loop(); }) {}

Executor::~Executor() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void Executor::Run(std::function<void()> closure) {
  {
    MutexLock lock(&mutex_);
    queue_.push_back(std::move(closure));
  }
  changed_.NotifyAll();
}

void Executor::Loop() {
  for (;;) {
    std::function<void()> closure;
    {
      MutexLock lock(&mutex_);
      while (queue_.empty() && !stopped_) changed_.Wait(&mutex_);
      if (queue_.empty()) return;
      closure = std::move(queue_.front());
      queue_.pop_front();
    }
    closure();
  }
}

}  // namespace agg
