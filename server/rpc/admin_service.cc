// One method per call. Calls for the coordinator are refused on other shards,
// as those of CoordinatorService are.
#include "server/rpc/admin_service.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/manifest_message.h"
#include "proto/protocol_version.h"
#include "proto/shard_plan.h"
#include "server/base/field_error.h"
#include "server/base/log.h"
#include "server/coordinator/call_validation.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/long_poll.h"

namespace agg {
namespace {

// A line in the log per change, with the caller's address, which is all that
// the service knows about callers.
void LogCall(grpc::CallbackServerContext* context, absl::string_view what) {
  LogInfo("admin: ", what, ", asked for by ", context->peer());
}

RuleChange FromProto(const v1::SetRuleRequest& request) {
  RuleChange change;
  if (request.has_rule()) change.rule = request.rule();
  if (request.has_scope()) change.scope = request.scope();
  if (request.has_step_scale()) change.step_scale = request.step_scale();
  if (request.has_force_step_scale()) {
    change.force_step_scale = request.force_step_scale();
  }
  if (request.has_learning_rate()) {
    change.learning_rate = request.learning_rate();
  }
  if (request.has_adacons_beta()) change.adacons_beta = request.adacons_beta();
  if (request.has_adacons_rescale()) {
    change.adacons_rescale = request.adacons_rescale();
  }
  if (request.has_krum_byzantine_workers()) {
    change.krum_byzantine_workers = request.krum_byzantine_workers();
  }
  if (request.has_krum_selected()) {
    change.krum_selected = request.krum_selected();
  }
  return change;
}

absl::StatusOr<v1::SetRuleReply> ToReply(
    const absl::StatusOr<RuleChangeResult>& result) {
  if (!result.ok()) return result.status();
  v1::SetRuleReply reply;
  *reply.mutable_before() = ToProto(result->before);
  *reply.mutable_after() = ToProto(result->after);
  reply.set_first_round(result->first_round);
  return reply;
}

// Names that are longer than any rule's are not logged.
absl::Status CheckTexts(const v1::SetRuleRequest& request) {
  absl::Status status = ValidateText("rule", request.rule());
  status.Update(ValidateText("scope", request.scope()));
  status.Update(ValidateText("step_scale", request.step_scale()));
  status.Update(ValidateText("adacons_rescale", request.adacons_rescale()));
  return status;
}

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

}  // namespace

AdminService::AdminService(const AdminOptions& options,
                           Coordinator* coordinator)
    : options_(options),
      coordinator_(coordinator),
      not_here_(NotTheCoordinator(options.self, options.job)) {}

grpc::ServerUnaryReactor* AdminService::SetRule(
    grpc::CallbackServerContext* context, const v1::SetRuleRequest* request,
    v1::SetRuleReply* reply) {
  if (coordinator_ == nullptr) {
    return AnswerNow<v1::SetRuleReply>(reply, not_here_);
  }
  const absl::Status status = CheckTexts(*request);
  if (!status.ok()) return AnswerNow<v1::SetRuleReply>(reply, status);
  LogCall(context, absl::StrCat("set-rule ", request->ShortDebugString()));
  auto poll = LongPoll<v1::SetRuleReply>::Make(reply);
  auto* reactor = poll.get();
  coordinator_->SetRuleEverywhere(
      FromProto(*request),
      [poll](const absl::StatusOr<RuleChangeResult>& result) {
        poll->Answer(ToReply(result));
      });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::EvictWorker(
    grpc::CallbackServerContext* context, const v1::EvictWorkerRequest* request,
    v1::EvictWorkerReply* reply) {
  if (coordinator_ == nullptr) {
    return AnswerNow<v1::EvictWorkerReply>(reply, not_here_);
  }
  LogCall(context, absl::StrCat("evict rank ", request->rank()));
  auto poll = LongPoll<v1::EvictWorkerReply>::Make(reply);
  auto* reactor = poll.get();
  coordinator_->Evict(
      request->rank(),
      request->reason().empty() ? "by an operator" : request->reason(),
      [poll](absl::StatusOr<Eviction> eviction) {
        if (!eviction.ok()) {
          poll->Answer(eviction.status());
          return;
        }
        v1::EvictWorkerReply answer;
        answer.set_session(eviction->session);
        answer.set_client(eviction->client);
        answer.set_committed(eviction->committed);
        poll->Answer(answer);
      });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::Drain(
    grpc::CallbackServerContext* context, const v1::DrainRequest*,
    v1::DrainReply* reply) {
  if (coordinator_ == nullptr)
    return AnswerNow<v1::DrainReply>(reply, not_here_);
  if (options_.on_drain_request == nullptr) {
    return AnswerNow<v1::DrainReply>(
        reply, absl::FailedPreconditionError(
                   "this server is not a process of its own: nothing to end"));
  }
  LogCall(context, "drain");
  auto* reactor = AnswerNow<v1::DrainReply>(reply, v1::DrainReply());
  if (!drain_requested_.exchange(true)) options_.on_drain_request();
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::TakeCheckpoint(
    grpc::CallbackServerContext* context, const v1::TakeCheckpointRequest*,
    v1::TakeCheckpointReply* reply) {
  if (coordinator_ == nullptr) {
    return AnswerNow<v1::TakeCheckpointReply>(reply, not_here_);
  }
  LogCall(context, "take a checkpoint");
  auto poll = LongPoll<v1::TakeCheckpointReply>::Make(reply);
  auto* reactor = poll.get();
  coordinator_->TakeCheckpoint([poll](absl::StatusOr<TakenCheckpoint> taken) {
    if (!taken.ok()) {
      poll->Answer(taken.status());
      return;
    }
    v1::TakeCheckpointReply answer;
    answer.set_version(taken->version);
    answer.set_made(taken->made);
    answer.set_bytes(taken->num_bytes);
    poll->Answer(answer);
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::SetLogLevel(
    grpc::CallbackServerContext* context, const v1::SetLogLevelRequest* request,
    v1::SetLogLevelReply* reply) {
  const absl::Status status = ValidateText("level", request->level());
  if (!status.ok()) return AnswerNow<v1::SetLogLevelReply>(reply, status);
  LogLevel level;
  if (!ParseLogLevel(request->level(), &level)) {
    return AnswerNow<v1::SetLogLevelReply>(
        reply, FieldError("level", Quoted(request->level()),
                          "debug, info, warning, error"));
  }
  LogCall(context, absl::StrCat("log level ", request->level()));
  v1::SetLogLevelReply answer;
  answer.set_before(std::string(LogLevelName(GetLogLevel())));
  agg::SetLogLevel(level);
  return AnswerNow<v1::SetLogLevelReply>(reply, answer);
}

grpc::ServerUnaryReactor* AdminService::ListTensors(
    grpc::CallbackServerContext*, const v1::ListTensorsRequest*,
    v1::ListTensorsReply* reply) {
  if (coordinator_ == nullptr) {
    return AnswerNow<v1::ListTensorsReply>(reply, not_here_);
  }
  const absl::StatusOr<JoinResult> job = coordinator_->Observe();
  if (!job.ok()) return AnswerNow<v1::ListTensorsReply>(reply, job.status());
  return AnswerNow<v1::ListTensorsReply>(
      reply, DescribeTensors(job->manifest, options_.self.num_shards,
                             coordinator_->TensorOrthogonality()));
}

grpc::ServerUnaryReactor* AdminService::ListRounds(
    grpc::CallbackServerContext*, const v1::ListRoundsRequest* request,
    v1::ListRoundsReply* reply) {
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

grpc::ServerUnaryReactor* AdminService::GetVersion(grpc::CallbackServerContext*,
                                                   const v1::GetVersionRequest*,
                                                   v1::GetVersionReply* reply) {
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

}  // namespace agg
