// One thread goes from stream to stream, another one reads the stream of the
// moment: a read cannot be left alone, and an attempt to resume must end in
// time even if the shard is frozen.
#include "server/rpc/shard_link.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/sync_stream.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/byte_buffer_frame.h"
#include "proto/channel_credentials.h"
#include "proto/grpc_channel.h"
#include "proto/status_conversion.h"
#include "server/base/dcheck.h"
#include "server/base/log.h"
#include "server/round/shard_peer.h"
#include "server/rpc/phase_conversion.h"
#include "server/tls/tls_diagnosis.h"

namespace agg {

// The numbers of the connection stand together, and the calls over it come
// below.
std::shared_ptr<grpc::Channel> MakePeerChannel(const std::string& address,
                                               const TlsOptions& tls,
                                               const CallToken& token) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  args.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
  args.SetMaxSendMessageSize(kMaxMessageBytes);
  return NewGrpcChannel(address, address, tls, token, args);
}

absl::Status Explained(const absl::Status& status, const std::string& address,
                       const TlsOptions& tls) {
  if (!absl::IsUnavailable(status)) return status;
  if (!tls.any()) {
    return absl::UnavailableError(
        absl::StrCat(status.message(), ProxyRemark(status.message())));
  }
  const std::string why = WhyNotConnected(
      status.message(), {address, ServerNameOf(tls, address), tls});
  if (why.empty()) return status;
  return absl::UnavailableError(absl::StrCat(why, " (", status.message(), ")"));
}

absl::Status NamedAnswer(const std::string& name, const std::string& self,
                         const absl::Status& status) {
  if (status.ok()) return status;
  if (absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status)) {
    return absl::UnavailableError(
        absl::StrCat(name, " refuses ", self, ": ", status.message()));
  }
  return absl::Status(status.code(),
                      absl::StrCat(name, ": ", status.message()));
}

// The mark is an entry of the call's trailing metadata, which only the server
// can send, and only with its status.

namespace {

constexpr char kMark[] = "agg-answered";

}  // namespace

void MarkAnswered(grpc::CallbackServerContext* context) {
  context->AddTrailingMetadata(kMark, "1");
}

bool IsAnswered(const grpc::ClientContext& context) {
  return context.GetServerTrailingMetadata().count(kMark) > 0;
}

namespace {

using AttachCall = grpc::ClientReaderWriter<v1::AttachRequest, v1::AttachReply>;

// Between two attempts, and between two looks at the clock meanwhile.
constexpr absl::Duration kPause = absl::Milliseconds(100);
constexpr absl::Duration kFarewell = absl::Seconds(1);

}  // namespace

// Its fields are guarded by the link's mutex_, except as said.
struct ShardLink::Stream {
  grpc::ClientContext context;       // TryCancel may be called at any time
  std::unique_ptr<AttachCall> call;  // set once, used by Read and Write
  Mutex write_mutex;                 // one Write at a time
  bool replied = false;              // the epoch is on there
  bool stopping = false;  // the shard says that it stops in good order
  bool stranger = false;  // another life of the shard has answered
  bool ended = false;
  grpc::Status status;  // once ended
};

ShardLink::ShardLink(v1::ShardControl::Stub* stub,
                     const ShardLinkOptions& options,
                     std::function<void(const absl::Status&)> on_lost)
    : stub_(stub), options_(options), on_lost_(std::move(on_lost)) {}

ShardLink::~ShardLink() {
  AGG_DCHECK(thread_.get_id() != std::this_thread::get_id());
  End(absl::CancelledError("shutting down"), /*tell=*/false);
  Join();
}

// --- What others call --------------------------------------------------------

