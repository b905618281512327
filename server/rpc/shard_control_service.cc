// The Attach stream, and the epochs that it begins and ends; the stream of a
// phase; and the checks of who coordinates.
#include "server/rpc/shard_control_service.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/protocol_version.h"
#include "proto/status_conversion.h"
#include "server/base/address.h"
#include "server/base/field_error.h"
#include "server/base/line_limits.h"
#include "server/base/log.h"
#include "server/base/process_memory.h"
#include "server/base/status_macros.h"
#include "server/coordinator/coordinator_types.h"
#include "server/round/recovery.h"
#include "server/round/round_report.h"
#include "server/round/shard_peer.h"
#include "server/rpc/admit_call.h"
#include "server/rpc/long_poll.h"
#include "server/rpc/phase_conversion.h"
#include "server/rpc/shard_link.h"

namespace agg {

// Counts the Attach streams of the life that holds the shard; the last one's
// end frees it.
absl::Status ShardClaim::Take(uint64_t life, const std::string& coordinator) {
  if (life_ != 0 && life != life_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the shard is held by another coordinator (", coordinator_,
                     ", life ", absl::Hex(life_, absl::kZeroPad16),
                     "); it is free when that one's Attach stream has ended"));
  }
  life_ = life;
  coordinator_ = coordinator;
  ++num_streams_;
  return absl::OkStatus();
}

void ShardClaim::Release(uint64_t life) {
  if (life != life_) return;
  if (--num_streams_ == 0) life_ = 0;
}

absl::Status ShardClaim::CheckPromise(uint64_t epoch, uint64_t life) const {
  if (epoch != promised_epoch_ || life == promised_life_) {
    return absl::OkStatus();
  }
  return absl::AbortedError(absl::StrCat(
      "epoch ", epoch, " is promised to another coordinator (life ",
      absl::Hex(promised_life_, absl::kZeroPad16), ")"));
}

void ShardClaim::Promise(uint64_t epoch, uint64_t life) {
  promised_epoch_ = epoch;
  promised_life_ = life;
}

namespace {

// A checkpoint is written while rounds go on: neither may wait for the other.
bool IsForFiles(PhaseKind kind) {
  return kind == PhaseKind::kCheckpointProgress || kind == PhaseKind::kSeal ||
         kind == PhaseKind::kReadManifest || kind == PhaseKind::kVerify;
}

}  // namespace

// Reads until the phase is complete, then writes: never both at once, so that
// no lock is needed.
PhaseStream* PhaseStream::Start(ShardEngine* engine,
                                const PhaseExecutors& executors,
                                RowReports* reports) {
  auto* stream = new PhaseStream(engine, executors, reports);
  stream->StartRead(&stream->request_);
  return stream;
}

void PhaseStream::OnReadDone(bool ok) {
  const absl::Status status =
      ok ? TakeRequest()
         : absl::InvalidArgumentError(
               "the phase has ended before its last message");
  if (!status.ok()) {
    Finish(ToGrpcStatus(status));
  } else if (request_.more()) {
    StartRead(&request_);
  } else if (engine_->IsQuick(assembly_.phase())) {
    Answer(engine_->RunPhase(assembly_.Take()));
  } else {
    request_.Clear();  // a manifest is large
    ExecutorOf(assembly_.phase().kind)->Run([this] { Answer(Run()); });
  }
}

Executor* PhaseStream::ExecutorOf(PhaseKind kind) const {
  if (kind == PhaseKind::kReserveRow) return executors_.memory;
  if (IsOfJob(kind)) return executors_.control;
  return IsForFiles(kind) ? executors_.files : executors_.compute;
}

absl::StatusOr<PhaseResult> PhaseStream::Run() {
  const PhaseKind kind = assembly_.phase().kind;
  // A caller that repeats itself must not make a queue of allocations.
  if (kind == PhaseKind::kReserveRow && cancelled_) {
    return absl::CancelledError("cancelled");
  }
  absl::StatusOr<PhaseResult> result = engine_->RunPhase(assembly_.Take());
  if (kind == PhaseKind::kSetManifest || kind == PhaseKind::kForgetManifest) {
    AskForTrim();
  }
  // The round may wait for fewer rows now.
  if (kind == PhaseKind::kSetSession) reports_->Flush();
  return result;
}

