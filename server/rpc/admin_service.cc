// One method per call, first those that change nothing. Calls for the
// coordinator are refused on other shards, as those of CoordinatorService are.
#include "server/rpc/admin_service.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/manifest_message.h"
#include "proto/protocol_version.h"
#include "proto/shard_plan.h"
#include "server/access/audit_trail.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"
#include "server/base/log.h"
#include "server/base/process_memory.h"
#include "server/base/status_macros.h"
#include "server/base/utf8.h"
#include "server/coordinator/coordinator_types.h"
#include "server/rpc/admit_call.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/long_poll.h"
#include "server/rpc/raw_message.h"

namespace agg {

namespace {

// A line in the log per change, when it is asked for; what came of it is
// audited.
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
  if (request.has_adacons_unsort()) {
    change.adacons_unsort = request.adacons_unsort();
  }
  if (request.has_krum_byzantine_workers()) {
    change.krum_byzantine_workers = request.krum_byzantine_workers();
  }
  if (request.has_krum_selected()) {
    change.krum_selected = request.krum_selected();
  }
  return change;
}

v1::SetRuleReply ToReply(const RuleChangeResult& result) {
  v1::SetRuleReply reply;
  *reply.mutable_before() = ToProto(result.before);
  *reply.mutable_after() = ToProto(result.after);
  reply.set_first_round(result.first_round);
  return reply;
}

v1::EvictWorkerReply ToReply(const Eviction& eviction) {
  v1::EvictWorkerReply reply;
  reply.set_session(eviction.session);
  reply.set_client(eviction.client);
  reply.set_committed(eviction.committed);
  return reply;
}

v1::TakeCheckpointReply ToReply(const TakenCheckpoint& taken) {
  v1::TakeCheckpointReply reply;
  reply.set_version(taken.version);
  reply.set_made(taken.made);
  reply.set_bytes(taken.num_bytes);
  return reply;
}

v1::ResumeReply ToReply(const ResumeResult& resumed) {
  v1::ResumeReply reply;
  reply.set_version(resumed.version);
  reply.set_ended(resumed.ended);
  return reply;
}

// Of those that a reply has; the newest are what anybody asks about.
constexpr size_t kMaxFound = 64;
constexpr size_t kMaxMissingBytes = 1000;

v1::RestoreReply ToReply(const RestoreResult& result) {
  v1::RestoreReply reply;
  for (const FoundCheckpoint& found : result.found) {
    if (reply.found_size() >= static_cast<int>(kMaxFound)) break;
    v1::RestoreReply::Found* const out = reply.add_found();
    out->set_made(found.id.made);
    out->set_version(found.id.version);
    out->set_missing(ValidUtf8(found.missing.substr(0, kMaxMissingBytes)));
  }
  reply.set_text(result.text);
  return reply;
}

// Names that are longer than any rule's are not logged.
absl::Status CheckTexts(const v1::SetRuleRequest& request) {
  absl::Status status = ValidateText("rule", request.rule());
  status.Update(ValidateText("scope", request.scope()));
  status.Update(ValidateText("step_scale", request.step_scale()));
  status.Update(ValidateText("adacons_rescale", request.adacons_rescale()));
  status.Update(ValidateText("adacons_unsort", request.adacons_unsort()));
  return status;
}

}  // namespace

AdminService::AdminService(const AdminOptions& options,
                           Coordinator* coordinator)
    : CoordinatorCalls(options.self, options.job, coordinator, options.gate),
      options_(options) {}

// A call that changes something: admitted, logged, audited when its outcome is
// known, and answered, each exactly once.
template <class Reply>
class AdminService::Change {
 public:
  // `action`: the audit's word for it.
  Change(const AdminService* service, grpc::CallbackServerContext* context,
         absl::string_view method, std::string action, Reply* reply)
      : service_(service),
        context_(context),
        action_(std::move(action)),
        caller_(AdmitCall(*service->gate_, *context, method)),
        reply_(reply) {}

