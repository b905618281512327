// One thread, five looks per second. The functions that decide are pure, and
// tested without it.
#include "server/housekeeping.h"

#include <malloc.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/job_phase.h"
#include "server/base/process_memory.h"
#include "server/round/phase.h"

namespace agg {

// Phases have numbers, so that a look now and then tells whether it is still
// the same one.

std::string HungPhase::Look(const std::optional<RunningPhase>& running,
                            absl::Time now) {
  const uint64_t number = running.has_value() ? running->number : 0;
  const uint64_t progress = running.has_value() ? running->progress : 0;
  if (number != number_) said_ = false;
  if (number != number_ || progress != progress_) since_ = now;
  number_ = number;
  progress_ = progress;
  if (number == 0 || said_ || now - since_ < timeout_) return "";
  said_ = true;
  return absl::StrCat("phase ", PhaseName(running->kind), " of round ",
                      running->round, " has hung for ",
                      absl::FormatDuration(timeout_),
                      " (phase_timeout_seconds)");
}

namespace {

constexpr absl::Duration kPeriod = absl::Milliseconds(200);
constexpr int kIdlePeriods = 50;    // 10 s
constexpr int kPeriodsASecond = 5;  // 1 s
// TuneMalloc lets malloc keep so much for its next allocation.
constexpr size_t kKeptBytes = size_t{64} << 20;

}  // namespace

Health HealthOf(const ShardStatus& shard, const JobStatus* job) {
  Health health;
  health.shard = shard.open && shard.published;
  if (job == nullptr) {
    health.process = shard.open;
    return health;
  }
  health.coordinator = job->phase != JobPhase::kWaitingForShards &&
                       job->phase != JobPhase::kShardLost &&
                       job->phase != JobPhase::kDraining;
  health.process = health.coordinator;
  return health;
}

absl::Status ReadinessOf(const ShardStatus& shard, const JobStatus* job,
                         const std::string& coordinator) {
  if (HealthOf(shard, job).process) return absl::OkStatus();
  if (job == nullptr && shard.attached) {
    return absl::UnavailableError(
        absl::StrCat("recovering: epoch ", shard.epoch, " is not open yet"));
  }
  if (job == nullptr) {
    return absl::UnavailableError(absl::StrCat(
        "not attached to the coordinator (", coordinator, ") yet"));
  }
  return absl::UnavailableError(absl::StrCat(
      PhaseName(job->phase), job->message.empty() ? "" : ": ", job->message));
}

Housekeeping::Housekeeping(ShardEngine* engine, const Coordinator* coordinator,
                           RpcServer* rpc, AuditTrail* audit,
                           absl::Duration phase_timeout,
                           std::function<void()> each_second)
    : engine_(engine),
      coordinator_(coordinator),
      rpc_(rpc),
      audit_(audit),
      each_second_(std::move(each_second)),
      hung_(phase_timeout),
      thread_([this] { Loop(); }) {}

Housekeeping::~Housekeeping() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
  StopServing();
}

void Housekeeping::StopServing() {
  MutexLock lock(&mutex_);
  serving_ = false;
  SetHealth(Health());
}

void Housekeeping::SetHealth(const Health& health) {
  rpc_->SetServing("", health.process);
  rpc_->SetServing(kCoordinatorHealth, health.coordinator);
  rpc_->SetServing(kShardHealth, health.shard);
}

void Housekeeping::Loop() {
  for (;;) {
    const ShardStatus status = engine_->Status();
    UpdateHealth(status);
    TrimWhenIdle(status);
    // A second apart at least: what was asked for may still be in use.
    if (++look_ % kPeriodsASecond == 0) {
      TrimIfAsked(kKeptBytes);
      if (each_second_ != nullptr) each_second_();
    }
    LookForAHang();
    engine_->ReportLostDevice();
    rpc_->LookForCoordinator();
    audit_->CloseDenials();
    const Clock* const clock = Clock::Real();  // the system's may step back
    const absl::Time next = clock->Now() + kPeriod;
    MutexLock lock(&mutex_);
    while (!stopped_ && clock->Now() < next) {
      changed_.WaitFor(&mutex_, next - clock->Now());
    }
    if (stopped_) return;
  }
}

void Housekeeping::UpdateHealth(const ShardStatus& status) {
  Health health;
  if (coordinator_ == nullptr) {
    health = HealthOf(status, nullptr);
  } else {
    const JobStatus job = coordinator_->Status();
    health = HealthOf(status, &job);
  }
  MutexLock lock(&mutex_);
  if (serving_) SetHealth(health);
}

void Housekeeping::LookForAHang() {
  const std::string text =
      hung_.Look(engine_->running_phase(), TickClock::Real()->Now());
  if (!text.empty()) engine_->ReportHang(absl::UnavailableError(text));
}

void Housekeeping::TrimWhenIdle(const ShardStatus& status) {
  const int64_t traffic =
      status.push_bytes + status.duplicate_bytes + status.pull_bytes;
  if (traffic != traffic_bytes_) {
    traffic_bytes_ = traffic;
    idle_periods_ = 0;
  } else if (++idle_periods_ == kIdlePeriods && traffic > 0) {
    malloc_trim(kKeptBytes);
  }
}

}  // namespace agg
