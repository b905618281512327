// Attach is a stream that one thread holds open: its end is how a lost shard
// is noticed. The other calls are plain.
#include "server/rpc/remote_shard_peer.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/manifest_message.h"
#include "proto/protocol_version.h"
#include "proto/status_conversion.h"
#include "server/round/orderly_stop.h"
#include "server/rpc/peer_channel.h"
#include "server/rpc/phase_conversion.h"

namespace agg {
using AttachCall = grpc::ClientReaderWriter<v1::AttachRequest, v1::AttachReply>;

// Its fields are guarded by the peer's mutex_, except as said.
struct RemoteShardPeer::Link {
  grpc::ClientContext context;  // TryCancel may be called at any time
  v1::AttachRequest request;    // constant
  std::function<void(absl::Status)> on_lost;  // constant
  std::unique_ptr<AttachCall> call;  // set once, used by the thread and Lose
  Mutex write_mutex;                 // one Write at a time
  bool replied = false;
  bool stopping = false;  // the shard says that it stops in good order
  bool detached = false;  // ended by this side: no on_lost
  bool ended = false;
  grpc::Status status;  // once ended
};

RemoteShardPeer::RemoteShardPeer(const RemoteShardOptions& options)
    : options_(options),
      stub_(v1::ShardControl::NewStub(MakePeerChannel(options.address))),
      lost_(absl::UnavailableError(
          absl::StrCat(name(), " has not been attached"))) {}

RemoteShardPeer::~RemoteShardPeer() {
  Close(absl::CancelledError("shutting down"));
  MutexLock lock(&attach_mutex_);
  Detach();
}

std::string RemoteShardPeer::name() const {
  return absl::StrCat("shard ", options_.ordinal, " (", options_.address, ")");
}

absl::Status RemoteShardPeer::Named(const grpc::Status& status) const {
  const absl::Status converted = FromGrpcStatus(status);
  if (converted.ok()) return converted;
  return absl::Status(converted.code(),
                      absl::StrCat(name(), ": ", converted.message()));
}

absl::Status RemoteShardPeer::Attach(
    uint64_t epoch, std::function<void(absl::Status)> on_lost) {
  MutexLock attach_lock(&attach_mutex_);
  Detach();
  auto link = std::make_shared<Link>();
  link->request.set_epoch(epoch);
  link->request.set_ordinal(options_.ordinal);
  link->request.set_num_shards(options_.num_shards);
  link->request.set_config_fingerprint(options_.fingerprint);
  link->request.set_protocol_version(kProtocolVersion);
  link->request.set_coordinator_life(options_.coordinator_life);
  link->request.set_coordinator(options_.coordinator);
  link->on_lost = std::move(on_lost);
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok()) return closed_;
    link_ = link;
  }
  thread_ = std::thread([this, link] { HoldStream(link); });
  const absl::Status status = AwaitReply(link);
  if (!status.ok()) Detach();
  return status;
}

absl::Status RemoteShardPeer::AwaitReply(const std::shared_ptr<Link>& link) {
  const absl::Time deadline = absl::Now() + options_.attach_timeout;
  MutexLock lock(&mutex_);
  while (!link->replied && !link->ended && absl::Now() < deadline) {
    changed_.WaitFor(&mutex_, deadline - absl::Now());
  }
  if (link->replied) return absl::OkStatus();
  if (!closed_.ok()) return closed_;
  if (link->ended) return Named(link->status);
  return absl::UnavailableError(
      absl::StrCat(name(), " did not answer within ",
                   absl::FormatDuration(options_.attach_timeout)));
}

void RemoteShardPeer::HoldStream(const std::shared_ptr<Link>& link) {
  std::unique_ptr<AttachCall> call = stub_->Attach(&link->context);
  AttachCall* const stream = call.get();
  {
    MutexLock write_lock(&link->write_mutex);
    stream->Write(link->request);
    MutexLock lock(&mutex_);
    link->call = std::move(call);
  }
  v1::AttachReply reply;
  while (stream->Read(&reply)) {
    MutexLock lock(&mutex_);
    link->stopping |= reply.stopping();
    if (link->replied || link->detached || reply.stopping()) continue;
    link->replied = true;
    lost_ = absl::OkStatus();
    changed_.NotifyAll();
  }
  const grpc::Status status = stream->Finish();
  absl::Status reason;
  bool lost;
  {
    MutexLock lock(&mutex_);
    reason = LossReason(status, link->stopping);
    link->ended = true;
    link->status = status;
    lost = link->replied && !link->detached;
    if (lost) {
      lost_ = reason;
      for (grpc::ClientContext* context : calls_) context->TryCancel();
    }
    changed_.NotifyAll();
  }
  if (lost && link->on_lost != nullptr) link->on_lost(reason);
}

absl::Status RemoteShardPeer::LossReason(const grpc::Status& status,
                                         bool stopping) const {
  if (stopping) {
    // It says by itself who stops, by the name that it knows.
    return OrderlyStop(
        absl::StartsWith(status.error_message(), "shard ")
            ? status.error_message()
            : absl::StrCat(name(), ": ", status.error_message()));
  }
  return absl::UnavailableError(
      absl::StrCat(name(), " is lost: ",
                   status.ok() ? "it ended the coordinator's stream"
                               : status.error_message()));
}

