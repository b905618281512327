// Hands each call to the engine, on threads that may wait.
#include <utility>

#include "absl/status/statusor.h"
#include "proto/manifest_message.h"
#include "proto/shard_plan.h"
#include "proto/shared_manifest.h"
#include "server/base/malloc_tuning.h"
#include "server/coordinator/call_validation.h"
#include "server/round/recovery.h"
#include "server/rpc/admit_call.h"
#include "server/rpc/broken_connection.h"
#include "server/rpc/inventory_conversion.h"
#include "server/rpc/long_poll.h"
#include "server/rpc/phase_stream.h"
#include "server/rpc/raw_message.h"
#include "server/rpc/refused_call.h"
#include "server/rpc/session_conversion.h"
#include "server/rpc/shard_control_service.h"

namespace agg {
namespace {

// The answer of a call that returns nothing but its status.
template <typename Reply>
absl::StatusOr<Reply> EmptyReply(const absl::Status& status) {
  if (!status.ok()) return status;
  return Reply();
}

}  // namespace

absl::Status ShardControlService::Admit(grpc::CallbackServerContext* context,
                                        absl::string_view method) const {
  MarkAnswered(context);
  return AdmitCall(*gate_, *context, method).status();
}

grpc::ServerUnaryReactor* ShardControlService::SetManifest(
    grpc::CallbackServerContext* context, const v1::SetManifestRequest* request,
    v1::SetManifestReply* reply) {
  const absl::Status admitted =
      Admit(context, "agg.v1.ShardControl/SetManifest");
  if (!admitted.ok()) return AnswerNow<v1::SetManifestReply>(reply, admitted);
  auto poll = LongPoll<v1::SetManifestReply>::Make(reply);
  auto* reactor = poll.get();
  const v1::SetManifestRequest taken = TakeMessage(request);
  control_.Run([this, poll, epoch = taken.epoch(),
                forget = !taken.has_manifest(),
                manifest = SharedManifest(FromProto(taken.manifest()))] {
    const absl::Status status = forget ? engine_->ForgetManifest(epoch)
                                       : engine_->SetManifest(epoch, *manifest);
    AskForTrim();
    poll->Answer(EmptyReply<v1::SetManifestReply>(status));
  });
  return reactor;
}

grpc::ServerUnaryReactor* ShardControlService::ReserveRow(
    grpc::CallbackServerContext* context, const v1::ReserveRowRequest* request,
    v1::ReserveRowReply* reply) {
  const absl::Status admitted =
      Admit(context, "agg.v1.ShardControl/ReserveRow");
  if (!admitted.ok()) return AnswerNow<v1::ReserveRowReply>(reply, admitted);
  auto poll = LongPoll<v1::ReserveRowReply>::Make(reply);
  auto* reactor = poll.get();
  memory_.Run([this, poll, epoch = request->epoch(), rank = request->rank(),
               session = request->session()] {
    // A caller that repeats itself must not make a queue of allocations.
    if (poll->answered()) return;
    poll->Answer(EmptyReply<v1::ReserveRowReply>(
        engine_->ReserveRow(epoch, rank, session)));
  });
  return reactor;
}

grpc::ServerUnaryReactor* ShardControlService::SetSession(
    grpc::CallbackServerContext* context, const v1::SetSessionRequest* request,
    v1::SetSessionReply* reply) {
  const absl::Status admitted =
      Admit(context, "agg.v1.ShardControl/SetSession");
  if (!admitted.ok()) return AnswerNow<v1::SetSessionReply>(reply, admitted);
  absl::Status status =
      ValidateText("reason", request->reason(), kMaxReasonBytes);
  if (status.ok()) status = ValidateText("client", request->client());
  if (status.ok()) status = ValidateText("identity", request->identity());
  if (!status.ok()) return AnswerNow<v1::SetSessionReply>(reply, status);
  auto poll = LongPoll<v1::SetSessionReply>::Make(reply);
  auto* reactor = poll.get();
  control_.Run(
      [this, poll, epoch = request->epoch(), change = FromProto(*request)] {
        const absl::Status status = engine_->SetSession(epoch, change);
        reports_->Flush();  // the round may wait for fewer rows now
        poll->Answer(EmptyReply<v1::SetSessionReply>(status));
      });
  return reactor;
}

grpc::ServerUnaryReactor* ShardControlService::Probe(
    grpc::CallbackServerContext* context, const v1::ProbeRequest*,
    v1::ProbeReply* reply) {
  const absl::Status admitted = Admit(context, "agg.v1.ShardControl/Probe");
  if (!admitted.ok()) return AnswerNow<v1::ProbeReply>(reply, admitted);
  const absl::StatusOr<uint64_t> promise = engine_->Promise();
  if (!promise.ok()) return AnswerNow<v1::ProbeReply>(reply, promise.status());
  v1::ProbeReply answer;
  answer.set_promise(*promise);
  return AnswerNow<v1::ProbeReply>(reply, answer);
}

grpc::ServerUnaryReactor* ShardControlService::GetManifest(
    grpc::CallbackServerContext* context, const v1::GetManifestRequest* request,
    v1::Manifest* reply) {
  const absl::Status admitted =
      Admit(context, "agg.v1.ShardControl/GetManifest");
  if (!admitted.ok()) return AnswerNow<v1::Manifest>(reply, admitted);
  auto poll = LongPoll<v1::Manifest>::Make(reply);
  auto* reactor = poll.get();
  control_.Run([this, poll, epoch = request->epoch()] {
    const absl::StatusOr<Manifest> manifest = engine_->GetManifest(epoch);
    if (manifest.ok()) {
      poll->Answer(ToProto(*manifest));
    } else {
      poll->Answer(manifest.status());
    }
  });
  return reactor;
}

grpc::ServerUnaryReactor* ShardControlService::SetFacts(
    grpc::CallbackServerContext* context, const v1::SetFactsRequest* request,
    v1::SetFactsReply* reply) {
  const absl::Status admitted = Admit(context, "agg.v1.ShardControl/SetFacts");
  if (!admitted.ok()) return AnswerNow<v1::SetFactsReply>(reply, admitted);
  const absl::StatusOr<JobFacts> facts = FromProto(request->facts());
  if (!facts.ok()) return AnswerNow<v1::SetFactsReply>(reply, facts.status());
  auto poll = LongPoll<v1::SetFactsReply>::Make(reply);
  auto* reactor = poll.get();
  control_.Run([this, poll, epoch = request->epoch(), facts = *facts] {
    poll->Answer(
        EmptyReply<v1::SetFactsReply>(engine_->SetFacts(epoch, facts)));
  });
  return reactor;
}

grpc::ServerBidiReactor<v1::PhaseRequest, v1::PhaseReply>*
ShardControlService::RunPhase(grpc::CallbackServerContext* context) {
  const absl::Status admitted = Admit(context, "agg.v1.ShardControl/RunPhase");
  if (!admitted.ok()) {
    return new RefusedCall<
        grpc::ServerBidiReactor<v1::PhaseRequest, v1::PhaseReply>>(admitted);
  }
  return PhaseStream::Start(engine_, {&compute_, &files_});
}

grpc::ServerReadReactor<v1::CopyFrame>* ShardControlService::Replicate(
    grpc::CallbackServerContext* context, v1::ReplicateReply*) {
  const absl::Status admitted = Admit(context, "agg.v1.ShardControl/Replicate");
  if (!admitted.ok()) {
    return new RefusedCall<grpc::ServerReadReactor<v1::CopyFrame>>(admitted);
  }
  return copies_.Replicate();
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ShardControlService::Fetch(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  const absl::Status admitted = Admit(context, "agg.v1.ShardControl/Fetch");
  if (!admitted.ok()) {
    return new RefusedCall<grpc::ServerWriteReactor<grpc::ByteBuffer>>(
        admitted);
  }
  return copies_.Fetch(context, *request);
}

}  // namespace agg
