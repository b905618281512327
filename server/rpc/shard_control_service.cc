// The Attach stream, and the epochs that it begins and ends.
#include "server/rpc/shard_control_service.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/coordinator/call_validation.h"
#include "server/round/orderly_stop.h"
#include "server/round/recovery.h"
#include "server/round/round_report.h"
#include "server/rpc/attach_check.h"
#include "server/rpc/broken_connection.h"
#include "server/rpc/inventory_conversion.h"
#include "server/rpc/refused_call.h"
#include "server/rpc/session_conversion.h"

namespace agg {
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
      LogWarning("refused the coordinator: ", status.message());
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
    const absl::Status status = ValidateText("lost", reason, kMaxReasonBytes);
    if (!status.ok()) return status;
    if (reason.empty()) {
      return absl::InvalidArgumentError(
          "lost is empty; allowed: why the epoch ends, in every AttachRequest "
          "but the first");
    }
    service_->control_.Run([service = service_, epoch = epoch_, reason] {
      // A coordinator that waits for another shard lets go each second.
      if (service->engine_->Status().num_elements > 0) {
        LogWarning("epoch ", epoch, " is over: ", reason);
      } else {
        LogInfo("epoch ", epoch, " is over: ", reason);
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
  absl::Status status = claim_.CheckPromise(epoch, life);
  if (!status.ok()) return status;
  const absl::StatusOr<ShardInventory> inventory =
      engine_->Attach(epoch, nullptr);
  if (!inventory.ok()) return inventory.status();
  claim_.Promise(epoch, life);
  AddInventory(*inventory, reply);
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

}  // namespace agg
