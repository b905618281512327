// Attach opens a link, whose end is how a lost shard is noticed.
#include "server/rpc/remote_shard_peer.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/protocol_version.h"
#include "proto/shard_plan.h"
#include "proto/status_conversion.h"
#include "server/base/status_macros.h"
#include "server/round/phase.h"
#include "server/rpc/phase_conversion.h"
#include "server/rpc/shard_link.h"

namespace agg {

namespace {

absl::Status CoordinatorGone(const absl::Status& reason) {
  return absl::UnavailableError(
      absl::StrCat("the coordinator is gone: ", reason.message()));
}

}  // namespace

RemoteShardPeer::RemoteShardPeer(const RemoteShardOptions& options)
    : options_(options),
      stub_(v1::ShardControl::NewStub(
          MakePeerChannel(options.address, options.tls, options.token))),
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

void RemoteShardPeer::SetShards(std::vector<std::string> shards) {
  shards_ = std::move(shards);
}

absl::Status RemoteShardPeer::Named(const grpc::Status& status) const {
  return NamedAnswer(
      name(), "this coordinator",
      Explained(FromGrpcStatus(status), options_.address, options_.tls));
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
  for (const std::string& address : shards_) request.add_shards(address);
  return request;
}

ShardLinkOptions RemoteShardPeer::LinkOptions(uint64_t epoch) const {
  ShardLinkOptions options;
  options.name = name();
  options.request = FirstRequest(epoch);
  options.open_timeout = options_.attach_timeout;
  options.clock = options_.clock;
  options.on_progress = [this](uint64_t progress) { progress_ = progress; };
  if (on_draining_ != nullptr) {
    options.on_draining = [this, epoch] { on_draining_(epoch); };
  }
  if (on_complete_ != nullptr) {
    options.on_complete = [this, epoch](const std::vector<CompleteRow>& rows) {
      on_complete_(epoch, rows);
    };
  }
  if (on_offer_ != nullptr) {
    options.on_offer = [this, epoch](std::shared_ptr<const CloseOffer> offer) {
      on_offer_(epoch, std::move(offer));
    };
  }
  return options;
}

absl::StatusOr<ShardInventory> RemoteShardPeer::Attach(
    uint64_t epoch, std::function<void(absl::Status)> on_lost) {
  MutexLock attach_lock(&attach_mutex_);
  const absl::Status detached =
      absl::UnavailableError(absl::StrCat(name(), " is detached"));
  Detach(detached, /*tell=*/false);
  const auto link = std::make_shared<ShardLink>(
      stub_.get(), LinkOptions(epoch),
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
  absl::Status status;
  const absl::StatusOr<v1::AttachReply> reply = link->Open();
  if (reply.ok()) {
    absl::StatusOr<ShardInventory> inventory =
        FromProto(*reply, options_.num_shards);
    if (inventory.ok()) return inventory;
    status =
        absl::Status(inventory.status().code(),
                     absl::StrCat(name(), ": ", inventory.status().message()));
  } else {
    status = Explained(reply.status(), options_.address, options_.tls);
  }
  Detach(detached, /*tell=*/true);
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

void RemoteShardPeer::SetOnDraining(std::function<void(uint64_t)> on_draining) {
  on_draining_ = std::move(on_draining);
}

void RemoteShardPeer::SetOnComplete(OnComplete on_complete) {
  on_complete_ = std::move(on_complete);
}

void RemoteShardPeer::SetOnOffer(OnOffer on_offer) {
  on_offer_ = std::move(on_offer);
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

// The calls of an epoch, and Promise. They are plain, and repeated over a
// connection that was broken (P24): all of them are idempotent (P7).

namespace {

// Bytes of a reply that are kept: Grams are added up as they come, in the
// phases that have any.
int64_t KeptBytes(PhaseKind kind, const v1::PhaseReply& reply) {
  size_t bytes = reply.ByteSizeLong();
  if (kind == PhaseKind::kClose || kind == PhaseKind::kCompensatedGram) {
    for (const v1::SliceGram& gram : reply.grams()) {
      bytes -= gram.ByteSizeLong();
    }
  }
  return static_cast<int64_t>(bytes);
}

// Whether a disk that hangs may fail the phase alone, and not the epoch.
bool IsOfFiles(PhaseKind kind) {
  return kind == PhaseKind::kCheckpointProgress || kind == PhaseKind::kSeal;
}

// What gRPC makes of a connection that breaks under a call. UNAUTHENTICATED
// that is no answer: the call was begun with a token that was replaced since.
bool MayBeBroken(grpc::StatusCode code) {
  return code == grpc::StatusCode::UNAVAILABLE ||
         code == grpc::StatusCode::CANCELLED ||
         code == grpc::StatusCode::UNKNOWN ||
         code == grpc::StatusCode::INTERNAL ||
         code == grpc::StatusCode::UNAUTHENTICATED;
}

// A Write that fails ends the call: Finish says why.
void WriteAll(
    const Phase& phase,
    grpc::ClientReaderWriter<v1::PhaseRequest, v1::PhaseReply>* stream) {
  v1::PhaseRequest request;
  PhaseRequests requests(phase);
  bool ok = true;
  while (ok && requests.Next(&request)) {
    grpc::WriteOptions options;
    if (!request.more()) options.set_last_message();
    ok = stream->Write(request, options);
  }
}

// Until the stream's end. False: the shard has sent more than `max_bytes`.
bool ReadReplies(
    PhaseKind kind, int64_t max_bytes,
    grpc::ClientReaderWriter<v1::PhaseRequest, v1::PhaseReply>* stream,
    const GramSink& sink, PhaseResult* result) {
  int64_t num_bytes = 0;
  v1::PhaseReply reply;
  while (stream->Read(&reply)) {
    num_bytes += KeptBytes(kind, reply);
    if (num_bytes > max_bytes) return false;
    AppendReply(reply, sink, result);
  }
  return true;
}

grpc::Status TooLong(PhaseKind kind, int64_t max_bytes) {
  return grpc::Status(
      grpc::StatusCode::RESOURCE_EXHAUSTED,
      absl::StrCat("its answer to phase ", PhaseName(kind),
                   " is too long; allowed: ", max_bytes, " bytes at most"));
}

}  // namespace

absl::Status RemoteShardPeer::Refusal(const ShardLink* link) const {
  MutexLock lock(&mutex_);
  return RefusalLocked(link);
}

absl::Status RemoteShardPeer::RefusalLocked(const ShardLink* link) const {
  if (!closed_.ok()) return closed_;
  if (link != link_.get() || link == nullptr) return detached_;
  return link->over();
}

bool RemoteShardPeer::CallOnce(const ShardLink* link, absl::Duration timeout,
                               const GrpcCall& call, absl::Status* status) {
  grpc::ClientContext context;
  if (timeout != absl::InfiniteDuration()) {
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  }
  {
    MutexLock lock(&mutex_);
    calls_.insert(&context);
    // CancelCalls may have come since the caller has looked: it has not seen
    // this call, which may have no deadline.
    const absl::Status refusal =
        link == nullptr ? closed_ : RefusalLocked(link);
    if (!refusal.ok()) context.TryCancel();
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
    AGG_RETURN_IF_ERROR(Refusal(link.get()));
    const absl::StatusOr<int64_t> stream = link->AwaitUp();
    // Ended by this peer, it has its own word for that.
    AGG_RETURN_IF_ERROR(Refusal(link.get()));
    if (!stream.ok()) return stream.status();
    absl::Status status;
    const bool broken = CallOnce(link.get(), timeout, call, &status);
    if (status.ok()) return status;
    if (broken && link->AwaitNext(*stream)) continue;
    // A cancelled call says less than why it was cancelled.
    absl::Status refusal = Refusal(link.get());
    return refusal.ok() ? status : refusal;
  }
}

absl::StatusOr<uint64_t> RemoteShardPeer::Promise() {
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok()) return closed_;
  }
  v1::ProbeReply reply;
  absl::Status status;
  CallOnce(
      /*link=*/nullptr, options_.attach_timeout,
      [&](grpc::ClientContext* context) {
        return stub_->Probe(context, v1::ProbeRequest(), &reply);
      },
      &status);
  if (!status.ok()) return status;
  return reply.promise();
}

absl::Duration RemoteShardPeer::TimeoutOf(PhaseKind kind) const {
  if (IsOfFiles(kind)) return options_.file_timeout;
  const bool takes_long =
      kind == PhaseKind::kSetManifest || kind == PhaseKind::kReserveRow;
  return IsOfJob(kind) && !takes_long ? options_.call_timeout
                                      : absl::InfiniteDuration();
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
      Call(TimeoutOf(phase.kind), [&](grpc::ClientContext* context) {
        result = PhaseResult();
        size_t num_read = 0;
        const GramSink rest = [&](SliceGram gram) {
          if (++num_read <= num_sunk) return;
          num_sunk = num_read;
          sink(std::move(gram));
        };
        // Headers, the last message and the half-close go out together: a
        // phase of one message costs one system call and not three.
        context->set_initial_metadata_corked(true);
        auto stream = stub_->RunPhase(context);
        WriteAll(phase, stream.get());
        if (ReadReplies(phase.kind, options_.max_reply_bytes, stream.get(),
                        rest, &result)) {
          return stream->Finish();
        }
        context->TryCancel();
        stream->Finish();
        return TooLong(phase.kind, options_.max_reply_bytes);
      });
  if (absl::IsDeadlineExceeded(status) && IsOfFiles(phase.kind)) {
    return absl::DeadlineExceededError(
        absl::StrCat(name(), " has not answered phase ", PhaseName(phase.kind),
                     " within ", absl::FormatDuration(options_.file_timeout),
                     " (phase_timeout_seconds)"));
  }
  AGG_RETURN_IF_ERROR(status);
  if (result.job_manifest == nullptr) return result;
  const absl::Status valid = ValidateManifest(*result.job_manifest);
  if (valid.ok()) return result;
  return absl::Status(valid.code(),
                      absl::StrCat(name(), ": ", valid.message()));
}

}  // namespace agg