absl::Status PhaseStream::TakeRequest() {
  const absl::Status status = assembly_.Add(request_);
  if (!status.ok() || std::exchange(has_phase_, true)) return status;
  // A phase of several messages takes memory before it is run.
  return request_.more() ? engine_->CheckEpoch(assembly_.phase().epoch)
                         : absl::OkStatus();
}

void PhaseStream::Answer(const absl::StatusOr<PhaseResult>& result) {
  if (!result.ok()) {
    Finish(ToGrpcStatus(result.status()));
    return;
  }
  replies_.emplace(*result);
  WriteNext();
}

void PhaseStream::WriteNext() {
  if (!replies_->Next(&reply_)) {
    Finish(grpc::Status::OK);
  } else if (replies_->done()) {  // with the status, in one system call
    StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
  } else {
    StartWrite(&reply_);
  }
}

void PhaseStream::OnWriteDone(bool ok) {
  if (ok) {
    WriteNext();
  } else {
    Finish(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled"));
  }
}

// Each difference is named with both values, since two people may have written
// them.

namespace {

absl::Status Differ(const ShardIdentity& self, absl::string_view what,
                    absl::string_view theirs, absl::string_view ours,
                    absl::string_view advice) {
  return absl::FailedPreconditionError(absl::StrCat(
      "shard ", self.ordinal, " (", self.address, ") has ", what, " ", ours,
      ", the coordinator expects ", theirs, ": ", advice));
}

// Some 142 years: as an epoch is the clock in microseconds (P20), or a number
// above what others have promised, a clock that is wrong does no harm.
constexpr int64_t kMaxEpochsAhead = int64_t{1} << 52;

absl::Status CheckEpoch(uint64_t epoch, absl::Time now) {
  const uint64_t highest =
      static_cast<uint64_t>(std::max<int64_t>(0, absl::ToUnixMicros(now))) +
      kMaxEpochsAhead;
  if (epoch >= 1 && epoch <= highest) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("epoch is ", epoch, "; allowed: 1 to ", highest,
                   ", 2^52 microseconds ahead of the clock of the shard"));
}

absl::Status CheckShards(const v1::AttachRequest& request, int num_shards) {
  if (request.shards_size() != 0 && request.shards_size() != num_shards) {
    return absl::InvalidArgumentError(
        absl::StrCat("shards has ", request.shards_size(),
                     " addresses; allowed: none, or ", num_shards));
  }
  for (int i = 0; i < request.shards_size(); ++i) {
    AGG_RETURN_IF_ERROR(
        CheckAddress(absl::StrCat("shards[", i, "]"), request.shards(i)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckAttach(const v1::AttachRequest& request,
                         const ShardIdentity& self, absl::Time now) {
  if (request.protocol_version() != kProtocolVersion) {
    return Differ(
        self, "protocol version", absl::StrCat(request.protocol_version()),
        absl::StrCat(kProtocolVersion), "run the same release everywhere");
  }
  if (request.ordinal() != self.ordinal) {
    return Differ(self, "ordinal", absl::StrCat(request.ordinal()),
                  absl::StrCat(self.ordinal),
                  "check the addresses in `shards` and --shard");
  }
  if (request.num_shards() != self.num_shards) {
    return Differ(self, "num_shards", absl::StrCat(request.num_shards()),
                  absl::StrCat(self.num_shards),
                  "start all shards with the same config");
  }
  AGG_RETURN_IF_ERROR(CheckEpoch(request.epoch(), now));
  AGG_RETURN_IF_ERROR(ValidateText("coordinator", request.coordinator()));
  AGG_RETURN_IF_ERROR(
      ValidateText("config_fingerprint", request.config_fingerprint()));
  AGG_RETURN_IF_ERROR(CheckShards(request, self.num_shards));
  if (request.config_fingerprint() != self.fingerprint) {
    return Differ(self, "config fingerprint", request.config_fingerprint(),
                  self.fingerprint, "start all shards with the same config");
  }
  if (self.ordinal == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("shard 0 (", self.address,
                     ") is attached by the coordinator of its own process and "
                     "by no other"));
  }
  if (request.coordinator_life() == 0) {
    return FieldError(
        "coordinator_life", "0",
        "random bits of the coordinator's process that are not 0");
  }
  return absl::OkStatus();
}

// What is abandoned is forgotten in the same step, so that nobody resumes an
// epoch that is about to end.

void CoordinatorWatch::Begin(uint64_t epoch, uint64_t life) {
  MutexLock lock(&mutex_);
  if (epoch != epoch_) num_streams_ = 0;
  epoch_ = epoch;
  life_ = life;
  ++num_streams_;
}

absl::Status CoordinatorWatch::Resume(uint64_t epoch, uint64_t life) {
  MutexLock lock(&mutex_);
  if (epoch == 0 || epoch != epoch_ || life != life_) {
    return absl::AbortedError(absl::StrCat(
        "epoch ", epoch, " of this coordinator does not go on here"));
  }
  ++num_streams_;
  return absl::OkStatus();
}

void CoordinatorWatch::End(uint64_t epoch) {
  MutexLock lock(&mutex_);
  if (epoch != epoch_ || --num_streams_ > 0) return;
  away_since_ = clock_->Now();
}

std::optional<uint64_t> CoordinatorWatch::TakeAbandoned() {
  const absl::Time now = clock_->Now();
  MutexLock lock(&mutex_);
  if (epoch_ == 0 || num_streams_ > 0 || now - away_since_ < kResumeTime) {
    return std::nullopt;
  }
  const uint64_t epoch = epoch_;
  epoch_ = 0;
  return epoch;
}

// The reactor of Attach, a stream that the coordinator holds open. The first
// request begins an epoch, or resumes it, a later one ends it with a reason. So
// does the stream's end, unless a newer epoch has begun or another stream
// resumes it in time (P24). The engine is called on the control thread, in the
// order of these events.
class ShardControlService::AttachStream
    : public BidiStream<v1::AttachRequest, v1::AttachReply> {
 public:
  static AttachStream* Start(ShardControlService* service) {
    std::shared_ptr<AttachStream> stream(new AttachStream(service));
    stream->Own();
    stream->StartRead(&stream->request_);
    return stream.get();
  }

  // The newest number is enough for a coordinator that reads slowly.
  void SayProgress(uint64_t progress) {
    progress_ = progress;
    Wake();
  }

  void SayDraining() {
    v1::AttachReply draining;
    draining.set_draining(true);
    Send(std::move(draining));
  }

 private:
  explicit AttachStream(ShardControlService* service)
      : BidiStream(service->open_), service_(service) {}

  void OnReadDone(bool ok) override {
    if (!ok) {
      // Before the coordinator sees the end, so that what it does next, or
      // another one does, comes behind it.
      DetachEngine();
      End(absl::OkStatus());
      return;
    }
    const absl::Status status = epoch_ == 0 ? Begin() : Lose(request_.lost());
    if (!status.ok()) {
      End(status);
    } else if (!ended()) {
      StartRead(&request_);
    }
  }

  absl::Status Begin() {
    const absl::Status status =
        CheckAttach(request_, service_->self_, service_->clock_->Now());
    if (!status.ok()) {
      LogWarningOf(WithoutNumbers(status.message()),
                   "refused the coordinator: ", status.message());
      return status;
    }
    epoch_ = request_.epoch();
    life_ = request_.coordinator_life();
    coordinator_ = request_.coordinator();
    shards_.assign(request_.shards().begin(), request_.shards().end());
    resume_ = request_.resume();
    auto self = std::static_pointer_cast<AttachStream>(shared_from_this());
    service_->control_.Run([self] { self->AttachEngine(); });
    return absl::OkStatus();
  }

  absl::Status Lose(const std::string& reason) {
    AGG_RETURN_IF_ERROR(ValidateText("lost", reason, kMaxReasonBytes));
    if (reason.empty()) {
      return absl::InvalidArgumentError(
          "lost is empty; allowed: why the epoch ends, in every AttachRequest "
          "but the first");
    }
    service_->control_.Run([service = service_, epoch = epoch_, reason] {
      // A coordinator that waits for another shard lets go each second.
      if (service->engine_->Status().num_elements > 0) {
        LogWarningOf(WithoutNumbers(reason), "epoch ", epoch,
                     " is over: ", reason);
      } else {
        LogInfoOf(WithoutNumbers(reason), "epoch ", epoch,
                  " is over: ", reason);
      }
      service->engine_->Lose(epoch, absl::UnavailableError(reason));
    });
    return absl::OkStatus();
  }

  void AttachEngine() {
    absl::Status status = service_->TakeClaim(life_, coordinator_);
    claims_ = status.ok();
    if (claims_ && !shards_.empty() && service_->on_shards_ != nullptr) {
      service_->on_shards_(shards_);
    }
    v1::AttachReply reply;
    if (status.ok()) {
      status = resume_ ? service_->ResumeEpoch(epoch_, life_)
                       : service_->BeginEpoch(epoch_, life_, &reply);
    }
    attached_ = status.ok();
    if (!status.ok()) {
      End(status);
      return;
    }
    reply.set_epoch(epoch_);
    reply.set_backend(service_->self_.backend);
    // A shard that has forgotten its rows has another life than its process.
    const uint64_t life = service_->engine_->life();
    reply.set_life(life != 0 ? life : service_->self_.life);
    reply.set_local_socket(service_->self_.local_socket);
    reply.set_region_socket(service_->self_.region_socket);
    Send(std::move(reply));
    service_->stream_ =
        std::static_pointer_cast<AttachStream>(shared_from_this());
    // This coordinator, or this connection, has not heard it.
    if (service_->draining_) SayDraining();
    SendReports();
  }

  void SendReports() {
    const std::weak_ptr<BidiStream> weak = shared_from_this();
    reports_number_ = service_->reports_->Begin(epoch_, [weak] {
      if (auto stream = weak.lock()) stream->Wake();
    });
    Wake();
  }

  // One message of reports is under way at a time: what is complete meanwhile
  // goes into the next one.
  std::optional<v1::AttachReply> MakeMessage() override {
    const RowReport report = service_->reports_->Take(reports_number_);
    if (!report.rows.empty()) {
      return ReportOf(report.rows, report.offer.get());
    }
    const uint64_t progress = progress_;
    if (told_progress_.exchange(progress) == progress) return std::nullopt;
    v1::AttachReply reply;
    reply.set_progress(progress);
    return reply;
  }

  void EndForAll(const absl::Status& reason) override {
    if (IsOrderlyStop(reason)) {
      v1::AttachReply stopping;
      stopping.set_stopping(true);
      Send(std::move(stopping));
    }
    End(reason);
  }

  void OnEnded() override { DetachEngine(); }

  // Takes back what AttachEngine has done; once.
  void DetachEngine() {
    if (epoch_ == 0) return;
    // Runs after AttachEngine, and changes nothing if a newer epoch is on.
    auto self = std::static_pointer_cast<AttachStream>(shared_from_this());
    service_->control_.Run([self] {
      // Else it was refused, and the shard is another coordinator's.
      if (std::exchange(self->claims_, false)) {
        self->service_->claim_.Release(self->life_);
      }
      if (std::exchange(self->attached_, false)) {
        self->service_->EndStream(self->epoch_);
      }
    });
  }

  ShardControlService* const service_;
  v1::AttachRequest request_;
  uint64_t epoch_ = 0;  // 0: no valid request yet
  uint64_t life_ = 0;
  std::string coordinator_;
  std::vector<std::string> shards_;
  bool resume_ = false;
  bool claims_ = false;                     // used on the control thread alone
  bool attached_ = false;                   // the same
  std::atomic<uint64_t> progress_{0};       // of the shard's phases
  std::atomic<uint64_t> told_progress_{0};  // and as this stream has told it
  // Of RowReports; 0: it has not begun.
  std::atomic<uint64_t> reports_number_{0};
};

ShardControlService::ShardControlService(
    const ShardIdentity& self, ShardEngine* engine, NeighbourPeer* copies,
    OnShards on_shards, OpenStreams* open, RowReports* reports,
    const CallerGate* gate, const Clock* clock)
    : self_(self),
      engine_(engine),
      on_shards_(std::move(on_shards)),
      open_(open),
      reports_(reports),
      gate_(gate),
      clock_(clock),
      watch_(clock),
      copies_(copies, self.ordinal, clock) {
  if (self_.ordinal == 0) return;  // its coordinator asks it itself
  engine_->SetOnOffer(
      [reports](uint64_t epoch, std::shared_ptr<const CloseOffer> offer) {
        reports->AddOffer(epoch, std::move(offer));
      });
}

std::string ShardControlService::name() const {
  return absl::StrCat("shard ", self_.ordinal, " (", self_.address, ")");
}

absl::Status ShardControlService::TakeClaim(uint64_t life,
                                            const std::string& coordinator) {
  const absl::Status status = claim_.Take(life, coordinator);
  if (status.ok()) {
    last_refused_life_ = 0;
    return status;
  }
  // It tries again each second: once is enough for the log.
  if (std::exchange(last_refused_life_, life) != life) {
    LogWarning("refused the coordinator ", coordinator, ": ", status.message());
  }
  return status;
}

absl::Status ShardControlService::BeginEpoch(uint64_t epoch, uint64_t life,
                                             v1::AttachReply* reply) {
  AGG_RETURN_IF_ERROR(claim_.CheckPromise(epoch, life));
  AGG_ASSIGN_OR_RETURN(ShardInventory inventory,
                       engine_->Attach(epoch, nullptr));
  claim_.Promise(epoch, life);
  AddInventory(std::move(inventory), reply);
  watch_.Begin(epoch, life);
  LogInfo("attached in epoch ", epoch);
  return absl::OkStatus();
}

absl::Status ShardControlService::ResumeEpoch(uint64_t epoch, uint64_t life) {
  const ShardStatus shard = engine_->Status();
  if (!shard.attached || shard.epoch != epoch) {
    return absl::AbortedError(
        absl::StrCat("epoch ", epoch, " is over on ", name()));
  }
  const absl::Status status = watch_.Resume(epoch, life);
  if (status.ok()) LogInfo("the coordinator is back in epoch ", epoch);
  return status;
}

void ShardControlService::AnnounceDraining() {
  control_.Run([this] {
    draining_ = true;
    const std::shared_ptr<AttachStream> stream = stream_.lock();
    if (stream != nullptr) stream->SayDraining();
  });
}

void ShardControlService::EndStream(uint64_t epoch) {
  watch_.End(epoch);
  LogInfo("the coordinator's stream for epoch ", epoch, " has ended");
  LookForCoordinator();
}

void ShardControlService::SayProgress() {
  const uint64_t progress = engine_->Progress();
  if (said_progress_.exchange(progress) == progress) return;
  control_.Run([this, progress] {
    const std::shared_ptr<AttachStream> stream = stream_.lock();
    if (stream != nullptr) stream->SayProgress(progress);
  });
}

void ShardControlService::LookForCoordinator() {
  reports_->Flush();
  SayProgress();
  const std::optional<uint64_t> epoch = watch_.TakeAbandoned();
  if (!epoch.has_value()) return;
  engine_->Lose(*epoch, absl::UnavailableError(absl::StrCat(
                            "the coordinator is gone (seen by ", name(), ")")));
}

grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachReply>*
ShardControlService::Attach(grpc::CallbackServerContext* context) {
  const absl::Status admitted = Admit(context, "agg.v1.ShardControl/Attach");
  if (!admitted.ok()) {
    return new RefusedCall<
        grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachReply>>(admitted);
  }
  return AttachStream::Start(this);
}

// Hands each call to the engine, on threads that may wait.

absl::Status ShardControlService::Admit(grpc::CallbackServerContext* context,
                                        absl::string_view method) const {
  MarkAnswered(context);
  return AdmitCall(*gate_, *context, method).status();
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

grpc::ServerBidiReactor<v1::PhaseRequest, v1::PhaseReply>*
ShardControlService::RunPhase(grpc::CallbackServerContext* context) {
  const absl::Status admitted = Admit(context, "agg.v1.ShardControl/RunPhase");
  if (!admitted.ok()) {
    return new RefusedCall<
        grpc::ServerBidiReactor<v1::PhaseRequest, v1::PhaseReply>>(admitted);
  }
  return PhaseStream::Start(engine_, {&compute_, &files_, &control_, &memory_},
                            reports_);
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
