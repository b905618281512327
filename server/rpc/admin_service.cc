// One method per call; those that change nothing are in admin_questions.cc.
// Calls for the coordinator are refused on other shards, as those of
// CoordinatorService are.
#include "server/rpc/admin_service.h"

#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/access/audit_event.h"
#include "server/base/field_error.h"
#include "server/base/log.h"
#include "server/base/utf8.h"
#include "server/coordinator/call_validation.h"
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
  return status;
}

}  // namespace

AdminService::AdminService(const AdminOptions& options,
                           Coordinator* coordinator)
    : options_(options),
      coordinator_(coordinator),
      not_here_(NotTheCoordinator(options.self, options.job)) {}

std::function<void(const absl::Status&)> AdminService::Done(
    const Caller& caller, const std::string& action, const std::string& detail,
    int32_t rank) const {
  return [gate = options_.gate, caller, action, detail,
          rank](const absl::Status& status) {
    AuditEvent event;
    event.action = action;
    event.detail = detail;
    event.rank = rank;
    gate->NoteDone(caller, std::move(event), status);
  };
}

grpc::ServerUnaryReactor* AdminService::SetRule(
    grpc::CallbackServerContext* context, const v1::SetRuleRequest* request,
    v1::SetRuleReply* reply) {
  const absl::StatusOr<Caller> caller =
      AdmitCall(*options_.gate, *context, "agg.v1.Admin/SetRule");
  if (!caller.ok()) return AnswerNow<v1::SetRuleReply>(reply, caller.status());
  if (coordinator_ == nullptr) {
    Done(*caller, "set_rule", "")(not_here_);
    return AnswerNow<v1::SetRuleReply>(reply, not_here_);
  }
  v1::SetRuleRequest change = TakeMessage(request);
  change.DiscardUnknownFields();
  const absl::Status status = CheckTexts(change);
  if (!status.ok()) {
    Done(*caller, "set_rule", "")(status);
    return AnswerNow<v1::SetRuleReply>(reply, status);
  }
  const std::string what = change.ShortDebugString();
  LogCall(context, absl::StrCat("set-rule ", what));
  auto poll = LongPoll<v1::SetRuleReply>::Make(reply);
  auto* reactor = poll.get();
  coordinator_->SetRuleEverywhere(
      FromProto(change), [poll, done = Done(*caller, "set_rule", what)](
                             const absl::StatusOr<RuleChangeResult>& result) {
        done(result.status());
        poll->Answer(ToReply(result));
      });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::EvictWorker(
    grpc::CallbackServerContext* context, const v1::EvictWorkerRequest* request,
    v1::EvictWorkerReply* reply) {
  const absl::StatusOr<Caller> caller =
      AdmitCall(*options_.gate, *context, "agg.v1.Admin/EvictWorker");
  if (!caller.ok())
    return AnswerNow<v1::EvictWorkerReply>(reply, caller.status());
  if (coordinator_ == nullptr) {
    Done(*caller, "evict", "")(not_here_);
    return AnswerNow<v1::EvictWorkerReply>(reply, not_here_);
  }
  const v1::EvictWorkerRequest evicted = TakeMessage(request);
  LogCall(context, absl::StrCat("evict rank ", evicted.rank()));
  auto poll = LongPoll<v1::EvictWorkerReply>::Make(reply);
  auto* reactor = poll.get();
  coordinator_->Evict(
      evicted.rank(),
      evicted.reason().empty() ? "by an operator" : evicted.reason(),
      [poll, done = Done(*caller, "evict", evicted.reason(), evicted.rank())](
          absl::StatusOr<Eviction> eviction) {
        done(eviction.status());
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
  const absl::StatusOr<Caller> caller =
      AdmitCall(*options_.gate, *context, "agg.v1.Admin/Drain");
  if (!caller.ok()) return AnswerNow<v1::DrainReply>(reply, caller.status());
  if (coordinator_ == nullptr) {
    Done(*caller, "drain", "")(not_here_);
    return AnswerNow<v1::DrainReply>(reply, not_here_);
  }
  if (options_.on_drain_request == nullptr) {
    const absl::Status status = absl::FailedPreconditionError(
        "this server is not a process of its own: nothing to end");
    Done(*caller, "drain", "")(status);
    return AnswerNow<v1::DrainReply>(reply, status);
  }
  LogCall(context, "drain");
  Done(*caller, "drain", "")(absl::OkStatus());
  auto* reactor = AnswerNow<v1::DrainReply>(reply, v1::DrainReply());
  if (!drain_requested_.exchange(true)) options_.on_drain_request();
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::TakeCheckpoint(
    grpc::CallbackServerContext* context,
    const v1::TakeCheckpointRequest* request, v1::TakeCheckpointReply* reply) {
  TakeMessage(request);
  const absl::StatusOr<Caller> caller =
      AdmitCall(*options_.gate, *context, "agg.v1.Admin/TakeCheckpoint");
  if (!caller.ok())
    return AnswerNow<v1::TakeCheckpointReply>(reply, caller.status());
  if (coordinator_ == nullptr) {
    Done(*caller, "checkpoint", "")(not_here_);
    return AnswerNow<v1::TakeCheckpointReply>(reply, not_here_);
  }
  LogCall(context, "take a checkpoint");
  auto poll = LongPoll<v1::TakeCheckpointReply>::Make(reply);
  auto* reactor = poll.get();
  coordinator_->TakeCheckpoint([poll, done = Done(*caller, "checkpoint", "")](
                                   absl::StatusOr<TakenCheckpoint> taken) {
    done(taken.status());
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

grpc::ServerUnaryReactor* AdminService::Restore(
    grpc::CallbackServerContext* context, const v1::RestoreRequest* request,
    v1::RestoreReply* reply) {
  const absl::StatusOr<Caller> caller =
      AdmitCall(*options_.gate, *context, "agg.v1.Admin/Restore");
  if (!caller.ok()) return AnswerNow<v1::RestoreReply>(reply, caller.status());
  if (coordinator_ == nullptr) {
    Done(*caller, "restore", "")(not_here_);
    return AnswerNow<v1::RestoreReply>(reply, not_here_);
  }
  const v1::RestoreRequest restore = TakeMessage(request);
  const absl::StatusOr<RestoreCall> call =
      Coordinator::ParseRestore(restore.checkpoint());
  if (!call.ok()) {
    Done(*caller, "restore", "")(call.status());
    return AnswerNow<v1::RestoreReply>(reply, call.status());
  }
  std::function<void(const absl::Status&)> audit = [](const absl::Status&) {};
  if (!call->look) {
    LogCall(context, absl::StrCat("restore ", restore.checkpoint()));
    audit = Done(*caller, "restore", restore.checkpoint());
  }
  auto poll = LongPoll<v1::RestoreReply>::Make(reply);
  auto* reactor = poll.get();
  coordinator_->Restore(
      *call, [poll, audit](const absl::StatusOr<RestoreResult>& result) {
        audit(result.status());
        if (result.ok()) {
          poll->Answer(ToReply(*result));
        } else {
          poll->Answer(result.status());
        }
      });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::Resume(
    grpc::CallbackServerContext* context, const v1::ResumeRequest* request,
    v1::ResumeReply* reply) {
  TakeMessage(request);
  const absl::StatusOr<Caller> caller =
      AdmitCall(*options_.gate, *context, "agg.v1.Admin/Resume");
  if (!caller.ok()) return AnswerNow<v1::ResumeReply>(reply, caller.status());
  if (coordinator_ == nullptr) {
    Done(*caller, "resume_job", "")(not_here_);
    return AnswerNow<v1::ResumeReply>(reply, not_here_);
  }
  LogCall(context, "resume");
  auto poll = LongPoll<v1::ResumeReply>::Make(reply);
  auto* reactor = poll.get();
  coordinator_->Resume([poll, done = Done(*caller, "resume_job", "")](
                           const absl::StatusOr<ResumeResult>& resumed) {
    done(resumed.status());
    if (!resumed.ok()) {
      poll->Answer(resumed.status());
      return;
    }
    v1::ResumeReply answer;
    answer.set_version(resumed->version);
    answer.set_ended(resumed->ended);
    poll->Answer(answer);
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::SetLogLevel(
    grpc::CallbackServerContext* context, const v1::SetLogLevelRequest* request,
    v1::SetLogLevelReply* reply) {
  const absl::StatusOr<Caller> caller =
      AdmitCall(*options_.gate, *context, "agg.v1.Admin/SetLogLevel");
  if (!caller.ok())
    return AnswerNow<v1::SetLogLevelReply>(reply, caller.status());
  absl::Status status = ValidateText("level", request->level());
  LogLevel level = LogLevel::kInfo;
  if (status.ok() && !ParseLogLevel(request->level(), &level)) {
    status = FieldError("level", Quoted(request->level()),
                        "debug, info, warning, error");
  }
  if (!status.ok()) {
    Done(*caller, "log_level", "")(status);
    return AnswerNow<v1::SetLogLevelReply>(reply, status);
  }
  LogCall(context, absl::StrCat("log level ", request->level()));
  Done(*caller, "log_level", request->level())(absl::OkStatus());
  v1::SetLogLevelReply answer;
  answer.set_before(std::string(LogLevelName(GetLogLevel())));
  agg::SetLogLevel(level);
  return AnswerNow<v1::SetLogLevelReply>(reply, answer);
}

}  // namespace agg
