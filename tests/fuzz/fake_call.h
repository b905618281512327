// Calls of a callback service without a transport: the test is the client and
// the wire, says when a message has come and when one was sent, and may stop
// reading or go at any moment. gRPC offers these interfaces for mocks
// (grpcpp/support/server_callback.h). In a program with this library gRPC's own
// calls do not work: fake_call.cc has their functions.
#ifndef AGG_TESTS_FUZZ_FAKE_CALL_H_
#define AGG_TESTS_FUZZ_FAKE_CALL_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace agg {

// What all kinds of calls have. Reactions run in Pump, on the caller's thread;
// if the server itself cancels the call, on another one. Thread-safe.
class FakeCall {
 public:
  virtual ~FakeCall();
  FakeCall(const FakeCall&) = delete;
  FakeCall& operator=(const FakeCall&) = delete;

  // Tells the reactor all that has happened, until nothing more happens;
  // whether anything has.
  bool Pump();
  // The client goes.
  void Cancel();
  // It sends nothing more.
  void HalfClose();
  // Whether what the server writes is taken.
  void SetReads(bool reads);

  // The server has finished, and its reactor is gone.
  bool done() const;
  // REQUIRES: done().
  grpc::Status status() const;

  grpc::CallbackServerContext* context() { return &context_; }

 protected:
  // `authorization`: the header of this name; "": none.
  explicit FakeCall(const std::string& authorization);

  void SetReactor(grpc::internal::ServerReactor* reactor) {
    reactor_ = reactor;
  }
  // What the server has asked for.
  void Reads();
  void Writes();
  void Finishes(grpc::Status status);
  // Whether a message waits for a read; Pump hands it over.
  virtual bool HasMessage() { return false; }
  virtual void TakeMessage() {}
  // The reactions of streams.
  virtual void OnRead(bool) {}
  virtual void OnWritten(bool) {}

  mutable Mutex mutex_;

 private:
  enum class Event { kNone, kCancel, kRead, kReadFailed, kWritten, kDone };
  Event Next(bool* ok);
  void Act(Event event, bool ok);

  std::string authorization_;
  grpc::CallbackServerContext context_;
  grpc::internal::ServerReactor* reactor_ = nullptr;
  int reacting_ ABSL_GUARDED_BY(mutex_) = 0;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool takes_ ABSL_GUARDED_BY(mutex_) = true;
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool told_ ABSL_GUARDED_BY(mutex_) = false;  // OnCancel was called
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

// Waits until what the server has cancelled itself has been told so.
void AwaitCancellations();

template <typename Request, typename Reply>
class FakeUnary final : public FakeCall, public grpc::ServerCallbackUnary {
 public:
  // `handler`: the service's method, as a function of context, request, reply.
  template <typename Handler>
  FakeUnary(const std::string& authorization, Request sent, Handler handler)
      : FakeCall(authorization), request(std::move(sent)) {
    grpc::ServerUnaryReactor* const reactor =
        handler(context(), &request, &reply);
    SetReactor(reactor);
    BindReactor(reactor);
  }

  Request request;  // the service may take it
  Reply reply;      // of a call that is done

 private:
  void Finish(grpc::Status status) override { Finishes(std::move(status)); }
  void SendInitialMetadata() override {}
  grpc::internal::ServerReactor* reactor() override { return nullptr; }
  void CallOnDone() override {}
};

// Touches all of a message's bytes, which may lie in the server's own memory.
template <typename Message>
void TouchMessage(const Message& message) {
  (void)message.SerializeAsString();
}
template <>
void TouchMessage(const grpc::ByteBuffer& message);

// `Base` is one of gRPC's three kinds of streams of these messages.
template <typename Base, typename Request, typename Response>
class FakeStreamOf : public FakeCall, public Base {
 public:
  using OnResponse = std::function<void(const Response&)>;

  // Comes to the server after what was sent before.
  void Send(Request message) {
    MutexLock lock(&mutex_);
    messages_.push_back(std::move(message));
  }
  // Called for what is written, when it was taken, with no lock held.
  void set_on_response(OnResponse on_response) {
    on_response_ = std::move(on_response);
  }

 protected:
  explicit FakeStreamOf(const std::string& authorization)
      : FakeCall(authorization) {}

  void StartsRead(Request* to) {
    {
      MutexLock lock(&mutex_);
      to_ = to;
    }
    Reads();
  }
  void StartsWrite(const Response* message) {
    {
      MutexLock lock(&mutex_);
      response_ = *message;
    }
    Writes();
  }
  bool HasMessage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) override {
    return !messages_.empty();
  }
  void TakeMessage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) override {
    *to_ = std::move(messages_.front());
    messages_.pop_front();
  }
  // A message was taken, or dropped with the call.
  void Taken() {
    Response response;
    {
      MutexLock lock(&mutex_);
      std::swap(response, response_);
    }
    TouchMessage(response);
    if (on_response_ != nullptr) on_response_(response);
  }

 private:
  void SendInitialMetadata() override {}
  grpc::internal::ServerReactor* reactor() override { return nullptr; }
  void CallOnDone() override {}

  std::deque<Request> messages_ ABSL_GUARDED_BY(mutex_);
  Request* to_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Response response_ ABSL_GUARDED_BY(mutex_);
  OnResponse on_response_;
};

