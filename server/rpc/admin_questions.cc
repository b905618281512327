// What the admin service answers without changing anything.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/manifest_message.h"
#include "proto/protocol_version.h"
#include "proto/shard_plan.h"
#include "server/access/audit_event.h"
#include "server/base/log.h"
#include "server/base/malloc_tuning.h"
#include "server/base/utf8.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/admit_call.h"
#include "server/rpc/long_poll.h"
#include "server/rpc/raw_message.h"

namespace agg {
namespace {

// On which shards each tensor is, and how orthogonal the last round's rows
// were.
absl::StatusOr<v1::ListTensorsReply> DescribeTensors(
    const Manifest& manifest, int num_shards,
    const std::vector<double>& orthogonality) {
  const absl::StatusOr<ShardPlan> plan = MakeShardPlan(manifest, num_shards);
  if (!plan.ok()) return plan.status();
  v1::Manifest message = ToProto(manifest);
  v1::ListTensorsReply reply;
  reply.set_elements(NumElements(manifest));
  for (size_t t = 0; t < manifest.tensors.size(); ++t) {
    v1::ListTensorsReply::Entry* entry = reply.add_tensors();
    entry->mutable_tensor()->Swap(message.mutable_tensors(static_cast<int>(t)));
    entry->set_elements(NumElements(manifest.tensors[t]));
    std::vector<uint32_t> shards;
    for (int32_t slice : plan->slices_of_tensor[t]) {
      shards.push_back(static_cast<uint32_t>(plan->slices[slice].shard));
    }
    entry->set_slices(static_cast<int32_t>(shards.size()));
    std::sort(shards.begin(), shards.end());
    shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
    entry->mutable_shards()->Add(shards.begin(), shards.end());
    entry->set_orthogonality(t < orthogonality.size()
                                 ? orthogonality[t]
                                 : std::numeric_limits<double>::quiet_NaN());
  }
  return reply;
}

bool IsAfter(const RoundResult& outcome, const v1::ListRoundsRequest& request) {
  if (request.after_epoch() == 0) return true;
  return std::make_pair(outcome.epoch, outcome.round) >
         std::make_pair(uint64_t{request.after_epoch()},
                        uint64_t{request.after_round()});
}

v1::RoundRecord ToProto(const RoundRecord& record) {
  v1::RoundRecord result;
  *result.mutable_outcome() = ToProto(record.outcome);
  result.set_ended_at_seconds(
      absl::ToDoubleSeconds(record.ended_at - absl::UnixEpoch()));
  result.set_wait_seconds(absl::ToDoubleSeconds(record.wait));
  result.set_work_seconds(absl::ToDoubleSeconds(record.work));
  return result;
}

v1::AuditRecord ToProto(const AuditEvent& event) {
  v1::AuditRecord record;
  record.set_time_seconds(
      absl::ToDoubleSeconds(event.time - absl::UnixEpoch()));
  record.set_action(event.action);
  record.set_who(ValidUtf8(event.who));
  record.set_from(ValidUtf8(event.from));
  record.set_rank(event.rank);
  record.set_session(event.session);
  record.set_detail(ValidUtf8(event.detail));
  record.set_outcome(ValidUtf8(event.outcome));
  record.set_times(event.times);
  return record;
}

}  // namespace

absl::Status AdminService::Admit(const grpc::CallbackServerContext& context,
                                 absl::string_view method) const {
  return AdmitCall(*options_.gate, context, method).status();
}

grpc::ServerUnaryReactor* AdminService::ListTensors(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* reply) {
  const absl::Status admitted = Admit(*context, "agg.v1.Admin/ListTensors");
  if (!admitted.ok()) return AnswerNow<grpc::ByteBuffer>(reply, admitted);
  if (coordinator_ == nullptr) {
    return AnswerNow<grpc::ByteBuffer>(reply, not_here_);
  }
  v1::ListTensorsRequest nothing;
  const absl::Status parsed = ParseRaw(request, &nothing);
  if (!parsed.ok()) return AnswerNow<grpc::ByteBuffer>(reply, parsed);
  const absl::StatusOr<JoinResult> job = coordinator_->Observe();
  if (!job.ok()) return AnswerNow<grpc::ByteBuffer>(reply, job.status());
  absl::StatusOr<grpc::ByteBuffer> answer = absl::UnknownError("");
  {
    MutexLock lock(&describing_);
    const absl::StatusOr<v1::ListTensorsReply> tensors =
        DescribeTensors(*job->manifest, options_.self.num_shards,
                        coordinator_->TensorOrthogonality());
    if (tensors.ok()) {
      answer = RawMessage(*tensors);
    } else {
      answer = tensors.status();
    }
  }
  AskForTrim();
  return AnswerNow<grpc::ByteBuffer>(reply, std::move(answer));
}

grpc::ServerUnaryReactor* AdminService::ListRounds(
    grpc::CallbackServerContext* context, const v1::ListRoundsRequest* request,
    v1::ListRoundsReply* reply) {
  const absl::Status admitted = Admit(*context, "agg.v1.Admin/ListRounds");
  if (!admitted.ok()) return AnswerNow<v1::ListRoundsReply>(reply, admitted);
  if (coordinator_ == nullptr) {
    return AnswerNow<v1::ListRoundsReply>(reply, not_here_);
  }
  const std::vector<RoundRecord> rounds = coordinator_->Rounds();
  size_t first = 0;
  if (request->limit() > 0 &&
      rounds.size() > static_cast<size_t>(request->limit())) {
    first = rounds.size() - static_cast<size_t>(request->limit());
  }
  v1::ListRoundsReply answer;
  for (size_t i = first; i < rounds.size(); ++i) {
    if (!IsAfter(rounds[i].outcome, *request)) continue;
    *answer.add_rounds() = ToProto(rounds[i]);
  }
  return AnswerNow<v1::ListRoundsReply>(reply, answer);
}

grpc::ServerUnaryReactor* AdminService::GetVersion(
    grpc::CallbackServerContext* context, const v1::GetVersionRequest*,
    v1::GetVersionReply* reply) {
  const absl::Status admitted = Admit(*context, "agg.v1.Admin/GetVersion");
  if (!admitted.ok()) return AnswerNow<v1::GetVersionReply>(reply, admitted);
  v1::GetVersionReply answer;
  answer.set_version(options_.version);
  answer.set_protocol_version(kProtocolVersion);
  answer.set_job(options_.job.job);
  answer.set_ordinal(options_.self.ordinal);
  answer.set_num_shards(options_.self.num_shards);
  answer.set_fingerprint(options_.self.fingerprint);
  answer.set_backend(options_.self.backend);
  answer.set_log_level(std::string(LogLevelName(GetLogLevel())));
  return AnswerNow<v1::GetVersionReply>(reply, answer);
}

grpc::ServerUnaryReactor* AdminService::ListAudit(
    grpc::CallbackServerContext* context, const v1::ListAuditRequest* request,
    v1::ListAuditReply* reply) {
  const absl::Status admitted = Admit(*context, "agg.v1.Admin/ListAudit");
  if (!admitted.ok()) return AnswerNow<v1::ListAuditReply>(reply, admitted);
  const size_t limit =
      request->limit() > 0 ? static_cast<size_t>(request->limit()) : 0;
  v1::ListAuditReply answer;
  for (const AuditEvent& event : options_.gate->Events(limit)) {
    *answer.add_records() = ToProto(event);
  }
  return AnswerNow<v1::ListAuditReply>(reply, answer);
}

}  // namespace agg