void RemoteShardPeer::Detach() {
  {
    MutexLock lock(&mutex_);
    if (link_ != nullptr) {
      link_->detached = true;
      link_->context.TryCancel();
      link_ = nullptr;
    }
    if (lost_.ok()) {
      lost_ = absl::UnavailableError(absl::StrCat(name(), " is detached"));
    }
    for (grpc::ClientContext* context : calls_) context->TryCancel();
  }
  if (thread_.joinable()) thread_.join();
}

void RemoteShardPeer::LetGo() {
  MutexLock lock(&attach_mutex_);
  Detach();
}

void RemoteShardPeer::Lose(uint64_t epoch, const absl::Status& reason) {
  std::shared_ptr<Link> link;
  {
    MutexLock lock(&mutex_);
    link = link_;
    if (link == nullptr || !link->replied || link->ended) return;
    if (epoch != 0 && epoch != link->request.epoch()) return;
  }
  v1::AttachRequest request;
  request.set_epoch(link->request.epoch());
  request.set_lost(std::string(reason.message()));
  MutexLock write_lock(&link->write_mutex);
  link->call->Write(request);  // on a broken stream it returns false at once
}

void RemoteShardPeer::GiveUp(uint64_t epoch, const absl::Status& reason) {
  MutexLock lock(&mutex_);
  if (link_ == nullptr || link_->request.epoch() != epoch) return;
  link_->detached = true;
  lost_ = reason;
  link_->context.TryCancel();
  for (grpc::ClientContext* context : calls_) context->TryCancel();
}

void RemoteShardPeer::Close(const absl::Status& reason) {
  MutexLock lock(&mutex_);
  if (closed_.ok()) closed_ = reason;
  if (link_ != nullptr) {
    link_->detached = true;
    link_->context.TryCancel();
  }
  for (grpc::ClientContext* context : calls_) context->TryCancel();
}

absl::Status RemoteShardPeer::Call(
    absl::Duration timeout,
    const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  grpc::ClientContext context;
  if (timeout != absl::InfiniteDuration()) {
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  }
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok()) return closed_;
    if (!lost_.ok()) return lost_;
    calls_.insert(&context);
  }
  const grpc::Status status = call(&context);
  MutexLock lock(&mutex_);
  calls_.erase(&context);
  if (status.ok()) return absl::OkStatus();
  // A cancelled call says less than why it was cancelled.
  if (!closed_.ok()) return closed_;
  if (!lost_.ok()) return lost_;
  return Named(status);
}

absl::Status RemoteShardPeer::Send(const v1::SetManifestRequest& request,
                                   absl::Duration timeout) {
  return Call(timeout, [&](grpc::ClientContext* context) {
    v1::SetManifestReply reply;
    return stub_->SetManifest(context, request, &reply);
  });
}

absl::Status RemoteShardPeer::SetManifest(uint64_t epoch,
                                          const Manifest& manifest) {
  v1::SetManifestRequest request;
  request.set_epoch(epoch);
  *request.mutable_manifest() = ToProto(manifest);
  return Send(request, absl::InfiniteDuration());
}

absl::Status RemoteShardPeer::ForgetManifest(uint64_t epoch) {
  v1::SetManifestRequest request;
  request.set_epoch(epoch);
  return Send(request, options_.call_timeout);
}

absl::Status RemoteShardPeer::ReserveRow(uint64_t epoch, int32_t rank) {
  v1::ReserveRowRequest request;
  request.set_epoch(epoch);
  request.set_rank(rank);
  return Call(absl::InfiniteDuration(), [&](grpc::ClientContext* context) {
    v1::ReserveRowReply reply;
    const grpc::Status status = stub_->ReserveRow(context, request, &reply);
    // An older release of this protocol_version: its SetSession allocates.
    return status.error_code() == grpc::StatusCode::UNIMPLEMENTED
               ? grpc::Status::OK
               : status;
  });
}

absl::Status RemoteShardPeer::SetSession(uint64_t epoch,
                                         const SessionChange& change) {
  const v1::SetSessionRequest request = ToProto(epoch, change);
  return Call(options_.call_timeout, [&](grpc::ClientContext* context) {
    v1::SetSessionReply reply;
    return stub_->SetSession(context, request, &reply);
  });
}

absl::StatusOr<PhaseResult> RemoteShardPeer::RunPhase(const Phase& phase) {
  GramList grams;
  absl::StatusOr<PhaseResult> result = StreamPhase(
      phase, [&](SliceGram gram) { grams.push_back(std::move(gram)); });
  if (result.ok()) result->grams = std::move(grams);
  return result;
}

absl::StatusOr<PhaseResult> RemoteShardPeer::StreamPhase(const Phase& phase,
                                                         const GramSink& sink) {
  PhaseResult result;
  const absl::Status status =
      Call(absl::InfiniteDuration(), [&](grpc::ClientContext* context) {
        auto stream = stub_->RunPhase(context);
        v1::PhaseRequest request;
        PhaseRequests requests(phase);
        // A Write that fails ends the call: Finish says why.
        while (requests.Next(&request) && stream->Write(request)) {
        }
        stream->WritesDone();
        v1::PhaseReply reply;
        while (stream->Read(&reply)) AppendReply(reply, sink, &result);
        return stream->Finish();
      });
  if (!status.ok()) return status;
  return result;
}

}  // namespace agg