  // Why the call ends before it changes anything: it is not admitted, or `here`
  // is false, which says that the coordinator is not.
  absl::Status Check(bool here) const {
    if (!caller_.ok()) return caller_.status();
    return here ? absl::OkStatus() : service_->not_here_;
  }
  // Answers a call that ends now. A caller who was not admitted is audited
  // where that was found.
  grpc::ServerUnaryReactor* End(absl::StatusOr<Reply> answer,
                                const std::string& detail = "") const {
    if (caller_.ok()) Audit(detail, -1)(answer.status());
    return AnswerNow<Reply>(reply_, std::move(answer));
  }
  // Says in the log who asks for what. Returns what answers the call, with
  // ToReply of its result, and audits it with `detail` and `rank` then.
  template <class Result>
  std::function<void(absl::StatusOr<Result>)> Begin(const std::string& what,
                                                    const std::string& detail,
                                                    int32_t rank = -1) {
    LogCall(context_, what);
    return Answer<Result>(Audit(detail, rank));
  }
  // The same for what changes nothing after all.
  template <class Result>
  std::function<void(absl::StatusOr<Result>)> BeginLook() {
    return Answer<Result>([](const absl::Status&) {});
  }
  // REQUIRES: Begin or BeginLook was called.
  grpc::ServerUnaryReactor* reactor() const {
    AGG_DCHECK(reactor_ != nullptr);
    return reactor_;
  }

 private:
  using Auditor = std::function<void(const absl::Status&)>;

  Auditor Audit(const std::string& detail, int32_t rank) const {
    return [gate = service_->gate_, caller = *caller_, action = action_, detail,
            rank](const absl::Status& status) {
      AuditEvent event;
      event.action = action;
      event.detail = detail;
      event.rank = rank;
      gate->NoteDone(caller, std::move(event), status);
    };
  }

  template <class Result>
  std::function<void(absl::StatusOr<Result>)> Answer(Auditor audit) {
    auto poll = LongPoll<Reply>::Make(reply_);
    reactor_ = poll.get();
    return [poll, audit](const absl::StatusOr<Result>& result) {
      audit(result.status());
      poll->AnswerAs(result, [](const Result& r) { return ToReply(r); });
    };
  }

  const AdminService* const service_;
  grpc::CallbackServerContext* const context_;
  const std::string action_;
  const absl::StatusOr<Caller> caller_;
  Reply* const reply_;
  grpc::ServerUnaryReactor* reactor_ = nullptr;
};

grpc::ServerUnaryReactor* AdminService::SetRule(
    grpc::CallbackServerContext* context, const v1::SetRuleRequest* request,
    v1::SetRuleReply* reply) {
  Change call(this, context, "agg.v1.Admin/SetRule", "set_rule", reply);
  absl::Status status = call.Check(coordinator_ != nullptr);
  if (!status.ok()) return call.End(status);
  v1::SetRuleRequest change = TakeMessage(request);
  change.DiscardUnknownFields();
  status = CheckTexts(change);
  if (!status.ok()) return call.End(status);
  const std::string what = change.ShortDebugString();
  coordinator_->SetRuleEverywhere(
      FromProto(change),
      call.Begin<RuleChangeResult>(absl::StrCat("set-rule ", what), what));
  return call.reactor();
}

grpc::ServerUnaryReactor* AdminService::EvictWorker(
    grpc::CallbackServerContext* context, const v1::EvictWorkerRequest* request,
    v1::EvictWorkerReply* reply) {
  Change call(this, context, "agg.v1.Admin/EvictWorker", "evict", reply);
  const absl::Status status = call.Check(coordinator_ != nullptr);
  if (!status.ok()) return call.End(status);
  const v1::EvictWorkerRequest evicted = TakeMessage(request);
  coordinator_->Evict(
      evicted.rank(),
      evicted.reason().empty() ? "by an operator" : evicted.reason(),
      call.Begin<Eviction>(absl::StrCat("evict rank ", evicted.rank()),
                           evicted.reason(), evicted.rank()));
  return call.reactor();
}

