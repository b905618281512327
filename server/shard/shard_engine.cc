#include "server/shard/shard_engine.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shard/shard_engine_impl.h"

namespace agg {

absl::Status ShardEngine::Impl::CheckEpoch(uint64_t epoch) const {
  if (!attached_) {
    return absl::UnavailableError(
        absl::StrCat("shard ", options_.ordinal, " waits for its coordinator"));
  }
  if (epoch != epoch_) {
    return absl::AbortedError(
        absl::StrCat("stale epoch ", epoch, "; current epoch ", epoch_));
  }
  return lost_;
}

absl::Status ShardEngine::Impl::Attach(
    uint64_t epoch, std::function<void(absl::Status)> on_lost) {
  std::vector<std::function<void()>> ready;
  {
    // Waits for a phase of the former epoch: its memory must be free before
    // the new one allocates.
    const PhaseLock phase_lock(this);
    MutexLock lock(&mutex_);
    if (epoch < epoch_ || epoch == 0) {
      return absl::AbortedError(
          absl::StrCat("stale epoch ", epoch, "; current epoch ", epoch_));
    }
    if (epoch == epoch_ && lost_.ok()) return absl::OkStatus();
    if (device_lost_) return lost_;
    epoch_ = epoch;
    on_lost_ = std::move(on_lost);
    attached_ = true;
    lost_ = absl::OkStatus();
    DropManifest();
    sessions_.Clear();
    seed_session_ = 0;
    published_ = false;
    version_ = 0;
    closed_ = false;
    closed_rows_.clear();
    ready = pulls_.Resolve(
        [this](const Pulls::Request& request)
            ABSL_NO_THREAD_SAFETY_ANALYSIS { return AnswerPull(request); });
    claims_ended_.NotifyAll();
  }
  for (std::function<void()>& callback : ready) callback();
  return absl::OkStatus();
}

void ShardEngine::Impl::Lose(uint64_t epoch, const absl::Status& reason) {
  std::vector<std::function<void()>> ready;
  {
    MutexLock lock(&mutex_);
    if (epoch != 0 && epoch != epoch_) return;
    if (lost_.ok()) lost_ = reason;
    ready = pulls_.Resolve(
        [this](const Pulls::Request&)
            ABSL_NO_THREAD_SAFETY_ANALYSIS { return Pulls::Answer(lost_); });
    claims_ended_.NotifyAll();
  }
  for (std::function<void()>& callback : ready) callback();
}

void ShardEngine::Impl::ReportLostDevice() {
  const absl::Status found = backend_.TakeLostDevice();
  if (found.ok()) return;
  const absl::Status reason = absl::UnavailableError(
      absl::StrCat("shard ", options_.ordinal, ": ", found.message()));
  std::function<void(absl::Status)> on_lost;
  {
    MutexLock lock(&mutex_);
    device_lost_ = true;
    lost_ = reason;
    on_lost = on_lost_;
  }
  Lose(0, reason);
  if (on_lost != nullptr) on_lost(reason);
  if (on_device_lost_ != nullptr) on_device_lost_(reason);
}

void ShardEngine::Impl::DropManifest() {
  memory_ = PhaseMemory();
  phase_compute_ = nullptr;
  compute_ = nullptr;
  ledger_ = nullptr;
  early_ = EarlyGrams();
  seed_ = nullptr;
}

absl::Status ShardEngine::Impl::ForgetManifest(uint64_t epoch) {
  const PhaseLock phase_lock(this);
  MutexLock lock(&mutex_);
  const absl::Status status = CheckEpoch(epoch);
  if (status.ok() && Unused()) DropManifest();
  return status;
}

absl::Status ShardEngine::Impl::SetManifest(uint64_t epoch,
                                            const Manifest& manifest) {
  const PhaseLock phase_lock(this);
  {
    MutexLock lock(&mutex_);
    absl::Status status = CheckEpoch(epoch);
    if (!status.ok()) return status;
    if (compute_ != nullptr) {
      status = CompareManifests(compute_->layout()->manifest, manifest);
      // Before anybody has joined it may still change: another shard may
      // have refused the first one for its size.
      if (status.ok() || !Unused()) return status;
      DropManifest();
    }
  }
  absl::StatusOr<std::unique_ptr<ShardCompute>> compute =
      ShardCompute::Create(options_, &backend_, manifest);
  if (!compute.ok()) return compute.status();
  MutexLock lock(&mutex_);
  absl::Status status = CheckEpoch(epoch);
  if (!status.ok()) return status;
  compute_ = *std::move(compute);
  ledger_ = std::make_unique<ArrivalLedger>(
      options_.max_workers + 1,
      static_cast<int>(compute_->layout()->slices.size()));
  ExpectRows();
  return absl::OkStatus();
}

ShardEngine::Impl::Pulls::Answer ShardEngine::Impl::AnswerPull(
    const Pulls::Request& request) const {
  const uint64_t epoch = request.epoch == 0 ? epoch_ : request.epoch;
  absl::Status status = CheckEpoch(epoch);
  if (!status.ok()) return Pulls::Answer(status);
  if (!published_) return std::nullopt;
  const uint64_t version = request.latest ? version_ : request.version;
  if (version > version_) return std::nullopt;
  std::shared_ptr<const Snapshot> snapshot = compute_->store()->Find(version);
  if (snapshot == nullptr) {
    return Pulls::Answer(absl::OutOfRangeError(absl::StrCat(
        "version ", version, " is gone; current version ", version_)));
  }
  return Pulls::Answer(
      PublishedVersion{epoch_, version, compute_->layout(), snapshot});
}

int64_t ShardEngine::Impl::Pull(uint64_t epoch, uint64_t version, bool latest,
                                PullCallback callback) {
  Pulls::Answer answer;
  {
    MutexLock lock(&mutex_);
    Pulls::Request request{epoch, version, latest, nullptr};
    answer = AnswerPull(request);
    if (!answer.has_value()) {
      request.callback = std::move(callback);
      return pulls_.Add(std::move(request));
    }
  }
  callback(*std::move(answer));
  return 0;
}

void ShardEngine::Impl::CancelPull(int64_t id) {
  MutexLock lock(&mutex_);
  pulls_.Remove(id);
}

ShardStatus ShardEngine::Impl::StatusWithDevice() const {
  const DeviceMemoryUse device = backend_.device_memory_use();
  ShardStatus status = Status();
  status.device_memory_total_bytes = device.total_bytes;
  status.device_memory_used_bytes = device.used_bytes;
  return status;
}

ShardStatus ShardEngine::Impl::Status() const {
  MutexLock lock(&mutex_);
  ShardStatus status = counters_;
  status.ordinal = options_.ordinal;
  status.epoch = epoch_;
  status.attached = attached_ && lost_.ok();
  status.published = published_;
  status.version = version_;
  status.backend = std::string(backend_.name());
  status.memory_budget_bytes = options_.memory_budget.host_bytes;
  status.device_memory_budget_bytes = options_.memory_budget.device_bytes;
  status.backend_errors = backend_.num_errors();
  if (compute_ != nullptr) {
    status.num_slices = static_cast<int64_t>(compute_->layout()->slices.size());
    status.num_elements = compute_->layout()->num_elements;
    const MemoryPlan plan = compute_->PlanWith(0);
    status.memory_planned_bytes = plan.host.total();
    status.device_memory_planned_bytes = plan.device.total();
  }
  return status;
}

void ShardEngine::Impl::CountPulledBytes(int64_t num_bytes) {
  MutexLock lock(&mutex_);
  counters_.pull_bytes += num_bytes;
}

// --- The facade --------------------------------------------------------------

ShardEngine::ShardEngine(const ShardOptions& options, Backend* backend,
                         std::function<void(absl::Status)> on_device_lost)
    : impl_(std::make_unique<Impl>(options, backend,
                                   std::move(on_device_lost))) {}
ShardEngine::~ShardEngine() = default;

absl::Status ShardEngine::Attach(uint64_t epoch,
                                 std::function<void(absl::Status)> on_lost) {
  return impl_->Attach(epoch, std::move(on_lost));
}
void ShardEngine::Lose(uint64_t epoch, const absl::Status& reason) {
  impl_->Lose(epoch, reason);
}
absl::Status ShardEngine::SetManifest(uint64_t epoch,
                                      const Manifest& manifest) {
  const absl::Status status = impl_->SetManifest(epoch, manifest);
  impl_->ReportLostDevice();
  return status;
}
absl::Status ShardEngine::ForgetManifest(uint64_t epoch) {
  return impl_->ForgetManifest(epoch);
}
absl::Status ShardEngine::SetSession(uint64_t epoch,
                                     const SessionChange& change) {
  const absl::Status status = impl_->SetSession(epoch, change);
  impl_->ReportLostDevice();
  return status;
}
absl::StatusOr<PhaseResult> ShardEngine::RunPhase(const Phase& phase) {
  absl::StatusOr<PhaseResult> result = impl_->RunPhase(phase);
  impl_->ReportLostDevice();
  return result;
}
absl::Status ShardEngine::CheckPushed(const PushedRow& row) const {
  return impl_->CheckPushed(row);
}
std::string ShardEngine::name() const {
  return absl::StrCat("shard ", impl_->options().ordinal, " (this process)");
}
absl::StatusOr<FrameLanding> ShardEngine::BeginFrame(FrameHeader header) {
  return impl_->BeginFrame(std::move(header));
}
absl::StatusOr<FrameResult> ShardEngine::EndFrame(const FrameLanding& landing) {
  return impl_->EndFrame(landing);
}
int64_t ShardEngine::Pull(uint64_t epoch, uint64_t version, bool latest,
                          PullCallback callback) {
  return impl_->Pull(epoch, version, latest, std::move(callback));
}
void ShardEngine::CancelPull(int64_t id) { impl_->CancelPull(id); }
ShardStatus ShardEngine::Status() const { return impl_->Status(); }
ShardStatus ShardEngine::StatusWithDevice() const {
  return impl_->StatusWithDevice();
}
void ShardEngine::CountPulledBytes(int64_t num_bytes) {
  impl_->CountPulledBytes(num_bytes);
}

}  // namespace agg