template <typename Request, typename Response>
class FakeBidi final
    : public FakeStreamOf<grpc::ServerCallbackReaderWriter<Request, Response>,
                          Request, Response> {
  using Reactor = grpc::ServerBidiReactor<Request, Response>;

 public:
  // `handler`: a function of the context.
  template <typename Handler>
  FakeBidi(const std::string& authorization, Handler handler)
      : FakeBidi::FakeStreamOf(authorization),
        stream_(handler(this->context())) {
    this->SetReactor(stream_);
    this->BindReactor(stream_);
  }

 private:
  void Read(Request* message) override { this->StartsRead(message); }
  void Write(const Response* message, grpc::WriteOptions) override {
    this->StartsWrite(message);
  }
  void WriteAndFinish(const Response* message, grpc::WriteOptions,
                      grpc::Status status) override {
    TouchMessage(*message);
    Finish(std::move(status));
  }
  void Finish(grpc::Status status) override {
    this->Finishes(std::move(status));
  }
  void OnRead(bool ok) override { stream_->OnReadDone(ok); }
  void OnWritten(bool ok) override {
    this->Taken();
    stream_->OnWriteDone(ok);
  }

  Reactor* const stream_;
};

template <typename Response>
class FakeServerStream final
    : public FakeStreamOf<grpc::ServerCallbackWriter<Response>, int, Response> {
 public:
  template <typename Handler>
  FakeServerStream(const std::string& authorization, Handler handler)
      : FakeServerStream::FakeStreamOf(authorization),
        stream_(handler(this->context())) {
    this->SetReactor(stream_);
    this->BindReactor(stream_);
  }

 private:
  void Write(const Response* message, grpc::WriteOptions) override {
    this->StartsWrite(message);
  }
  void WriteAndFinish(const Response* message, grpc::WriteOptions,
                      grpc::Status status) override {
    last_ = true;
    this->StartsWrite(message);
    Finish(std::move(status));
  }
  void Finish(grpc::Status status) override {
    this->Finishes(std::move(status));
  }
  void OnWritten(bool ok) override {
    this->Taken();
    if (!last_) stream_->OnWriteDone(ok);
  }

  bool last_ = false;  // the write has no reaction of its own
  grpc::ServerWriteReactor<Response>* const stream_;
};

template <typename Request>
class FakeClientStream final
    : public FakeStreamOf<grpc::ServerCallbackReader<Request>, Request,
                          grpc::ByteBuffer> {
 public:
  template <typename Handler>
  FakeClientStream(const std::string& authorization, Handler handler)
      : FakeClientStream::FakeStreamOf(authorization),
        stream_(handler(this->context())) {
    this->SetReactor(stream_);
    this->BindReactor(stream_);
  }

 private:
  void Read(Request* message) override { this->StartsRead(message); }
  void Finish(grpc::Status status) override {
    this->Finishes(std::move(status));
  }
  void OnRead(bool ok) override { stream_->OnReadDone(ok); }

  grpc::ServerReadReactor<Request>* const stream_;
};

// The calls of all clients of a fuzzed job, and what moves them. Not
// thread-safe.
class FuzzCalls {
 public:
  // `settle` does what the server has to do; whether that was anything.
  explicit FuzzCalls(std::function<bool()> settle)
      : settle_(std::move(settle)) {}
  ~FuzzCalls();

  // Moves calls and server until nothing moves any more. A call that is done is
  // forgotten.
  void Settle();

  // Begins a call and settles. `handler` as FakeUnary's.
  template <typename Reply, typename Request, typename Handler>
  std::shared_ptr<FakeUnary<Request, Reply>> Unary(const std::string& token,
                                                   Request request,
                                                   Handler handler) {
    auto call = std::make_shared<FakeUnary<Request, Reply>>(
        token, std::move(request), handler);
    Add(call);
    return call;
  }
  // Takes one that has begun, and settles.
  void Add(std::shared_ptr<FakeCall> call);

  // Settles until the call is done, which another thread of the server may have
  // to see to. Traps if that takes longer than kPatience.
  void AwaitDone(const FakeCall& call);

  // Those that are not done, oldest first.
  size_t num_open() const { return open_.size(); }
  FakeCall* open(size_t i) { return open_[i % open_.size()].get(); }

  // All clients go. Traps if a call does not end within kPatience then.
  void CancelAll();

 private:
  // Wall time that suffices on a slow machine under a sanitizer.
  static constexpr absl::Duration kPatience = absl::Seconds(40);

  const std::function<bool()> settle_;
  std::vector<std::shared_ptr<FakeCall>> open_;
};

}  // namespace agg

#endif  // AGG_TESTS_FUZZ_FAKE_CALL_H_
