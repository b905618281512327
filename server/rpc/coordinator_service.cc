// One method per call: convert the request, ask the coordinator, convert its
// answer. What waits for a round, or for a reduction, is answered from one of
// the coordinator's threads.
#include "server/rpc/coordinator_service.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/manifest_message.h"
#include "proto/manifest_size.h"
#include "proto/protocol_version.h"
#include "proto/traceparent.h"
#include "server/access/access_rules.h"
#include "server/access/audit_trail.h"
#include "server/base/call_counts.h"
#include "server/base/field_error.h"
#include "server/base/process_memory.h"
#include "server/base/status_macros.h"
#include "server/rpc/admit_call.h"
#include "server/rpc/job_conversion.h"
#include "server/rpc/long_poll.h"
#include "server/rpc/raw_message.h"

namespace agg {

namespace {

constexpr char kReduce[] = "agg.v1.Reductions/Reduce";

v1::ReduceReply ReplyOf(const ReduceAnswer& answer) {
  v1::ReduceReply reply;
  if (answer.made != nullptr) {
    const KeptReduction& made = *answer.made;
    reply.mutable_sums()->Add(made.sums.begin(), made.sums.end());
    reply.mutable_ranks()->Add(made.ranks.begin(), made.ranks.end());
    reply.mutable_left_out()->Add(made.left_out.begin(), made.left_out.end());
  }
  reply.set_withdrawn(answer.withdrawn);
  reply.set_note(answer.note);
  reply.mutable_waiting_for()->Add(answer.waiting_for.begin(),
                                   answer.waiting_for.end());
  return reply;
}

}  // namespace

CoordinatorCalls::CoordinatorCalls(const ShardIdentity& self,
                                   const JobInfo& job, Coordinator* coordinator,
                                   const CallerGate* gate)
    : coordinator_(coordinator),
      not_here_(NotTheCoordinator(self, job)),
      gate_(gate) {}

absl::StatusOr<Caller> CoordinatorCalls::Admit(
    const grpc::CallbackServerContext& context,
    absl::string_view method) const {
  absl::StatusOr<Caller> caller = AdmitCall(*gate_, context, method);
  if (caller.ok() && coordinator_ == nullptr) return not_here_;
  return caller;
}

absl::Status CoordinatorCalls::CheckSession(const Caller& caller,
                                            std::optional<uint64_t> epoch,
                                            uint64_t session,
                                            absl::string_view method) const {
  if (!caller.known) return absl::OkStatus();
  return gate_->CheckSession(caller, coordinator_->OwnerOf(epoch, session),
                             method, session);
}

grpc::ServerUnaryReactor* ReductionService::Reduce(
    grpc::CallbackServerContext* context, const v1::ReduceRequest* request,
    v1::ReduceReply* reply) {
  return Serve(reply, [&](const auto& poll) -> absl::Status {
    AGG_ASSIGN_OR_RETURN(const Caller caller, Admit(*context, kReduce));
    v1::ReduceRequest asked = TakeMessage(request);
    AGG_RETURN_IF_ERROR(
        CheckSession(caller, asked.epoch(), asked.session(), kReduce));
    ReduceCall call;
    call.session = asked.session();
    call.name = {asked.giver(), asked.call()};
    call.withdraw = asked.withdraw();
    call.what = std::move(*asked.mutable_what());
    call.values.assign(asked.values().begin(), asked.values().end());
    const uint64_t number = coordinator_->Reduce(
        asked.epoch(), std::move(call),
        [poll](const absl::StatusOr<ReduceAnswer>& answer) {
          poll->AnswerAs(answer, ReplyOf);
        });
    poll->set_on_gone([this, number] { coordinator_->CancelReduce(number); });
    return absl::OkStatus();
  });
}

namespace {

absl::Status CheckVersion(uint32_t version) {
  if (version == kProtocolVersion) return absl::OkStatus();
  return FieldError(
      "protocol_version", absl::StrCat(version),
      absl::StrCat(kProtocolVersion, " (client and server are of different ",
                   "releases)"));
}

}  // namespace

grpc::ServerUnaryReactor* ExternalRuleService::ServeRule(
    grpc::CallbackServerContext* context, const v1::ServeRuleRequest* request,
    v1::ServeRuleReply* reply) {
  return Serve(reply, [&](const auto& poll) -> absl::Status {
    AGG_ASSIGN_OR_RETURN(const Caller caller,
                         Admit(*context, "agg.v1.ExternalRules/ServeRule"));
    v1::ServeRuleRequest asked = TakeMessage(request);
    AGG_RETURN_IF_ERROR(CheckVersion(asked.protocol_version()));
    if (coordinator_->finished()) {
      v1::ServeRuleReply finished;
      finished.set_finished(true);
      poll->Answer(std::move(finished));
      return absl::OkStatus();
    }
    const uint64_t number = coordinator_->PollRule(
        FromProto(std::move(asked), caller.identity),
        [poll](const absl::StatusOr<std::shared_ptr<const RuleQuestion>>&
                   question) {
          poll->AnswerAs(question, [](const auto& given) {
            v1::ServeRuleReply answer;
            *answer.mutable_question() = ToProto(*given);
            return answer;
          });
        });
    poll->set_on_gone([this, number] { coordinator_->CancelPollRule(number); });
    return absl::OkStatus();
  });
}

// An entry is as old as its manifest: nobody has to say that it is done.
void ManifestBook::ForgetUnheld() {
  entries_.erase(
      std::remove_if(entries_.begin(), entries_.end(),
                     [](const Entry& one) { return one.manifest.expired(); }),
      entries_.end());
}

std::shared_ptr<const Manifest> ManifestBook::Find(absl::string_view message) {
  for (const Entry& one : entries_) {
    if (*one.message == message) return one.manifest.lock();
  }
  return nullptr;
}

absl::Status ManifestBook::CheckRoom(int64_t num_bytes,
                                     const std::string& identity) {
  int64_t all = 0;
  int64_t own = 0;
  for (const Entry& one : entries_) {
    all += one.num_bytes;
    if (one.identity == identity) own += one.num_bytes;
  }
  // One alone always fits: it may be the job's.
  if (own > 0 && own + num_bytes > max_own_bytes_) {
    return LimitError("bytes of manifests",
                      identity.empty()
                          ? "callers without an identity"
                          : absl::StrCat("identity ", Quoted(identity)),
                      absl::StrCat(own + num_bytes),
                      absl::StrCat(max_own_bytes_, " at a time"));
  }
  if (all > 0 && all + num_bytes > max_bytes_) {
    return LimitError("bytes of manifests", "all callers",
                      absl::StrCat(all + num_bytes),
                      absl::StrCat(max_bytes_, " at a time"));
  }
  return absl::OkStatus();
}

absl::StatusOr<SharedManifest> ManifestBook::Take(absl::string_view message,
                                                  const std::string& identity) {
  MutexLock lock(&mutex_);
  std::shared_ptr<const Manifest> known = Find(message);
  if (known != nullptr) return SharedManifest(std::move(known));
  ForgetUnheld();
  AGG_ASSIGN_OR_RETURN(const ManifestSize size, SizeOfMessage(message));
  if (size.tensors > kMostTensors) {
    return FieldError("manifest", absl::StrCat(size.tensors, " tensors"),
                      absl::StrCat("1 to ", kMostTensors, " tensors"));
  }
  Entry entry;
  entry.identity = identity;
  entry.num_bytes = ManifestBytes(size) + static_cast<int64_t>(message.size());
  AGG_RETURN_IF_ERROR(CheckRoom(entry.num_bytes, identity));
  SharedManifest manifest;
  {
    v1::Manifest parsed;
    if (!parsed.ParseFromArray(message.data(),
                               static_cast<int>(message.size()))) {
      return absl::InvalidArgumentError("malformed manifest");
    }
    manifest = SharedManifest(FromProto(parsed));
    // What else the message had is nobody's business.
    parsed.DiscardUnknownFields();
    entry.message =
        std::make_shared<const std::string>(parsed.SerializeAsString());
  }
  // Another client may have written the same manifest in another way.
  known = Find(*entry.message);
  if (known != nullptr) return SharedManifest(std::move(known));
  entry.manifest = manifest.share();
  entries_.push_back(std::move(entry));
  return manifest;
}

std::shared_ptr<const std::string> ManifestBook::MessageOf(
    const SharedManifest& manifest) {
  MutexLock lock(&mutex_);
  for (const Entry& one : entries_) {
    if (one.manifest.lock() == manifest.share()) return one.message;
  }
  ForgetUnheld();
  Entry entry;
  entry.manifest = manifest.share();
  entry.message = std::make_shared<const std::string>(
      ToProto(*manifest).SerializeAsString());
  entries_.push_back(entry);
  return entry.message;
}

// The first renewal begins attendance; each one is answered with RENEWED.

AttendStream* AttendStream::Start(Coordinator* coordinator, OpenStreams* open,
                                  CheckSession check) {
  std::shared_ptr<AttendStream> stream(
      new AttendStream(coordinator, open, std::move(check)));
  stream->Own();
  stream->StartRead(&stream->renewal_);
  return stream.get();
}

AttendStream* AttendStream::Refuse(const absl::Status& reason,
                                   OpenStreams* open) {
  std::shared_ptr<AttendStream> stream(
      new AttendStream(nullptr, open, nullptr));
  stream->Own();
  stream->End(reason);
  return stream.get();
}

void AttendStream::OnReadDone(bool ok) {
  if (!ok) {
    End(absl::OkStatus());
    return;
  }
  // What a message had besides its fields is not kept until the next one.
  const absl::Status status = Handle(TakeMessage(&renewal_));
  if (!status.ok()) {
    End(status);
  } else if (!ended()) {
    StartRead(&renewal_);
  }
}

absl::Status AttendStream::Handle(const v1::LeaseRenewal& renewal) {
  if (renewal.epoch() != epoch_ || session_ == 0) {
    AGG_RETURN_IF_ERROR(check_(renewal.epoch(), renewal.session()));
    epoch_ = renewal.epoch();
  }
  if (session_ == 0) {
    std::weak_ptr<BidiStream> weak = weak_from_this();
    AGG_ASSIGN_OR_RETURN(
        const uint64_t number,
        coordinator_->Attend(renewal.epoch(), renewal.session(),
                             [weak](const JobEvent& event) {
                               if (auto stream = weak.lock())
                                 stream->Send(ToProto(event));
                             }));
    session_ = renewal.session();
    number_ = number;
  } else if (renewal.session() != session_) {
    return FieldError(
        "session", absl::StrCat(renewal.session()),
        absl::StrCat(session_, ", as in the stream's first message"));
  }
  AGG_ASSIGN_OR_RETURN(uint64_t version,
                       coordinator_->Renew(renewal.epoch(), renewal.session(),
                                           renewal.transports()));
  v1::JobEvent renewed;
  renewed.set_kind(v1::JobEvent::RENEWED);
  renewed.set_version(version);
  Send(std::move(renewed));
  return absl::OkStatus();
}

void AttendStream::OnEnded() {
  if (session_ != 0) coordinator_->Detach(number_);
}

namespace {

constexpr char kJoin[] = "agg.v1.Coordinator/Join";
// Of a manifest whose memory is worth giving back, once the call is over.
constexpr size_t kManyTensors = 4096;
constexpr size_t kLargeBytes = size_t{1} << 20;
constexpr char kAttend[] = "agg.v1.Coordinator/Attend";

// The traceparent of the caller's span; "" if it sent none, several, or text
// that is not a traceparent.
std::string Traceparent(const grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  if (metadata.count(kTraceparent) != 1) return "";
  const grpc::string_ref value = metadata.find(kTraceparent)->second;
  const absl::string_view text(value.data(), value.size());
  return IsTraceparent(text) ? std::string(text) : "";
}

// What answers a call with the outcome of its round.
std::function<void(const absl::StatusOr<RoundResult>&)> OutcomeTo(
    const std::shared_ptr<LongPoll<v1::RoundOutcome>>& poll) {
  return [poll](const absl::StatusOr<RoundResult>& outcome) {
    poll->AnswerAs(outcome,
                   [](const RoundResult& result) { return ToProto(result); });
  };
}

}  // namespace

absl::Status NotTheCoordinator(const ShardIdentity& shard, const JobInfo& job) {
  return absl::FailedPreconditionError(
      absl::StrCat("shard ", shard.ordinal, " (", shard.address,
                   ") is not the coordinator; the coordinator is shard 0 (",
                   job.shards[0], ")"));
}

CoordinatorService::CoordinatorService(const ShardIdentity& self,
                                       const JobInfo& job,
                                       Coordinator* coordinator,
                                       OpenStreams* open,
                                       const CallerGate* gate)
    : CoordinatorCalls(self, job, coordinator, gate),
      open_(open),
      job_(std::make_shared<const JobInfo>(job)) {}

void CoordinatorService::SetShards(const std::vector<std::string>& shards) {
  MutexLock lock(&mutex_);
  auto job = std::make_shared<JobInfo>(*job_);
  job->shards = shards;
  job_ = std::move(job);
}

std::shared_ptr<const JobInfo> CoordinatorService::job() {
  MutexLock lock(&mutex_);
  return job_;
}

// What a Join came to. One that has to be repeated is none yet.
void CoordinatorService::NoteJoin(
    const Caller& caller, int32_t rank,
    const absl::StatusOr<JoinResult>& result) const {
  const absl::Status& status = result.status();
  if (absl::IsUnavailable(status) || absl::IsCancelled(status)) return;
  if (!status.ok()) {
    const DenialReason reason =
        absl::IsPermissionDenied(status) ? DenialReason::kRank
        : !IsLimitError(status)          ? DenialReason::kJoin
        : absl::StartsWith(status.message(), "max_sessions")
            ? DenialReason::kSessions
            : DenialReason::kBytes;
    gate_->NoteDenial(caller, reason, kJoin, status, rank);
    return;
  }
  AuditEvent event;
  event.action = result->replaced != 0 ? "takeover"
                 : result->resumed     ? "resume"
                                       : "join";
  event.rank = rank;
  event.session = result->session;
  if (result->replaced != 0) {
    event.detail = absl::StrCat("of session ", result->replaced);
  }
  gate_->NoteDone(caller, std::move(event), absl::OkStatus());
}

absl::StatusOr<JoinCall> CoordinatorService::ReadJoin(
    const grpc::ByteBuffer* request, const Caller& caller, const JobInfo& job) {
  v1::JoinParts parts;
  absl::Status status = ParseRaw(request, &parts);
  if (status.ok()) status = CheckVersion(parts.protocol_version());
  if (status.ok()) {
    status =
        CheckMessageSize(static_cast<int64_t>(parts.manifest().size()), job);
  }
  JoinCall call = FromProto(parts);
  if (status.ok()) {
    absl::StatusOr<SharedManifest> manifest =
        manifests_.Take(parts.manifest(), caller.identity);
    status = manifest.status();
    if (manifest.ok()) call.manifest = *std::move(manifest);
  }
  if (!status.ok()) {
    if (parts.manifest().size() > kLargeBytes) AskForTrim();
    NoteJoin(caller, call.rank, status);
    return status;
  }
  call.identity = caller.identity;
  call.may_take_over = caller.may(Role::kAdmin);
  call.max_own_sessions = gate_->max_sessions(caller);
  call.max_sessions = gate_->max_sessions();
  return call;
}

grpc::ByteBuffer CoordinatorService::JoinReplyOf(const JoinResult& result,
                                                 const JobInfo& job) {
  return RawMessageWith(ToProto(result, job),
                        v1::JoinReply::kManifestFieldNumber,
                        manifests_.MessageOf(result.manifest));
}

grpc::ServerUnaryReactor* CoordinatorService::Join(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* reply) {
  return Serve(reply, [&](const auto& poll) -> absl::Status {
    AGG_ASSIGN_OR_RETURN(const Caller caller, Admit(*context, kJoin));
    const auto job = this->job();
    AGG_ASSIGN_OR_RETURN(JoinCall call, ReadJoin(request, caller, *job));
    const int32_t rank = call.rank;
    const bool large = call.manifest->tensors.size() > kManyTensors;
    coordinator_->Join(
        std::move(call),
        [this, poll, job, caller, rank,
         large](const absl::StatusOr<JoinResult>& result) {
          NoteJoin(caller, rank, result);
          if (large) AskForTrim();
          poll->AnswerAs(result, [&](const JoinResult& joined) {
            return JoinReplyOf(joined, *job);
          });
        },
        [poll] { return poll->answered(); });
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* CoordinatorService::Observe(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* reply) {
  return Serve(reply, [&](const auto& poll) -> absl::Status {
    AGG_RETURN_IF_ERROR(Admit(*context, "agg.v1.Coordinator/Observe").status());
    v1::ObserveRequest message;
    AGG_RETURN_IF_ERROR(ParseRaw(request, &message));
    AGG_RETURN_IF_ERROR(CheckVersion(message.protocol_version()));
    AGG_ASSIGN_OR_RETURN(const JoinResult result, coordinator_->Observe());
    poll->Answer(JoinReplyOf(result, *job()));
    return absl::OkStatus();
  });
}

grpc::ServerBidiReactor<v1::LeaseRenewal, v1::JobEvent>*
CoordinatorService::Attend(grpc::CallbackServerContext* context) {
  const absl::StatusOr<Caller> caller = Admit(*context, kAttend);
  if (!caller.ok()) return AttendStream::Refuse(caller.status(), open_);
  return AttendStream::Start(
      coordinator_, open_,
      [this, caller = *caller](uint64_t epoch, uint64_t session) {
        return CheckSession(caller, epoch, session, kAttend);
      });
}

grpc::ServerUnaryReactor* CoordinatorService::Commit(
    grpc::CallbackServerContext* context, const v1::CommitRequest* request,
    v1::RoundOutcome* reply) {
  return Serve(reply, [&](const auto& poll) -> absl::Status {
    constexpr char kCommit[] = "agg.v1.Coordinator/Commit";
    AGG_ASSIGN_OR_RETURN(const Caller caller, Admit(*context, kCommit));
    AGG_ASSIGN_OR_RETURN(CommitCall call, FromProto(TakeMessage(request)));
    AGG_RETURN_IF_ERROR(
        CheckSession(caller, call.epoch, call.session, kCommit));
    call.info.traceparent = Traceparent(*context);
    const uint64_t number = coordinator_->Commit(call, OutcomeTo(poll));
    poll->set_on_gone([this, number] { coordinator_->CancelWait(number); });
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* CoordinatorService::WaitRound(
    grpc::CallbackServerContext* context, const v1::WaitRequest* request,
    v1::RoundOutcome* reply) {
  return Serve(reply, [&](const auto& poll) -> absl::Status {
    constexpr char kWaitRound[] = "agg.v1.Coordinator/WaitRound";
    AGG_ASSIGN_OR_RETURN(const Caller caller, Admit(*context, kWaitRound));
    const v1::WaitRequest wait = TakeMessage(request);
    if (wait.session() != 0) {
      std::optional<uint64_t> epoch;
      if (wait.epoch() != 0) epoch = wait.epoch();
      AGG_RETURN_IF_ERROR(
          CheckSession(caller, epoch, wait.session(), kWaitRound));
    }
    const uint64_t number = coordinator_->WaitRound(
        wait.epoch(),
        {PushKind::kGradient, wait.round(), wait.session(), wait.attempt()},
        OutcomeTo(poll));
    poll->set_on_gone([this, number] { coordinator_->CancelWait(number); });
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* CoordinatorService::Leave(
    grpc::CallbackServerContext* context, const v1::LeaveRequest* request,
    v1::LeaveReply* reply) {
  return Serve(reply, [&](const auto& poll) -> absl::Status {
    constexpr char kLeave[] = "agg.v1.Coordinator/Leave";
    AGG_ASSIGN_OR_RETURN(const Caller caller, Admit(*context, kLeave));
    const v1::LeaveRequest leave = TakeMessage(request);
    AGG_RETURN_IF_ERROR(
        CheckSession(caller, leave.epoch(), leave.session(), kLeave));
    coordinator_->Leave(leave.epoch(), leave.session(),
                        [poll](const absl::Status& status) {
                          if (status.ok()) {
                            poll->Answer(v1::LeaveReply());
                          } else {
                            poll->Answer(status);
                          }
                        });
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* CoordinatorService::GetStatus(
    grpc::CallbackServerContext* context, const v1::StatusRequest*,
    v1::StatusReply* reply) {
  return Serve(reply, [&](const auto& poll) -> absl::Status {
    AGG_RETURN_IF_ERROR(
        Admit(*context, "agg.v1.Coordinator/GetStatus").status());
    poll->Answer(
        ToProto(coordinator_->Status(), coordinator_->LastOutcome(), *job()));
    return absl::OkStatus();
  });
}

}  // namespace agg