absl::StatusOr<v1::AttachReply> ShardLink::Open() {
  thread_ = std::thread([this] { Hold(); });
  const absl::Time deadline = absl::Now() + options_.open_timeout;
  MutexLock lock(&mutex_);
  while (!opened_ && over_.ok() && absl::Now() < deadline) {
    changed_.WaitFor(&mutex_, deadline - absl::Now());
  }
  if (opened_) return std::move(first_reply_);
  if (!over_.ok()) return over_;
  return absl::UnavailableError(
      absl::StrCat(options_.name, " did not answer within ",
                   absl::FormatDuration(options_.open_timeout)));
}

absl::StatusOr<int64_t> ShardLink::AwaitUp() {
  MutexLock lock(&mutex_);
  if (!opened_ && over_.ok()) {
    return absl::UnavailableError(
        absl::StrCat(options_.name, " has not been attached"));
  }
  while (!up_ && over_.ok()) changed_.Wait(&mutex_);
  if (!over_.ok()) return over_;
  return number_;
}

bool ShardLink::AwaitNext(int64_t number) {
  const absl::Time start = options_.clock->Now();
  MutexLock lock(&mutex_);
  if (life_ == 0) return false;
  while (over_.ok() && (!up_ || number_ <= number)) {
    if (up_ && options_.clock->Now() - start >= kResumeTime) return false;
    changed_.WaitFor(&mutex_, kPause);
  }
  return over_.ok();
}

absl::Status ShardLink::over() const {
  MutexLock lock(&mutex_);
  return over_;
}

v1::AttachRequest ShardLink::LostRequest(const absl::Status& reason) const {
  v1::AttachRequest request;
  request.set_epoch(epoch());
  request.set_lost(std::string(reason.message()));
  return request;
}

void ShardLink::Tell(const absl::Status& reason) {
  std::shared_ptr<Stream> stream;
  {
    MutexLock lock(&mutex_);
    if (!up_) return;
    stream = stream_;
  }
  Write(stream.get(), LostRequest(reason), /*last=*/false);
}

void ShardLink::End(const absl::Status& reason, bool tell) {
  std::shared_ptr<Stream> stream;
  {
    MutexLock lock(&mutex_);
    if (!over_.ok()) return;
    over_ = reason;
    tell = tell && up_;
    stream = stream_;
    changed_.NotifyAll();
  }
  if (stream == nullptr) return;
  if (tell) {
    Write(stream.get(), LostRequest(reason), /*last=*/true);
  } else {
    stream->context.TryCancel();
  }
}

void ShardLink::Join() {
  if (!thread_.joinable()) return;
  {
    const absl::Time deadline = absl::Now() + kFarewell;
    MutexLock lock(&mutex_);
    while (!done_ && absl::Now() < deadline) {
      changed_.WaitFor(&mutex_, deadline - absl::Now());
    }
    if (stream_ != nullptr) stream_->context.TryCancel();
  }
  thread_.join();
}

// On a broken stream a Write returns false at once.
void ShardLink::Write(Stream* stream, const v1::AttachRequest& request,
                      bool last) {
  MutexLock lock(&stream->write_mutex);
  stream->call->Write(request);
  if (last) stream->call->WritesDone();
}

// --- The link's own threads --------------------------------------------------

void ShardLink::Hold() {
  v1::AttachRequest request = options_.request;
  absl::Status end;
  bool opened = false;
  while (end.ok()) {
    auto stream = std::make_shared<Stream>();
    {
      MutexLock lock(&mutex_);
      if (!over_.ok()) break;
      stream_ = stream;
    }
    std::thread reader([&] { Read(stream.get(), request); });
    AwaitEnd(stream.get());
    reader.join();
    end = Judge(*stream);
    request.set_resume(true);
  }
  bool lost = false;
  {
    MutexLock lock(&mutex_);
    opened = opened_;
    if (over_.ok()) {
      over_ = end;
      lost = opened;
    }
    changed_.NotifyAll();
  }
  if (lost) on_lost_(end);
  MutexLock lock(&mutex_);
  done_ = true;
  changed_.NotifyAll();
}

