#include "tests/fuzz/fuzz_calls.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "absl/time/clock.h"

namespace agg {
namespace {

// For who wants to know what an input does.
void Trace(const FakeCall& call) {
  static const bool traced = std::getenv("AGG_FUZZ_LOG") != nullptr;
  if (!traced) return;
  const grpc::Status status = call.status();
  std::fprintf(stderr, "a call ends with %d %s\n", status.error_code(),
               status.error_message().c_str());
}

}  // namespace

FuzzCalls::~FuzzCalls() { CancelAll(); }

void FuzzCalls::Add(std::shared_ptr<FakeCall> call) {
  open_.push_back(std::move(call));
  Settle();
}

void FuzzCalls::Settle() {
  // A server that always has something to do is a finding.
  for (int turn = 0; turn < 10000; ++turn) {
    bool did = settle_();
    AwaitCancellations();
    for (const auto& call : open_) did = call->Pump() || did;
    open_.erase(std::remove_if(open_.begin(), open_.end(),
                               [](const std::shared_ptr<FakeCall>& call) {
                                 if (call->done()) Trace(*call);
                                 return call->done();
                               }),
                open_.end());
    if (!did) return;
  }
  __builtin_trap();
}

void FuzzCalls::AwaitDone(const FakeCall& call) {
  const absl::Time end = absl::Now() + kPatience;
  for (Settle(); !call.done(); Settle()) {
    if (absl::Now() > end) __builtin_trap();
    std::this_thread::yield();
  }
}

void FuzzCalls::CancelAll() {
  for (const auto& call : open_) call->Cancel();
  while (!open_.empty()) {
    const std::shared_ptr<FakeCall> call = open_.front();
    AwaitDone(*call);
    Settle();
  }
}

}  // namespace agg
