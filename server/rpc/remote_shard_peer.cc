// Attach opens a link, whose end is how a lost shard is noticed. The other
// calls are plain, and repeated over a connection that was broken (P24): all of
// them are idempotent (P7).
#include "server/rpc/remote_shard_peer.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/manifest_message.h"
#include "proto/protocol_version.h"
#include "proto/status_conversion.h"
#include "server/rpc/broken_connection.h"
#include "server/rpc/peer_channel.h"
#include "server/rpc/phase_conversion.h"

namespace agg {
namespace {

// What gRPC makes of a connection that breaks under a call.
bool MayBeBroken(grpc::StatusCode code) {
  return code == grpc::StatusCode::UNAVAILABLE ||
         code == grpc::StatusCode::CANCELLED ||
         code == grpc::StatusCode::UNKNOWN ||
         code == grpc::StatusCode::INTERNAL;
}

absl::Status CoordinatorGone(const absl::Status& reason) {
  return absl::UnavailableError(
      absl::StrCat("the coordinator is gone: ", reason.message()));
}

}  // namespace

RemoteShardPeer::RemoteShardPeer(const RemoteShardOptions& options)
    : options_(options),
      stub_(v1::ShardControl::NewStub(MakePeerChannel(options.address))),
      detached_(absl::UnavailableError(
          absl::StrCat(name(), " has not been attached"))) {}

RemoteShardPeer::~RemoteShardPeer() {
  const absl::Status reason = absl::CancelledError("shutting down");
  Close(reason);
  MutexLock lock(&attach_mutex_);
  Detach(reason, /*tell=*/true);
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

// --- The epoch ---------------------------------------------------------------

v1::AttachRequest RemoteShardPeer::FirstRequest(uint64_t epoch) const {
  v1::AttachRequest request;
  request.set_epoch(epoch);
  request.set_ordinal(options_.ordinal);
  request.set_num_shards(options_.num_shards);
  request.set_config_fingerprint(options_.fingerprint);
  request.set_protocol_version(kProtocolVersion);
  request.set_coordinator_life(options_.coordinator_life);
  request.set_coordinator(options_.coordinator);
  return request;
}

absl::StatusOr<ShardInventory> RemoteShardPeer::Attach(
    uint64_t epoch, std::function<void(absl::Status)> on_lost) {
  MutexLock attach_lock(&attach_mutex_);
  const absl::Status detached =
      absl::UnavailableError(absl::StrCat(name(), " is detached"));
  Detach(detached, /*tell=*/false);
  const auto link = std::make_shared<ShardLink>(
      stub_.get(),
      ShardLinkOptions{name(), FirstRequest(epoch), options_.attach_timeout,
                       options_.clock},
      [this, on_lost = std::move(on_lost)](const absl::Status& reason) {
        {
          MutexLock lock(&mutex_);
          CancelCalls();
        }
        if (on_lost != nullptr) on_lost(reason);
      });
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok()) return closed_;
    link_ = link;
  }
  absl::Status status = link->Open();
  if (status.ok()) return ShardInventory();
  Detach(detached, /*tell=*/false);
  MutexLock lock(&mutex_);
  return closed_.ok() ? status : closed_;
}

void RemoteShardPeer::Detach(const absl::Status& reason, bool tell) {
  std::shared_ptr<ShardLink> link;
  {
    MutexLock lock(&mutex_);
    if (link_ != nullptr) detached_ = reason;
    link = std::move(link_);
    link_ = nullptr;
    CancelCalls();
  }
  if (link == nullptr) return;
  link->End(tell ? CoordinatorGone(reason) : reason, tell);
  link->Join();
}

void RemoteShardPeer::LetGo() {
  MutexLock lock(&attach_mutex_);
  Detach(absl::UnavailableError(absl::StrCat("it lets go of ", name())),
         /*tell=*/true);
}

std::shared_ptr<ShardLink> RemoteShardPeer::link() const {
  MutexLock lock(&mutex_);
  return link_;
}

void RemoteShardPeer::CancelCalls() {
  for (grpc::ClientContext* context : calls_) context->TryCancel();
}

void RemoteShardPeer::Lose(uint64_t epoch, const absl::Status& reason) {
  const std::shared_ptr<ShardLink> link = this->link();
  if (link == nullptr || (epoch != 0 && epoch != link->epoch())) return;
  link->Tell(reason);
}

void RemoteShardPeer::GiveUp(uint64_t epoch, const absl::Status& reason) {
  const std::shared_ptr<ShardLink> link = this->link();
  if (link == nullptr || link->epoch() != epoch) return;
  link->End(reason, /*tell=*/false);
  MutexLock lock(&mutex_);
  CancelCalls();
}

void RemoteShardPeer::Close(const absl::Status& reason) {
  std::shared_ptr<ShardLink> link;
  {
    MutexLock lock(&mutex_);
    if (closed_.ok()) closed_ = reason;
    link = link_;
    CancelCalls();
  }
  if (link != nullptr) link->End(CoordinatorGone(reason), /*tell=*/true);
}

// --- Calls -------------------------------------------------------------------

absl::Status RemoteShardPeer::Refusal(const ShardLink* link) const {
  MutexLock lock(&mutex_);
  if (!closed_.ok()) return closed_;
  if (link != link_.get() || link == nullptr) return detached_;
  return link->over();
}

bool RemoteShardPeer::CallOnce(absl::Duration timeout, const GrpcCall& call,
                               absl::Status* status) {
  grpc::ClientContext context;
  if (timeout != absl::InfiniteDuration()) {
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  }
  {
    MutexLock lock(&mutex_);
    calls_.insert(&context);
  }
  const grpc::Status answer = call(&context);
  {
    MutexLock lock(&mutex_);
    calls_.erase(&context);
  }
  *status = Named(answer);
  return MayBeBroken(answer.error_code()) && !IsAnswered(context);
}

absl::Status RemoteShardPeer::Call(absl::Duration timeout,
                                   const GrpcCall& call) {
  const std::shared_ptr<ShardLink> link = this->link();
  for (;;) {
    absl::Status refusal = Refusal(link.get());
    if (!refusal.ok()) return refusal;
    const absl::StatusOr<int64_t> stream = link->AwaitUp();
    // Ended by this peer, it has its own word for that.
    refusal = Refusal(link.get());
    if (!refusal.ok()) return refusal;
    if (!stream.ok()) return stream.status();
    absl::Status status;
    const bool broken = CallOnce(timeout, call, &status);
    if (status.ok()) return status;
    if (broken && link->AwaitNext(*stream)) continue;
    // A cancelled call says less than why it was cancelled.
    refusal = Refusal(link.get());
    return refusal.ok() ? status : refusal;
  }
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
  // A repeat has the same Grams in the same order: those that the sink has
  // already are left out.
  size_t num_sunk = 0;
  const absl::Status status =
      Call(absl::InfiniteDuration(), [&](grpc::ClientContext* context) {
        result = PhaseResult();
        size_t num_read = 0;
        const GramSink rest = [&](SliceGram gram) {
          if (++num_read <= num_sunk) return;
          num_sunk = num_read;
          sink(std::move(gram));
        };
        auto stream = stub_->RunPhase(context);
        v1::PhaseRequest request;
        PhaseRequests requests(phase);
        // A Write that fails ends the call: Finish says why.
        while (requests.Next(&request) && stream->Write(request)) {
        }
        stream->WritesDone();
        v1::PhaseReply reply;
        while (stream->Read(&reply)) AppendReply(reply, rest, &result);
        return stream->Finish();
      });
  if (!status.ok()) return status;
  return result;
}

}  // namespace agg
