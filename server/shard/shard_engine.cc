// Epochs, the manifest, and status: the parts of a ShardEngine that begin and
// end what the other files work on.
#include "server/shard/shard_engine.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/params/shared_buffer.h"
#include "server/shard/memory_plan.h"
#include "server/shard/shard_checkpoint.h"
#include "server/shard/shard_recovery.h"
#include "server/shard/shard_replication.h"

namespace agg {

ShardEngine::ShardEngine(const ShardOptions& options, Backend* backend,
                         std::function<void(absl::Status)> on_device_lost)
    : options_(options),
      on_device_lost_(std::move(on_device_lost)),
      backend_(backend, &bytes_progress_),
      epoch_(options.ordinal),
      life_(options.life),
      home_(options.ordinal) {
  if (options_.early_gram || (options_.replicated && options_.background)) {
    turn_.StartFiller([this] { Fill(); });
  }
}

// The filler uses all members.
ShardEngine::~ShardEngine() { turn_.StopFiller(); }

std::string ShardEngine::name() const {
  return absl::StrCat("shard ", options_.ordinal, " (this process)");
}

uint64_t ShardEngine::life() const {
  MutexLock lock(&mutex_);
  return life_;
}

absl::StatusOr<uint64_t> ShardEngine::Promise() {
  MutexLock lock(&mutex_);
  return epoch_.promise();
}

absl::StatusOr<ShardInventory> ShardEngine::Attach(
    uint64_t epoch, std::function<void(absl::Status)> on_lost) {
  auto [checkpoints, other_checkpoints] = checkpoints_.ListAll();
  absl::StatusOr<bool> begins = false;
  Closures ready;
  {
    // The promise comes first: what waits for others in a phase of the former
    // epoch ends by it, and gives the turn back.
    MutexLock lock(&mutex_);
    const uint64_t former = epoch_.number();
    NoteMade(checkpoints, epoch);
    begins = epoch_.Begin(epoch, std::move(on_lost));
    if (!begins.ok()) return begins.status();
    Replication::TellReplica(this);
    ready = ResolvePulls();
    if (*begins) {
      for (auto& call : EndProgress(epoch_.Stale(former))) {
        ready.push_back(std::move(call));
      }
    }
    claims_ended_.NotifyAll();
  }
  for (std::function<void()>& callback : ready) callback();
  Former former;
  absl::StatusOr<ShardInventory> inventory =
      Recovery::TakeInventory(this, epoch, *begins, &former);
  if (inventory.ok()) {
    inventory->checkpoints = std::move(checkpoints);
    inventory->other_checkpoints = std::move(other_checkpoints);
  }
  // Pulls of versions that are forgotten end, so that their memory is free
  // before the next manifest allocates its own.
  if (former.compute != nullptr) former.compute->store()->RevokeAll();
  return inventory;
}

absl::StatusOr<Manifest> ShardEngine::GetManifest(uint64_t epoch) {
  MutexLock lock(&mutex_);
  const absl::Status status = epoch_.Check(epoch);
  if (!status.ok()) return status;
  if (compute_ == nullptr) return NoManifest();
  return compute_->layout()->manifest;
}

absl::Status ShardEngine::SetFacts(uint64_t epoch, const JobFacts& facts) {
  MutexLock lock(&mutex_);
  const absl::Status status = epoch_.Check(epoch);
  if (status.ok() && facts_ < facts) facts_ = facts;
  return status;
}

std::string ShardEngine::Record() const {
  MutexLock lock(&mutex_);
  return home_.record() == nullptr ? "" : *home_.record();
}

void ShardEngine::Lose(uint64_t epoch, const absl::Status& reason) {
  Closures ready;
  {
    MutexLock lock(&mutex_);
    if (!epoch_.End(epoch, reason)) return;
    Replication::TellReplica(this);
    const absl::Status end = epoch_.end();
    // Pulls for any epoch: none of them has a version to wait for any more.
    ready = pulls_.Resolve(
        [&](const Pulls::Request&) { return Pulls::Answer(end); });
    for (auto& call : EndProgress(end)) ready.push_back(std::move(call));
    claims_ended_.NotifyAll();
  }
  for (std::function<void()>& callback : ready) callback();
}

void ShardEngine::ReportLostDevice() {
  const absl::Status found = backend_.TakeLostDevice();
  if (!found.ok()) EndForGood(found);
}

std::optional<RunningPhase> ShardEngine::running_phase() const {
  MutexLock lock(&mutex_);
  if (running_.empty()) return std::nullopt;
  RunningPhase running = running_.begin()->second;
  running.progress = bytes_progress_.count();
  return running;
}

void ShardEngine::ReportHang(const absl::Status& reason) { EndForGood(reason); }

void ShardEngine::EndForGood(const absl::Status& found) {
  const absl::Status reason = absl::UnavailableError(
      absl::StrCat("shard ", options_.ordinal, ": ", found.message()));
  std::function<void(absl::Status)> on_lost;
  {
    MutexLock lock(&mutex_);
    on_lost = epoch_.LoseDevice(reason);
  }
  Lose(0, reason);
  if (on_lost != nullptr) on_lost(reason);
  if (on_device_lost_ != nullptr) on_device_lost_(reason);
}

void ShardEngine::ForgetRound() {
  closed_round_ = ClosedRound();
  waves_ = WaveRound();
  unchanged_ = false;
}

ShardEngine::Former ShardEngine::DropManifest() {
  ForgetRound();
  loaded_ = nullptr;
  open_round_ = nullptr;
  DropOffer();
  offered_ = false;
  if (compute_ != nullptr && compute_->replica() != nullptr) {
    // Frames that wait for it would wait for ever.
    compute_->replica()->SetEpoch(0, absl::OkStatus());
  }
  Former former{std::move(compute_), checkpoints_.End()};
  compute_ = nullptr;
  return former;
}

absl::Status ShardEngine::NoManifest() {
  return absl::FailedPreconditionError("no manifest has been set yet");
}

bool ShardEngine::ManifestUnused() {
  return open_round_->unused() && !Recovery::HasCopies(this);
}

absl::Status ShardEngine::ForgetManifest(uint64_t epoch) {
  Former former;
  Closures ready;
  {
    // Whom the callbacks answer may ask for the turn.
    const TurnLock turn(&turn_);
    MutexLock lock(&mutex_);
    const absl::Status status = epoch_.Check(epoch);
    if (!status.ok() || open_round_ == nullptr || !ManifestUnused()) {
      return status;
    }
    former = DropManifest();
    // The first version will be one of another manifest.
    const absl::Status end = absl::AbortedError(
        "the job's manifest was given up before it was seeded, as nobody is in "
        "any more who joined with it");
    ready = pulls_.Resolve(
        [&](const Pulls::Request&) { return Pulls::Answer(end); });
    for (auto& call : EndProgress(end)) ready.push_back(std::move(call));
    claims_ended_.NotifyAll();
  }
  for (std::function<void()>& callback : ready) callback();
  return absl::OkStatus();
}

absl::Status ShardEngine::SetManifest(uint64_t epoch,
                                      const Manifest& manifest) {
  const absl::Status status = InstallManifest(epoch, manifest);
  ReportLostDevice();
  return status;
}

absl::Status ShardEngine::InstallManifest(uint64_t epoch,
                                          const Manifest& manifest) {
  Former former;
  const TurnLock turn(&turn_);
  {
    MutexLock lock(&mutex_);
    absl::Status status = epoch_.Check(epoch);
    if (!status.ok()) return status;
    if (compute_ != nullptr) {
      status = CompareManifests(compute_->layout()->manifest, manifest);
      // It may still change before anybody has joined: another shard may have
      // refused the first one for its size.
      if (status.ok() || !ManifestUnused()) return status;
      former = DropManifest();
    }
  }
  former = Former();  // its memory is free before the new one's is taken
  // Without mutex_: this allocates and touches all memory of the parameters.
  absl::StatusOr<std::unique_ptr<ShardCompute>> compute =
      ShardCompute::Create(options_, &backend_, manifest);
  if (!compute.ok()) return compute.status();
  absl::Status status =
      checkpoints_.Begin(ArraysOf(*(*compute)->layout(), options_.optimizer));
  if (!status.ok()) return status;
  MutexLock lock(&mutex_);
  status = epoch_.Check(epoch);
  if (!status.ok()) {
    former.writer = checkpoints_.End();
    return status;
  }
  compute_ = *std::move(compute);
  open_round_ =
      std::make_unique<OpenRound>(options_, compute_->layout(), &sessions_);
  if (compute_->replica() != nullptr) {
    compute_->replica()->set_wake([this] { turn_.WakeFiller(); });
    Replication::TellReplica(this);
  }
  return absl::OkStatus();
}

ShardStatus ShardEngine::StatusWithDevice() const {
  const DeviceMemoryUse device = backend_.device_memory_use();
  ShardStatus status = Status();
  status.device_memory_total_bytes = device.total_bytes;
  status.device_memory_used_bytes = device.used_bytes;
  return status;
}

ShardStatus ShardEngine::Status() const {
  MutexLock lock(&mutex_);
  ShardStatus status = totals_;
  status.overtaken_pulls = overtaken_pulls_;
  status.ordinal = options_.ordinal;
  status.epoch = epoch_.number();
  status.attached = epoch_.on();
  status.open = epoch_.open();
  status.backend = std::string(backend_.name());
  status.memory_budget_bytes = options_.memory_budget.host_bytes;
  status.device_memory_budget_bytes = options_.memory_budget.device_bytes;
  status.backend_errors = backend_.num_errors();
  const SharedFallbacks fallbacks = CountSharedFallbacks();
  status.shared_rows_refused = fallbacks.rows_refused;
  status.shared_rows_no_memory = fallbacks.rows_no_memory;
  status.shared_versions_refused = fallbacks.versions_refused;
  status.shared_versions_no_memory = fallbacks.versions_no_memory;
  status.staged_rows = fallbacks.rows_staged;
  status.staged_versions = fallbacks.versions_staged;
  if (compute_ == nullptr) return status;
  status.published = open_round_->published();
  status.version = open_round_->version();
  status.num_slices = static_cast<int64_t>(compute_->layout()->slices.size());
  status.num_elements = compute_->layout()->num_parameters;
  const MemoryPlan plan = compute_->PlanWithSuccessors(0);
  status.memory_planned_bytes = plan.host.total();
  status.device_memory_planned_bytes = plan.device.total();
  return status;
}

}  // namespace agg
