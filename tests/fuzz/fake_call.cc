#include "tests/fuzz/fake_call.h"

#include <grpc/grpc.h>
#include <grpc/support/alloc.h>
#include <grpc/support/string_util.h>
#include <grpcpp/security/auth_context.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "server/rpc/long_poll.h"

namespace {

// What stands for gRPC's call below the C++ interface: references outlive the
// FakeCall, which is what the server may cancel.
struct Core {
  std::atomic<int> refs{1};
  agg::Mutex mutex;
  agg::FakeCall* call ABSL_GUARDED_BY(mutex) = nullptr;
};

Core* CoreOf(grpc_call* call) { return reinterpret_cast<Core*>(call); }

// Tells reactors of cancellations by the server while the test's own thread may
// wait for what they hold.
std::atomic<int> cancelling{0};  // and not told yet
agg::Executor* Canceller() {
  static agg::Executor* const executor = new agg::Executor();
  return executor;
}

}  // namespace

// In place of gRPC's: what a program defines goes before its libraries.
extern "C" {

void grpc_call_ref(grpc_call* call) { ++CoreOf(call)->refs; }

void grpc_call_unref(grpc_call* call) {
  if (--CoreOf(call)->refs == 0) delete CoreOf(call);
}

char* grpc_call_get_peer(grpc_call*) { return gpr_strdup("ipv4:127.0.0.1:1"); }

grpc_call_error grpc_call_cancel_with_status(grpc_call* call, grpc_status_code,
                                             const char*, void*) {
  grpc_call_ref(call);
  ++cancelling;
  Canceller()->Run([call] {
    {
      Core* const core = CoreOf(call);
      agg::MutexLock lock(&core->mutex);
      if (core->call != nullptr) core->call->Cancel();
    }
    grpc_call_unref(call);
    --cancelling;
  });
  return GRPC_CALL_OK;
}

}  // extern "C"

namespace grpc::testing {

// A friend of ServerContextBase by its name.
class InteropServerContextInspector {
 public:
  static void Prepare(grpc::CallbackServerContext* context, grpc_call* call,
                      std::shared_ptr<const grpc::AuthContext> auth,
                      const std::string& authorization) {
    grpc::ServerContextBase* const base = context;
    base->set_call(call);
    base->auth_context_ = std::move(auth);
    if (authorization.empty()) return;
    base->client_metadata_.map()->emplace(
        grpc::string_ref("authorization"),
        grpc::string_ref(authorization.data(), authorization.size()));
  }
};

}  // namespace grpc::testing

namespace agg {
namespace {

// Its constructor is protected.
class NoProperties : public grpc::AuthPropertyIterator {};

// Of a connection without TLS.
class NoAuthContext : public grpc::AuthContext {
 public:
  bool IsPeerAuthenticated() const override { return false; }
  std::vector<grpc::string_ref> GetPeerIdentity() const override { return {}; }
  std::string GetPeerIdentityPropertyName() const override { return ""; }
  std::vector<grpc::string_ref> FindPropertyValues(
      const std::string&) const override {
    return {};
  }
  grpc::AuthPropertyIterator begin() const override { return NoProperties(); }
  grpc::AuthPropertyIterator end() const override { return NoProperties(); }
  void AddProperty(const std::string&, const grpc::string_ref&) override {}
  bool SetPeerIdentityPropertyName(const std::string&) override {
    return false;
  }
};

}  // namespace

FakeCall::FakeCall(const std::string& authorization)
    : authorization_(authorization) {
  auto* const core = new Core();
  {
    MutexLock lock(&core->mutex);
    core->call = this;
  }
  grpc::testing::InteropServerContextInspector::Prepare(
      &context_, reinterpret_cast<grpc_call*>(core),
      std::make_shared<NoAuthContext>(), authorization_);
}

FakeCall::~FakeCall() {
  Core* const core = CoreOf(context_.c_call());
  MutexLock lock(&core->mutex);
  core->call = nullptr;
}

void FakeCall::Reads() {
  MutexLock lock(&mutex_);
  if (reading_) __builtin_trap();  // gRPC: one at a time
  reading_ = true;
}

void FakeCall::Writes() {
  MutexLock lock(&mutex_);
  if (writing_ || finished_) __builtin_trap();
  writing_ = true;
}

void FakeCall::Finishes(grpc::Status status) {
  MutexLock lock(&mutex_);
  if (finished_) __builtin_trap();
  finished_ = true;
  status_ = std::move(status);
}

void FakeCall::Cancel() {
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
  }
  Pump();
}

void FakeCall::HalfClose() {
  MutexLock lock(&mutex_);
  half_closed_ = true;
}

void FakeCall::SetReads(bool reads) {
  MutexLock lock(&mutex_);
  takes_ = reads;
}

bool FakeCall::done() const {
  MutexLock lock(&mutex_);
  return done_;
}

grpc::Status FakeCall::status() const {
  MutexLock lock(&mutex_);
  return status_;
}

// The order is the transport's: what is lost is said first.
FakeCall::Event FakeCall::Next(bool* ok) {
  MutexLock lock(&mutex_);
  Event event = Event::kNone;
  *ok = !cancelled_;
  if (reactor_ == nullptr || done_) return event;
  if (cancelled_ && !told_ && !finished_) {
    told_ = true;
    event = Event::kCancel;
  } else if (reading_ && !cancelled_ && !finished_ && HasMessage()) {
    TakeMessage();
    reading_ = false;
    event = Event::kRead;
  } else if (reading_ && (cancelled_ || finished_ || half_closed_)) {
    reading_ = false;
    event = Event::kReadFailed;
  } else if (writing_ && (takes_ || cancelled_)) {
    writing_ = false;
    event = Event::kWritten;
  } else if (finished_ && !reading_ && !writing_ && reacting_ == 0) {
    done_ = true;
    return Event::kDone;
  }
  if (event != Event::kNone) ++reacting_;
  return event;
}

void FakeCall::Act(Event event, bool ok) {
  switch (event) {
    case Event::kNone:
      return;
    case Event::kCancel:
      return reactor_->OnCancel();
    case Event::kRead:
      return OnRead(true);
    case Event::kReadFailed:
      return OnRead(false);
    case Event::kWritten:
      return OnWritten(ok);
    case Event::kDone:
      return reactor_->OnDone();
  }
}

bool FakeCall::Pump() {
  for (bool did = false;; did = true) {
    bool ok = false;
    const Event event = Next(&ok);
    if (event == Event::kNone) return did;
    Act(event, ok);
    if (event == Event::kDone) return true;
    MutexLock lock(&mutex_);
    --reacting_;
  }
}

void AwaitCancellations() {
  if (cancelling == 0) return;
  std::promise<void> reached;
  Canceller()->Run([&reached] { reached.set_value(); });
  reached.get_future().wait();
}

template <>
void TouchMessage(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  if (!message.Valid() || !message.Dump(&slices).ok()) return;
  volatile uint8_t sum = 0;
  for (const grpc::Slice& slice : slices) {
    for (const uint8_t byte : slice) sum = static_cast<uint8_t>(sum + byte);
  }
}

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