grpc::ServerUnaryReactor* AdminService::Drain(
    grpc::CallbackServerContext* context, const v1::DrainRequest*,
    v1::DrainReply* reply) {
  const Change call(this, context, "agg.v1.Admin/Drain", "drain", reply);
  const absl::Status status = call.Check(coordinator_ != nullptr);
  if (!status.ok()) return call.End(status);
  if (options_.on_drain_request == nullptr) {
    return call.End(absl::FailedPreconditionError(
        "this server is not a process of its own: nothing to end"));
  }
  LogCall(context, "drain");
  auto* reactor = call.End(v1::DrainReply());
  if (!drain_requested_.exchange(true)) options_.on_drain_request();
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::TakeCheckpoint(
    grpc::CallbackServerContext* context,
    const v1::TakeCheckpointRequest* request, v1::TakeCheckpointReply* reply) {
  TakeMessage(request);
  Change call(this, context, "agg.v1.Admin/TakeCheckpoint", "checkpoint",
              reply);
  const absl::Status status = call.Check(coordinator_ != nullptr);
  if (!status.ok()) return call.End(status);
  coordinator_->TakeCheckpoint(
      call.Begin<TakenCheckpoint>("take a checkpoint", ""));
  return call.reactor();
}

grpc::ServerUnaryReactor* AdminService::Restore(
    grpc::CallbackServerContext* context, const v1::RestoreRequest* request,
    v1::RestoreReply* reply) {
  Change call(this, context, "agg.v1.Admin/Restore", "restore", reply);
  const absl::Status status = call.Check(coordinator_ != nullptr);
  if (!status.ok()) return call.End(status);
  const v1::RestoreRequest asked = TakeMessage(request);
  const std::string& checkpoint = asked.checkpoint();
  absl::StatusOr<RestoreCall> restore = Coordinator::ParseRestore(checkpoint);
  if (!restore.ok()) return call.End(restore.status());
  restore->dry_run = asked.dry_run();
  coordinator_->Restore(
      *restore, restore->look || restore->dry_run
                    ? call.BeginLook<RestoreResult>()
                    : call.Begin<RestoreResult>(
                          absl::StrCat("restore ", checkpoint), checkpoint));
  return call.reactor();
}

grpc::ServerUnaryReactor* AdminService::Resume(
    grpc::CallbackServerContext* context, const v1::ResumeRequest* request,
    v1::ResumeReply* reply) {
  const bool dry_run = TakeMessage(request).dry_run();
  Change call(this, context, "agg.v1.Admin/Resume", "resume_job", reply);
  const absl::Status status = call.Check(coordinator_ != nullptr);
  if (!status.ok()) return call.End(status);
  if (dry_run) {
    call.BeginLook<ResumeResult>()(coordinator_->MayResume());
    return call.reactor();
  }
  coordinator_->Resume(call.Begin<ResumeResult>("resume", ""));
  return call.reactor();
}

grpc::ServerUnaryReactor* AdminService::SetLogLevel(
    grpc::CallbackServerContext* context, const v1::SetLogLevelRequest* request,
    v1::SetLogLevelReply* reply) {
  const Change call(this, context, "agg.v1.Admin/SetLogLevel", "log_level",
                    reply);
  // Every shard has its own.
  absl::Status status = call.Check(/*here=*/true);
  if (status.ok()) status = ValidateText("level", request->level());
  LogLevel level = LogLevel::kInfo;
  if (status.ok() && !ParseLogLevel(request->level(), &level)) {
    status = FieldError("level", Quoted(request->level()),
                        "debug, info, warning, error");
  }
  if (!status.ok()) return call.End(status);
  LogCall(context, absl::StrCat("log level ", request->level()));
  v1::SetLogLevelReply answer;
  answer.set_before(std::string(LogLevelName(GetLogLevel())));
  auto* reactor = call.End(std::move(answer), request->level());
  agg::SetLogLevel(level);
  return reactor;
}

// What the admin service answers without changing anything.

namespace {

// On which shards each tensor is, and how orthogonal the last round's rows
// were.
absl::StatusOr<v1::ListTensorsReply> DescribeTensors(
    const Manifest& manifest, int num_shards,
    const std::vector<double>& orthogonality) {
  AGG_ASSIGN_OR_RETURN(const ShardPlan plan,
                       MakeShardPlan(manifest, num_shards));
  v1::Manifest message = ToProto(manifest);
  v1::ListTensorsReply reply;
  reply.set_elements(NumElements(manifest));
  for (size_t t = 0; t < manifest.tensors.size(); ++t) {
    v1::ListTensorsReply::Entry* entry = reply.add_tensors();
    entry->mutable_tensor()->Swap(message.mutable_tensors(static_cast<int>(t)));
    entry->set_elements(NumElements(manifest.tensors[t]));
    std::vector<uint32_t> shards;
    for (int32_t slice : plan.slices_of_tensor[t]) {
      shards.push_back(static_cast<uint32_t>(plan.slices[slice].shard));
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

v1::RoundRecord RecordOf(const RoundResult& outcome) {
  v1::RoundRecord record;
  *record.mutable_outcome() = ToProto(outcome);
  record.set_ended_at_seconds(
      absl::ToDoubleSeconds(outcome.ended_at - absl::UnixEpoch()));
  record.set_wait_seconds(absl::ToDoubleSeconds(outcome.wait));
  record.set_work_seconds(absl::ToDoubleSeconds(outcome.work));
  return record;
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

grpc::ServerUnaryReactor* AdminService::ListTensors(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* reply) {
  return Serve(reply, [&](const auto& poll) -> absl::Status {
    AGG_RETURN_IF_ERROR(Admit(*context, "agg.v1.Admin/ListTensors").status());
    v1::ListTensorsRequest nothing;
    AGG_RETURN_IF_ERROR(ParseRaw(request, &nothing));
    AGG_ASSIGN_OR_RETURN(const JoinResult job, coordinator_->Observe());
    {
      MutexLock lock(&describing_);
      poll->AnswerAs(DescribeTensors(*job.manifest, options_.self.num_shards,
                                     coordinator_->TensorOrthogonality()),
                     RawMessage);
    }
    AskForTrim();
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminService::ListRounds(
    grpc::CallbackServerContext* context, const v1::ListRoundsRequest* request,
    v1::ListRoundsReply* reply) {
  return Serve(reply, [&](const auto& poll) -> absl::Status {
    AGG_RETURN_IF_ERROR(Admit(*context, "agg.v1.Admin/ListRounds").status());
    const std::vector<RoundResult> rounds = coordinator_->Rounds();
    size_t first = 0;
    if (request->limit() > 0 &&
        rounds.size() > static_cast<size_t>(request->limit())) {
      first = rounds.size() - static_cast<size_t>(request->limit());
    }
    v1::ListRoundsReply answer;
    for (size_t i = first; i < rounds.size(); ++i) {
      if (!IsAfter(rounds[i], *request)) continue;
      *answer.add_rounds() = RecordOf(rounds[i]);
    }
    poll->Answer(std::move(answer));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminService::GetVersion(
    grpc::CallbackServerContext* context, const v1::GetVersionRequest*,
    v1::GetVersionReply* reply) {
  return Serve(reply, [&](const auto& poll) -> absl::Status {
    AGG_RETURN_IF_ERROR(
        AdmitCall(*gate_, *context, "agg.v1.Admin/GetVersion").status());
    v1::GetVersionReply answer;
    answer.set_version(options_.version);
    answer.set_protocol_version(kProtocolVersion);
    answer.set_job(options_.job.job);
    answer.set_ordinal(options_.self.ordinal);
    answer.set_num_shards(options_.self.num_shards);
    answer.set_fingerprint(options_.self.fingerprint);
    answer.set_backend(options_.self.backend);
    answer.set_log_level(std::string(LogLevelName(GetLogLevel())));
    poll->Answer(std::move(answer));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminService::Describe(
    grpc::CallbackServerContext* context, const v1::DescribeRequest*,
    v1::DescribeReply* reply) {
  return Serve(reply, [&](const auto& poll) -> absl::Status {
    AGG_RETURN_IF_ERROR(
        AdmitCall(*gate_, *context, "agg.v1.Admin/Describe").status());
    v1::DescribeReply answer;
    for (const FieldValue& field : options_.config) {
      v1::ConfigField* const out = answer.add_config();
      out->set_path(field.path);
      out->set_value(field.value);
      out->set_compared(field.compared);
    }
    if (options_.metrics != nullptr) answer.set_metrics(options_.metrics());
    answer.set_time_seconds(
        absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
    poll->Answer(std::move(answer));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminService::ListAudit(
    grpc::CallbackServerContext* context, const v1::ListAuditRequest* request,
    v1::ListAuditReply* reply) {
  return Serve(reply, [&](const auto& poll) -> absl::Status {
    AGG_RETURN_IF_ERROR(
        AdmitCall(*gate_, *context, "agg.v1.Admin/ListAudit").status());
    const size_t limit =
        request->limit() > 0 ? static_cast<size_t>(request->limit()) : 0;
    v1::ListAuditReply answer;
    for (const AuditEvent& event : gate_->Events(limit)) {
      *answer.add_records() = ToProto(event);
    }
    poll->Answer(std::move(answer));
    return absl::OkStatus();
  });
}

}  // namespace agg