void ShardLink::Read(Stream* stream, const v1::AttachRequest& request) {
  std::unique_ptr<AttachCall> call = stub_->Attach(&stream->context);
  AttachCall* const reads = call.get();
  {
    MutexLock lock(&stream->write_mutex);
    reads->Write(request);
    stream->call = std::move(call);
  }
  v1::AttachReply reply;
  while (reads->Read(&reply)) TakeReply(stream, reply);
  const grpc::Status status = reads->Finish();
  MutexLock lock(&mutex_);
  stream->ended = true;
  stream->status = status;
  up_ = false;
  changed_.NotifyAll();
}

void ShardLink::TakeReply(Stream* stream, const v1::AttachReply& reply) {
  if (reply.draining()) {
    if (options_.on_draining != nullptr) options_.on_draining();
    return;
  }
  if (reply.progress() != 0) {
    if (options_.on_progress != nullptr) {
      options_.on_progress(reply.progress());
    }
    return;
  }
  if (reply.complete_rows_size() > 0) {
    auto offer = reply.has_offer() ? FromProto(reply.offer()) : nullptr;
    if (offer != nullptr && options_.on_offer != nullptr) {
      options_.on_offer(std::move(offer));
    }
    if (options_.on_complete != nullptr) {
      options_.on_complete(CompleteRowsOf(reply));
    }
    return;
  }
  MutexLock lock(&mutex_);
  stream->stopping |= reply.stopping();
  if (reply.stopping() || stream->replied || stream->stranger) return;
  if (opened_ && reply.life() != life_) {
    stream->stranger = true;
    stream->context.TryCancel();
    return;
  }
  if (opened_) {
    LogInfoOf(options_.name, "the connection to ", options_.name, " is back");
  } else {
    first_reply_ = reply;
  }
  life_ = reply.life();
  stream->replied = true;
  opened_ = true;
  up_ = true;
  ++number_;
  changed_.NotifyAll();
}

bool ShardLink::overdue() const {
  return options_.clock->Now() - broken_at_ >= kResumeTime;
}

void ShardLink::AwaitEnd(Stream* stream) {
  MutexLock lock(&mutex_);
  while (!stream->ended) {
    if (stream->replied || !opened_) {
      changed_.Wait(&mutex_);
    } else {
      if (overdue()) stream->context.TryCancel();
      changed_.WaitFor(&mutex_, kPause);
    }
  }
}

absl::Status ShardLink::Judge(const Stream& stream) {
  MutexLock lock(&mutex_);
  if (!opened_) {
    const absl::Status refusal = FromGrpcStatus(stream.status);
    if (refusal.ok()) return LossReason(stream);
    return NamedAnswer(options_.name, "this coordinator", refusal);
  }
  if (stream.replied || stream.stopping) cause_ = LossReason(stream);
  if (stream.replied) broken_at_ = options_.clock->Now();
  const bool broken =
      !stream.stopping && !stream.stranger && !IsAnswered(stream.context);
  if (!broken || overdue()) return cause_;
  if (stream.replied && over_.ok()) {
    LogWarningOf(absl::StrCat("broken ", options_.name), "the connection to ",
                 options_.name, " is broken, it is tried again for ",
                 absl::FormatDuration(kResumeTime), ": ",
                 stream.status.error_message());
  }
  if (!stream.replied) changed_.WaitFor(&mutex_, kPause);
  return absl::OkStatus();
}

absl::Status ShardLink::LossReason(const Stream& stream) const {
  const std::string& message = stream.status.error_message();
  if (stream.stopping) {
    // It says by itself who stops, by the name that it knows.
    return OrderlyStop(absl::StartsWith(message, "shard ")
                           ? message
                           : absl::StrCat(options_.name, ": ", message));
  }
  return absl::UnavailableError(absl::StrCat(
      options_.name, " is lost: ",
      stream.status.ok() ? "it ended the coordinator's stream" : message));
}

}  // namespace agg
