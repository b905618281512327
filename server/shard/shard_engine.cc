// Epochs, the manifest and status come first: what begins and ends all that the
// other sections work on.
#include "server/shard/shard_engine.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/base/dcheck.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/ingest/gradient_rows.h"
#include "server/ingest/shard_layout.h"
#include "server/params/parameter_store.h"
#include "server/params/shared_buffer.h"
#include "server/shard/memory_plan.h"
#include "server/shard/open_round.h"
#include "server/shard/shard_checkpoint.h"
#include "server/shard/shard_compute.h"

namespace agg {

// Counts who wants the turn, so that the filler gives way to a phase after the
// batch at hand.
void ComputeTurn::Lock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  {
    MutexLock lock(&mutex_);
    ++num_users_;
  }
  turn_.Lock();
}

bool ComputeTurn::TryLock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (!turn_.TryLock()) return false;
  MutexLock lock(&mutex_);
  ++num_users_;
  return true;
}

void ComputeTurn::Unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  turn_.Unlock();
  MutexLock lock(&mutex_);
  --num_users_;
  changed_.NotifyAll();
}

void ComputeTurn::StartFiller(std::function<void()> fill) {
  filler_ = std::thread([this, fill = std::move(fill)] { RunFiller(fill); });
}

void ComputeTurn::StopFiller() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (filler_.joinable()) filler_.join();
}

void ComputeTurn::WakeFiller() {
  MutexLock lock(&mutex_);
  awake_ = true;
  changed_.NotifyAll();
}

void ComputeTurn::RunFiller(const std::function<void()>& fill) {
  for (;;) {
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && (!awake_ || num_users_ > 0)) changed_.Wait(&mutex_);
      if (stopping_) return;
      // Before the call, so that a wake-up that comes during it counts.
      awake_ = false;
    }
    fill();
  }
}

RowReleaser::RowReleaser() : thread_([this] { Run(); }) {}

RowReleaser::~RowReleaser() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void RowReleaser::Release(std::shared_ptr<const Buffer> row) {
  MutexLock lock(&mutex_);
  rows_.push_back(std::move(row));
  changed_.NotifyAll();
}

void RowReleaser::Wait() {
  MutexLock lock(&mutex_);
  while (releasing_ || !rows_.empty()) changed_.Wait(&mutex_);
}

// Takes all rows that are there, and ends them without the lock.
void RowReleaser::Run() {
  for (;;) {
    std::vector<std::shared_ptr<const Buffer>> rows;
    {
      MutexLock lock(&mutex_);
      releasing_ = false;
      changed_.NotifyAll();
      while (!stopping_ && rows_.empty()) changed_.Wait(&mutex_);
      if (rows_.empty()) return;
      rows = std::exchange(rows_, {});
      releasing_ = true;
    }
  }
}

// Each phase is computed at its first call; a repeat gets the stored result
// (P7).

namespace {

// The positions in the layout of the slices of `tensors` (ascending).
std::vector<int32_t> SlicesOf(const ShardLayout& layout,
                              const std::vector<int32_t>& tensors) {
  std::vector<int32_t> slices;
  for (size_t i = 0; i < layout.slices.size(); ++i) {
    const int32_t tensor = layout.plan.slices[layout.slices[i]].tensor;
    if (std::binary_search(tensors.begin(), tensors.end(), tensor)) {
      slices.push_back(static_cast<int32_t>(i));
    }
  }
  return slices;
}

}  // namespace

ClosedRound::ClosedRound(std::vector<RoundRow> rows,
                         std::vector<uint32_t> row_crc32c,
                         std::vector<int32_t> incomplete_ranks)
    : rows_(std::move(rows)), row_crc32c_(std::move(row_crc32c)) {
  if (incomplete_ranks.empty()) return;
  // Kept as the result although nothing was computed: a repeat must not find
  // the rows complete meanwhile.
  close_.emplace();
  close_->incomplete_ranks = std::move(incomplete_ranks);
}

absl::StatusOr<PhaseResult> ClosedRound::Close(
    ShardCompute* compute, std::vector<std::optional<SliceGram>> early) {
  AGG_DCHECK(!close_.has_value());
  std::vector<int32_t> missing;
  for (size_t slice = 0; slice < early.size(); ++slice) {
    if (!early[slice].has_value()) {
      missing.push_back(static_cast<int32_t>(slice));
    }
  }
  AGG_ASSIGN_OR_RETURN(std::vector<SliceGram> rest,
                       compute->Gram(rows_, missing, /*compensated=*/false));
  std::vector<SliceGram> grams;
  grams.reserve(early.size());
  auto next = rest.begin();
  for (std::optional<SliceGram>& gram : early) {
    grams.push_back(gram.has_value() ? *std::move(gram) : std::move(*next++));
  }
  close_.emplace();
  close_->row_crc32c = row_crc32c_;
  close_->grams = std::move(grams);
  return *close_;
}

absl::StatusOr<PhaseResult> ClosedRound::CloseSlices(
    ShardCompute* compute, const std::vector<int32_t>& slices) {
  PhaseResult result;
  if (!rows_.empty()) {
    AGG_ASSIGN_OR_RETURN(result.grams,
                         compute->Gram(rows_, slices, /*compensated=*/false));
  }
  close_ = std::move(result);
  return *close_;
}

absl::StatusOr<PhaseResult> ClosedRound::CompensatedGram(
    ShardCompute* compute, const std::vector<int32_t>& tensors) {
  if (compensated_.has_value() && compensated_tensors_ == tensors) {
    return *compensated_;
  }
  AGG_ASSIGN_OR_RETURN(
      std::vector<SliceGram> grams,
      compute->Gram(rows_, SlicesOf(*compute->layout(), tensors),
                    /*compensated=*/true));
  compensated_tensors_ = tensors;
  compensated_.emplace();
  compensated_->grams = std::move(grams);
  return *compensated_;
}

absl::StatusOr<PhaseResult> ClosedRound::Norms(ShardCompute* compute,
                                               const StepPlan& step) {
  if (norms_.has_value()) return *norms_;
  AGG_ASSIGN_OR_RETURN(std::vector<SliceNorms> norms,
                       compute->Norms(rows_, step));
  norms_.emplace();
  norms_->norms = std::move(norms);
  return *norms_;
}

absl::Status ClosedRound::TakeMemory(ShardCompute* compute, int* num_revoked) {
  *num_revoked = 0;
  if (updated_ != nullptr || next_ != nullptr) return absl::OkStatus();
  absl::StatusOr<std::shared_ptr<Snapshot>> next =
      compute->store()->NextSnapshot(num_revoked);
  if (next.ok()) next_ = *std::move(next);
  return next.status();
}

absl::Status ClosedRound::Update(ShardCompute* compute, const StepPlan& step) {
  AGG_DCHECK(updated_ != nullptr || next_ != nullptr);
  if (updated_ != nullptr) return absl::OkStatus();
  std::shared_ptr<Snapshot> snapshot = std::move(next_);
  absl::Status status =
      compute->Update(rows_, step, snapshot, &not_finite_slice_);
  if (status.ok()) updated_ = std::move(snapshot);
  return status;
}

ShardEngine::ShardEngine(const ShardOptions& options, Backend* backend,
                         std::function<void(absl::Status)> on_device_lost)
    : options_(options),
      on_device_lost_(std::move(on_device_lost)),
      backend_(backend, &bytes_progress_),
      epoch_(options.ordinal),
      life_(options.life),
      home_(options.ordinal) {
  AGG_DCHECK(!options.pipelined ||
             (!options.replicated && !options.early_gram));
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

absl::StatusOr<PhaseResult> ShardEngine::RunJobPhase(const Phase& phase) {
  absl::StatusOr<PhaseResult> result = PhaseResult();
  absl::Status status;
  if (phase.kind == PhaseKind::kSetManifest) {
    status = InstallManifest(phase.epoch, *phase.manifest);
  } else if (phase.kind == PhaseKind::kGetManifest) {
    result = ReportManifest(phase.epoch);
  } else if (phase.kind == PhaseKind::kForgetManifest) {
    status = GiveUpManifest(phase.epoch);
  } else if (phase.kind == PhaseKind::kReserveRow) {
    status = EnsureRow(phase.epoch, phase.session.rank, phase.session.session);
  } else if (phase.kind == PhaseKind::kSetSession) {
    status = ChangeSession(phase.epoch, phase.session);
  } else {
    status = TakeFacts(phase.epoch, phase.facts);
  }
  ReportLostDevice();
  if (!status.ok()) return status;
  return result;
}

absl::StatusOr<PhaseResult> ShardEngine::ReportManifest(uint64_t epoch) const {
  MutexLock lock(&mutex_);
  AGG_RETURN_IF_ERROR(epoch_.Check(epoch));
  if (compute_ == nullptr) return NoManifest();
  PhaseResult result;
  result.job_manifest = std::shared_ptr<const Manifest>(
      compute_->layout(), &compute_->layout()->manifest);
  return result;
}

absl::Status ShardEngine::TakeFacts(uint64_t epoch, const JobFacts& facts) {
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
    ready = EndPulls(end);
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

ShardEngine::Former ShardEngine::DropManifest() {
  round_ = RoundInWork();
  loaded_ = nullptr;
  open_round_ = nullptr;
  ForgetOffer();
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
  AGG_DCHECK(open_round_ != nullptr);
  return open_round_->unused() && !Recovery::HasCopies(this);
}

absl::Status ShardEngine::GiveUpManifest(uint64_t epoch) {
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
    ready = EndPulls(end);
    claims_ended_.NotifyAll();
  }
  for (std::function<void()>& callback : ready) callback();
  return absl::OkStatus();
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
  AGG_ASSIGN_OR_RETURN(std::unique_ptr<ShardCompute> compute,
                       ShardCompute::Create(options_, &backend_, manifest));
  AGG_RETURN_IF_ERROR(
      checkpoints_.Begin(ArraysOf(*compute->layout(), options_.optimizer)));
  MutexLock lock(&mutex_);
  absl::Status status = epoch_.Check(epoch);
  if (!status.ok()) {
    former.writer = checkpoints_.End();
    return status;
  }
  compute_ = std::move(compute);
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

// Workers' sessions and the memory of their rows: the phases kSetSession and
// kReserveRow of a ShardEngine.

absl::Status ShardEngine::CheckRank(uint64_t epoch, int32_t rank) const {
  AGG_RETURN_IF_ERROR(epoch_.Check(epoch));
  if (compute_ == nullptr) return NoManifest();
  if (rank < 0 || rank >= options_.max_workers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank is ", rank, "; allowed: 0 to ", options_.max_workers - 1));
  }
  return absl::OkStatus();
}

absl::Status ShardEngine::EnsureRow(uint64_t epoch, int32_t rank,
                                    uint64_t session) {
  std::shared_ptr<ShardCompute> compute;
  MemoryPlan plan;
  bool succeeds = false;
  {
    MutexLock lock(&mutex_);
    absl::Status status = CheckRank(epoch, rank);
    if (!status.ok() || compute_->rows()->HasCommon(rank)) return status;
    // In a recovery a session goes on in its own row. One that this shard has
    // not heard of needs a row, whatever the one that lives here has.
    if (!epoch_.open() && session != 0 &&
        compute_->rows()->Granted(rank, session)) {
      return status;
    }
    compute = compute_;
    plan = compute->PlanWith(1);
    succeeds = compute->rows()->HasGranted(rank);
  }
  // Without the lock: a row may be gigabytes, and frames of the other workers
  // must go on landing.
  AwaitEndedRows();  // whose memory the plan does not count
  std::unique_ptr<Buffer> successor =
      succeeds ? compute->AllocateSuccessor() : nullptr;
  if (successor == nullptr) {
    AGG_ASSIGN_OR_RETURN(successor, compute->AllocateRow(plan));
  }
  MutexLock lock(&mutex_);
  if (compute_ != compute) {
    return absl::FailedPreconditionError("the manifest has changed meanwhile");
  }
  // Of two Joins one has been quicker; the other's row ends without the lock.
  successor = compute->rows()->Add(rank, std::move(successor));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ShardEngine::OwnerOf(uint64_t epoch,
                                                 uint64_t session) const {
  MutexLock lock(&mutex_);
  AGG_RETURN_IF_ERROR(epoch_.CheckOpen(epoch));
  return sessions_.Owner(session);
}

void ShardEngine::DropEndedRows(int32_t rank) {
  const auto alive = sessions_.alive().find(rank);
  const uint64_t now = alive == sessions_.alive().end() ? 0 : alive->second;
  const uint64_t held = open_round_->HeldSession(rank);
  auto dropped = compute_->rows()->Keep(rank, [now, held](uint64_t session) {
    return session == now || session == held;
  });
  for (auto& [session, row] : dropped) {
    // Its process may live on, frozen, and would hold the memory. One whose
    // lease ran out may come back, with a gradient that is nowhere else.
    if (absl::IsAborted(sessions_.Rank(session).status())) {
      const std::shared_ptr<Region> region = SharedBuffer::RegionOf(row.get());
      if (region != nullptr) region->EmptyAtEnd();
    }
    releaser_.Release(std::move(row));
  }
}

void ShardEngine::DropAllEndedRows() {
  for (int32_t rank = 0; rank < options_.max_workers; ++rank) {
    DropEndedRows(rank);
  }
}

absl::Status ShardEngine::FinishJob(uint64_t epoch) {
  Closures ready;
  {
    MutexLock lock(&mutex_);
    const absl::Status status = epoch_.Check(epoch);
    if (!status.ok() || open_round_ == nullptr) return status;
    open_round_->Finish();
    ready = ResolvePulls();
  }
  for (std::function<void()>& callback : ready) callback();
  return absl::OkStatus();
}

bool ShardEngine::HasOwnRow(const SessionChange& change) {
  MutexLock lock(&mutex_);
  return compute_ != nullptr && change.rank >= 0 &&
         change.rank < options_.max_workers &&
         compute_->rows()->Granted(change.rank, change.session);
}

absl::Status ShardEngine::ChangeSession(uint64_t epoch,
                                        const SessionChange& change) {
  if (change.finished) return FinishJob(epoch);
  for (;;) {
    if (!change.remove) {
      // Allocates nothing if the coordinator has reserved the row (P32).
      AGG_RETURN_IF_ERROR(HasOwnRow(change)
                              ? absl::OkStatus()
                              : EnsureRow(epoch, change.rank, change.session));
    }
    MutexLock lock(&mutex_);
    AGG_RETURN_IF_ERROR(CheckRank(epoch, change.rank));
    // The session before may have been granted the row meanwhile (P39).
    if (!change.remove && !HasRow(change)) continue;
    TakeChange(change);
    return absl::OkStatus();
  }
}

bool ShardEngine::HasRow(const SessionChange& change) const {
  return compute_->rows()->Find(change.rank, change.session) != nullptr;
}

void ShardEngine::TakeChange(const SessionChange& change) {
  const uint64_t ended = change.remove ? change.session : change.replaces;
  if (ended != 0) {
    if (!change.keep_row) ForgetOffered(ended);
    // A superseded worker stays away; one whose lease ran out may come back.
    sessions_.End(ended, change.remove && !change.evicted
                             ? absl::NotFoundError(change.reason)
                             : absl::AbortedError(change.reason));
  }
  if (!change.remove) {
    sessions_.Begin(change.session, change.rank, change.first_round,
                    change.client, change.identity);
  }
  open_round_->ChangeSession(change);
  DropEndedRows(change.rank);
  WakeFiller();
  claims_ended_.NotifyAll();  // frames of an ended session stop waiting
}

// Landing frames: the Push part of a ShardEngine (P5). The transport copies the
// payload between BeginFrame and EndFrame, so that the only copy of a gradient
// goes from the socket's buffers to the row, under no lock.

namespace {

// The first slice whose bytes were copied and had another checksum, or null.
const SliceLanding* FindBadSlice(const FrameLanding& landing) {
  const auto bad =
      std::find_if(landing.slices.begin(), landing.slices.end(),
                   [](const SliceLanding& slice) {
                     return slice.destination != nullptr && !slice.landed;
                   });
  return bad == landing.slices.end() ? nullptr : &*bad;
}

absl::Status OtherSum(const SliceLanding& bad) {
  return absl::DataLossError(absl::StrCat(
      "slice ", bad.slice,
      " arrived with another CRC32C than meta.crc32c says; push it again"));
}

// Whether the open round has the landing's row completely.
bool Completes(const FrameLanding& landing,
               const absl::StatusOr<bool>& complete) {
  return complete.ok() && *complete && !landing.closed &&
         landing.header.kind == PushKind::kGradient;
}

}  // namespace

absl::Status ShardEngine::AdmitFrame(FrameLanding* landing) const {
  AGG_RETURN_IF_ERROR(epoch_.CheckOpen(landing->header.epoch));
  AGG_ASSIGN_OR_RETURN(const int32_t rank,
                       sessions_.Rank(landing->header.session));
  landing->rank = rank;
  // A session is alive, so there is a manifest.
  return open_round_->Admit(landing);
}

absl::Status ShardEngine::CheckPlace(const FrameLanding& landing,
                                     ShardCompute* compute) {
  const FrameHeader& header = landing.header;
  if (!header.in_place) return absl::OkStatus();
  const GradientRows& rows = *compute->rows();
  if (!rows.Granted(landing.rank, header.session)) {
    return absl::InvalidArgumentError(
        "meta.in_place is set, and this session has no region here; "
        "allowed: after it has asked for one (P39)");
  }
  if (header.on_device &&
      rows.Find(landing.rank, header.session)->device_share() == nullptr) {
    return absl::InvalidArgumentError(
        "meta.on_device is set, and this session's row has no side on a device "
        "that others can map; allowed: where RegionReply.row_device was set "
        "(P47)");
  }
  return absl::OkStatus();
}

absl::StatusOr<FrameLanding> ShardEngine::BeginFrame(FrameHeader header) {
  FrameLanding landing;
  landing.header = std::move(header);
  std::shared_ptr<ShardCompute> compute;
  std::shared_ptr<const Buffer> row;
  const auto destination = [&](int32_t slice) {
    return compute->LandingPlace(landing.header.kind, landing.rank,
                                 landing.header.session, slice);
  };
  {
    MutexLock lock(&mutex_);
    // Everything is checked again after a wait: the session may have ended.
    for (;;) {
      AGG_RETURN_IF_ERROR(AdmitFrame(&landing));
      compute = compute_;
      AGG_RETURN_IF_ERROR(CheckPlace(landing, compute.get()));
      AGG_RETURN_IF_ERROR(ParkOffered(landing));
      if (landing.header.kind == PushKind::kSeed && !landing.closed) {
        AGG_RETURN_IF_ERROR(compute->TakeSeed());
      }
      if (open_round_->TryClaim(destination, &landing)) break;
      claims_ended_.Wait(&mutex_);
    }
    row = compute->rows()->Find(landing.rank, landing.header.session);
    for (const SliceLanding& slice : landing.slices) {
      if (slice.destination != nullptr) continue;
      totals_.duplicate_bytes += slice.num_bytes;
    }
  }
  // What the worker leaves out counts as zero (FrameMeta.absent_slices).
  for (const int32_t slice : landing.absent) {
    compute->rows()->Clear(*row, slice);
  }
  landing.owner = std::move(compute);
  landing.row = std::move(row);
  return landing;
}

absl::Status ShardEngine::CheckOwner(const FrameLanding& landing) const {
  if (compute_ == landing.owner) return absl::OkStatus();
  return epoch_.Stale(landing.header.epoch);
}

// The backend may begin to copy what has landed to its device, unless it is
// there.
void ShardEngine::NotifyRowLanded(const FrameLanding& landing,
                                  ShardCompute* compute) {
  if (landing.header.kind != PushKind::kGradient) return;
  const ShardLayout& layout = *compute->layout();
  const Buffer* const row = landing.row.get();
  for (const SliceLanding& slice : landing.slices) {
    if (landing.header.on_device) break;
    if (slice.destination == nullptr || !slice.landed) continue;
    backend_.RowLanded(*row, landing.header.dtype,
                       layout.ranges[layout.local_slice[slice.slice]]);
  }
  for (const int32_t slice : landing.absent) {
    backend_.RowLanded(*row, landing.header.dtype, layout.ranges[slice]);
  }
}

void ShardEngine::CountLanded(const FrameLanding& landing) {
  for (const SliceLanding& slice : landing.slices) {
    if (slice.destination == nullptr || !slice.landed) continue;
    totals_.push_bytes += slice.num_bytes;
    if (landing.header.in_place) totals_.push_bytes_in_place += slice.num_bytes;
    if (landing.header.on_device) {
      totals_.push_bytes_on_device += slice.num_bytes;
    }
  }
  if (FindBadSlice(landing) != nullptr) ++totals_.crc_errors;
}

void ShardEngine::TellOfWaves(const FrameHeader& header, int32_t waves) {
  if (waves == 0 || on_complete_ == nullptr) return;
  on_complete_(header.epoch,
               {{header.session, header.round, header.attempt, waves}});
}

absl::StatusOr<FrameResult> ShardEngine::EndFrame(const FrameLanding& landing) {
  std::shared_ptr<ShardCompute> compute;
  {
    MutexLock lock(&mutex_);
    AGG_RETURN_IF_ERROR(CheckOwner(landing));
    compute = compute_;
  }
  // Before the row can be complete, hence before any phase reads it.
  NotifyRowLanded(landing, compute.get());
  FrameResult result;
  result.closed = landing.closed;
  absl::StatusOr<bool> complete = landing.closed;
  absl::Status epoch;
  {
    MutexLock lock(&mutex_);
    AGG_RETURN_IF_ERROR(CheckOwner(landing));
    // What has landed stays, but is not acknowledged: its worker asks in the
    // new epoch what it owes (P27).
    if (epoch_.number() != landing.header.epoch) {
      epoch = epoch_.Stale(landing.header.epoch);
    }
    result.waves = open_round_->EndClaims(landing);
    CountLanded(landing);
    WakeFiller();
    claims_ended_.NotifyAll();
    if (!landing.closed) complete = open_round_->Complete(landing);
    result.round_complete = epoch.ok() && Completes(landing, complete) &&
                            !open_round_->CompleteRound().empty();
  }
  result.more = options_.reports_together && !result.round_complete;
  if (result.round_complete) OfferClose(landing.header.epoch);
  TellOfWaves(landing.header, result.waves);
  const SliceLanding* const bad = FindBadSlice(landing);
  if (bad != nullptr) return OtherSum(*bad);
  if (!complete.ok()) return complete.status();
  if (!epoch.ok()) return epoch;
  result.acknowledge = *complete;
  return result;
}

absl::Status ShardEngine::CheckEpoch(uint64_t epoch) const {
  MutexLock lock(&mutex_);
  return epoch_.Check(epoch);
}

absl::Status ShardEngine::CheckPushed(const PushedRow& pushed) const {
  MutexLock lock(&mutex_);
  // The coordinator itself refuses commits of a lost epoch and of an ended
  // session, with the better message.
  const absl::StatusOr<int32_t> rank = sessions_.Rank(pushed.session);
  if (!epoch_.Check(pushed.epoch).ok() || open_round_ == nullptr ||
      !rank.ok() || !open_round_->LacksSlices(pushed, *rank)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "commit of ",
      pushed.kind == PushKind::kSeed ? std::string("the seed")
                                     : absl::StrCat("round ", pushed.round),
      ": its push is incomplete on shard ", options_.ordinal,
      "; push its slices again and commit after all acknowledgements"));
}

// Pulls of published versions, at once or when they are published: the Pull
// part of a ShardEngine.

ShardEngine::Pulls::Answer ShardEngine::AnswerPull(
    const Pulls::Request& request) const {
  const absl::Status status =
      epoch_.CheckOpen(request.epoch == 0 ? epoch_.number() : request.epoch);
  if (!status.ok()) return Pulls::Answer(status);
  if (open_round_ == nullptr || !open_round_->published()) {
    // Version 0 is the next one.
    if (request.latest || request.version == 0) return std::nullopt;
    return Pulls::Answer(absl::OutOfRangeError(
        absl::StrCat("version ", request.version,
                     " is not the next one; no version is published yet")));
  }
  const uint64_t current = open_round_->version();
  const uint64_t version = request.latest ? current : request.version;
  if (version > current && open_round_->finished()) {
    return Pulls::Answer(open_round_->FinishedError());
  }
  if (version == current + 1) {
    if (!request.partial || written_ == nullptr) return std::nullopt;
    return Pulls::Answer(PublishedVersion{
        epoch_.number(), version, compute_->layout(), written_, progress_});
  }
  if (version > current) {
    return Pulls::Answer(absl::OutOfRangeError(
        absl::StrCat("version ", version,
                     " is not the next one; current version ", current)));
  }
  std::shared_ptr<const Snapshot> snapshot = compute_->store()->Find(version);
  if (snapshot == nullptr) {
    return Pulls::Answer(absl::OutOfRangeError(absl::StrCat(
        "version ", version, " is gone; current version ", current)));
  }
  return Pulls::Answer(PublishedVersion{epoch_.number(), version,
                                        compute_->layout(), std::move(snapshot),
                                        /*progress=*/nullptr});
}

ShardEngine::Closures ShardEngine::EndProgress(const absl::Status& reason) {
  if (progress_ == nullptr) return {};
  written_ = nullptr;
  return {[progress = std::exchange(progress_, nullptr), reason] {
    progress->Fail(reason);
  }};
}

ShardEngine::Closures ShardEngine::EndPulls(const absl::Status& reason) {
  Closures ready = pulls_.Resolve(
      [&](const Pulls::Request&) { return Pulls::Answer(reason); });
  for (auto& call : EndProgress(reason)) ready.push_back(std::move(call));
  return ready;
}

// Resolve calls back at once, with mutex_ held, which the analysis cannot see.
ShardEngine::Closures ShardEngine::ResolvePulls() {
  return pulls_.Resolve(
      [this](const Pulls::Request& request)
          ABSL_NO_THREAD_SAFETY_ANALYSIS { return AnswerPull(request); });
}

int64_t ShardEngine::Pull(uint64_t epoch, uint64_t version, bool latest,
                          PullCallback callback, bool partial) {
  Pulls::Answer answer;
  {
    MutexLock lock(&mutex_);
    Pulls::Request request{epoch, version, latest, nullptr, partial};
    answer = AnswerPull(request);
    if (!answer.has_value()) {
      request.callback = std::move(callback);
      return pulls_.Add(std::move(request));
    }
  }
  callback(*std::move(answer));
  return 0;
}

void ShardEngine::CancelPull(int64_t id) {
  MutexLock lock(&mutex_);
  pulls_.Remove(id);
}

void ShardEngine::CountOvertakenPull() { ++overtaken_pulls_; }

void ShardEngine::CountPulledBytes(int64_t num_bytes, bool in_place,
                                   bool on_device) {
  MutexLock lock(&mutex_);
  totals_.pull_bytes += num_bytes;
  if (in_place) totals_.pull_bytes_in_place += num_bytes;
  if (on_device) totals_.pull_bytes_on_device += num_bytes;
}

// Computation: the coordinator's phases up to the decision about a round, and
// early Grams in the gaps between them, which hide behind the network. Close
// takes the early Grams that fit its rows and computes the rest; the bits are
// the same either way, since a slice's Gram depends on its rows alone
// (kernels/backend.h).

// --- In the gaps -------------------------------------------------------------

void ShardEngine::Fill() {
  if (options_.replicated && options_.background) {
    const TurnLock turn(&turn_);
    std::shared_ptr<ShardCompute> compute;
    {
      MutexLock lock(&mutex_);
      compute = compute_;
    }
    const absl::Status status = Replication::StepReplica(compute.get());
    // The replica is void now, and the epoch goes on: no phase is there to tell
    // the coordinator. The next round cannot be prepared without the replica;
    // this ends the epoch (P9), and the copy is fetched (P19).
    if (!status.ok()) {
      LogWarningOf("replica",
                   "the step of a replica failed; its copy is void: ",
                   status.ToString());
    }
  }
  if (options_.early_gram) ComputeEarlyBatch();
  ReportLostDevice();
}

void ShardEngine::WakeFiller() {
  if (open_round_->early()->any_ready()) turn_.WakeFiller();
}

void ShardEngine::ComputeEarlyBatch() {
  const TurnLock turn(&turn_);
  EarlyGrams::Batch batch;
  RowBuffers rows;
  std::shared_ptr<ShardCompute> compute;
  {
    MutexLock lock(&mutex_);
    // A phase may have come first and closed the round, or its epoch.
    if (!epoch_.open() || open_round_ == nullptr ||
        !open_round_->early()->any_ready()) {
      return;
    }
    compute = compute_;
    batch = open_round_->early()->Take(compute->layout()->ranges,
                                       compute->gram_products_at_once());
    // Under the lock: a session may end as soon as it is free.
    rows = RowBuffers(*compute->rows(), batch.rows);
  }
  absl::StatusOr<std::vector<SliceGram>> grams =
      compute->Gram(rows, batch.slices, /*compensated=*/false);
  MutexLock lock(&mutex_);
  if (grams.ok()) {
    open_round_->early()->Finish(*std::move(grams));
  } else {
    // Close tries again, and its error is the round's.
    LogWarningOf("early Gram", "early Gram: ", grams.status().ToString());
    open_round_->early()->GiveUp();
  }
  claims_ended_.NotifyAll();
  WakeFiller();
}

// --- Phases ------------------------------------------------------------------

namespace {

bool WaitsForADisk(PhaseKind kind) {
  return kind == PhaseKind::kCheckpointProgress || kind == PhaseKind::kSeal ||
         kind == PhaseKind::kReadManifest || kind == PhaseKind::kVerify;
}

// Whether the phase belongs to a round, or to the seed before the first one.
bool IsOfRounds(PhaseKind kind) { return kind <= PhaseKind::kLoadSeed; }

absl::Status OtherRows(const Phase& phase) {
  return absl::FailedPreconditionError(absl::StrCat(
      "round ", phase.round, " was closed with other rows before"));
}

bool NeedsGrams(const Phase& phase) {
  return phase.kind == PhaseKind::kCompensatedGram ||
         phase.kind == PhaseKind::kNorms ||
         (phase.kind == PhaseKind::kUpdate && !phase.publish.unchanged);
}

}  // namespace

absl::Status ShardEngine::CheckClosed(const Phase& phase) const {
  if (!open_round_->closed() && Offered(phase.rows)) return absl::OkStatus();
  if (!round_.closed.has_grams()) {
    return absl::FailedPreconditionError(
        phase.rows.empty()
            ? absl::StrCat("round ", phase.round, " has not been closed")
            : absl::StrCat("round ", phase.round,
                           " is to be closed with rows that are not offered"));
  }
  if (phase.rows.empty() || round_.closed.rows() == phase.rows) {
    return absl::OkStatus();
  }
  return OtherRows(phase);
}

absl::Status ShardEngine::CheckPhase(const Phase& phase) const {
  const absl::Status status = epoch_.Check(phase.epoch);
  if (!status.ok() || !IsOfRounds(phase.kind)) return status;
  if (open_round_ == nullptr) return NoManifest();
  if (!epoch_.open()) {
    return absl::FailedPreconditionError(
        absl::StrCat("phase ", PhaseName(phase.kind), " of a shard that is ",
                     "recovering; ", home_.Describe()));
  }
  const bool published = open_round_->published();
  const uint64_t version = open_round_->version();
  const bool publish = phase.kind == PhaseKind::kPublish;
  const bool repeated =
      publish && published && phase.publish.version == version;
  const bool seed =
      phase.kind == PhaseKind::kLoadSeed || (publish && phase.publish.seed);
  if (repeated || seed || HasPublished(phase)) return absl::OkStatus();
  if (!published || phase.round != version) {
    return absl::FailedPreconditionError(
        absl::StrCat("phase of round ", phase.round, "; the open round is ",
                     published ? absl::StrCat(version) : "none"));
  }
  return NeedsGrams(phase) ? CheckClosed(phase) : absl::OkStatus();
}

absl::StatusOr<PhaseResult> ShardEngine::RunPhase(const Phase& phase) {
  if (IsOfJob(phase.kind)) return RunJobPhase(phase);
  if (WaitsForADisk(phase.kind)) return RunCheckpointPhase(phase);
  const absl::Time start = absl::Now();
  absl::StatusOr<PhaseResult> result = absl::UnknownError("");
  Closures ready;
  uint64_t number;
  {
    MutexLock lock(&mutex_);
    number = ++num_phases_;
    running_[number] = {number, phase.kind, phase.round, /*progress=*/0};
  }
  {
    const TurnLock turn(&turn_);
    result = phase.wave == 0 ? Dispatch(phase, &ready)
                             : Waves::Run(this, phase, &ready);
  }
  if (result.ok()) result->seconds = absl::ToDoubleSeconds(absl::Now() - start);
  for (std::function<void()>& callback : ready) callback();
  {
    MutexLock lock(&mutex_);
    running_.erase(number);
  }
  ReportLostDevice();
  return result;
}

absl::StatusOr<PhaseResult> ShardEngine::Dispatch(const Phase& phase,
                                                  Closures* ready) {
  std::shared_ptr<ShardCompute> compute;
  {
    MutexLock lock(&mutex_);
    AGG_RETURN_IF_ERROR(CheckPhase(phase));
    compute = compute_;
    // Not a repeat of what has published: its round is over.
    if (NeedsGrams(phase) && phase.round == open_round_->version() &&
        !open_round_->closed() && Offered(phase.rows)) {
      TakeOffer();
    }
  }
  if (IsOfRounds(phase.kind)) {
    AGG_RETURN_IF_ERROR(
        Replication::StepInPhase(this, phase.epoch, compute.get()));
  }
  switch (phase.kind) {
    case PhaseKind::kClose:
      return Close(phase, compute.get());
    case PhaseKind::kCompensatedGram:
      return round_.closed.CompensatedGram(compute.get(), phase.tensors);
    case PhaseKind::kNorms:
      return round_.closed.Norms(compute.get(), phase.step);
    case PhaseKind::kUpdate:
      return RunUpdate(phase, compute.get(), ready);
    case PhaseKind::kPublish:
      return Publish(phase, compute.get(), ready);
    case PhaseKind::kAbandon:
      return Abandon();
    case PhaseKind::kLoadSeed:
      return LoadSeed(phase, compute.get());
    case PhaseKind::kRecover:
    case PhaseKind::kFetch:
    case PhaseKind::kOpen:
      return Recovery::Run(this, phase, compute.get(), ready);
    case PhaseKind::kCapture:
      return Capture(phase, compute.get());
    default:
      break;  // RunPhase has run it
  }
  return absl::InvalidArgumentError(
      absl::StrCat("phase.kind is ", static_cast<int>(phase.kind)));
}

absl::Status ShardEngine::MarkClosed(const Phase& phase) {
  if (open_round_->closed()) {
    return round_.closed.rows() == phase.rows ? absl::OkStatus()
                                              : OtherRows(phase);
  }
  if (phase.rows.empty()) {
    return absl::InvalidArgumentError(
        "close.rows is empty; allowed: 1 or more");
  }
  if (Offered(phase.rows)) {
    TakeOffer();
    return absl::OkStatus();
  }
  DropOffer();
  std::vector<int32_t> incomplete_ranks;
  std::vector<uint32_t> row_crc32c;
  for (const RoundRow& row : phase.rows) {
    // A shard without slices has complete rows without memory for them.
    if (!open_round_->RowComplete(row) ||
        compute_->rows()->Find(row.rank, row.session) == nullptr) {
      incomplete_ranks.push_back(row.rank);
    } else {
      row_crc32c.push_back(open_round_->RowCrc32c(row));
    }
  }
  open_round_->Close();
  round_.closed = ClosedRound(phase.rows, std::move(row_crc32c),
                              std::move(incomplete_ranks));
  return absl::OkStatus();
}

absl::StatusOr<PhaseResult> ShardEngine::Close(const Phase& phase,
                                               ShardCompute* compute) {
  std::vector<std::optional<SliceGram>> early;
  {
    MutexLock lock(&mutex_);
    AGG_RETURN_IF_ERROR(MarkClosed(phase));
    if (round_.closed.close_result().has_value()) {
      return *round_.closed.close_result();
    }
    early = open_round_->early()->TakeResults(
        phase.rows, static_cast<int>(compute->layout()->slices.size()));
  }
  const int64_t num_slices = static_cast<int64_t>(early.size());
  const int64_t num_early =
      std::count_if(early.begin(), early.end(),
                    [](const auto& gram) { return gram.has_value(); });
  absl::StatusOr<PhaseResult> result =
      round_.closed.Close(compute, std::move(early));
  if (!result.ok()) return result;
  MutexLock lock(&mutex_);
  totals_.early_grams += num_early;
  totals_.grams_at_close += num_slices - num_early;
  return result;
}

absl::StatusOr<PhaseResult> ShardEngine::Abandon() {
  MutexLock lock(&mutex_);
  // A late copy of an earlier call: the step that is prepared needs the rows,
  // and without replication it has been taken.
  if (home_.prepared()) {
    return absl::FailedPreconditionError(
        absl::StrCat("abandon: ", home_.Describe()));
  }
  round_ = RoundInWork();
  DropOffer();
  open_round_->Reopen();
  return PhaseResult();
}

// From one version to the next: the seed, a round's update, and publishing.

absl::StatusOr<PhaseResult> ShardEngine::Update(const Phase& phase,
                                                ShardCompute* compute) {
  if (options_.replicated) return Replication::Prepare(this, phase, compute);
  absl::Status status;
  round_.unchanged = phase.publish.unchanged;
  if (!round_.unchanged) {
    int num_revoked = 0;
    status = round_.closed.TakeMemory(compute, &num_revoked);
    MutexLock lock(&mutex_);
    totals_.revoked_snapshots += num_revoked;
    if (!status.ok()) return status;  // the arrays are as they were
  }
  {
    MutexLock lock(&mutex_);
    // From here on the arrays may be between two versions (P18).
    if (!home_.whole()) home_.BeginPrepare(phase.epoch);
  }
  if (!round_.unchanged) status = round_.closed.Update(compute, phase.step);
  MutexLock lock(&mutex_);
  if (status.ok()) {
    home_.EndPrepare(phase.record);
    PhaseResult result;
    result.not_finite_slice = round_.closed.not_finite_slice();
    if (!round_.unchanged) result.narrowing = compute->narrowing();
    return result;
  }
  // Master weights may hold a part of the step: this epoch cannot go on (P15).
  home_.Void();
  BreakEpoch(phase.epoch, "an update", status);
  return status;
}

bool ShardEngine::HasPublished(const Phase& update) const {
  return update.publishes && open_round_->published() &&
         open_round_->version() == update.publish.version;
}

absl::StatusOr<PhaseResult> ShardEngine::RunUpdate(const Phase& phase,
                                                   ShardCompute* compute,
                                                   Closures* ready) {
  // The second copy is prepared before anybody steps (P17).
  if (!phase.publishes || options_.replicated) return Update(phase, compute);
  const bool repeated = [&] {
    MutexLock lock(&mutex_);
    return HasPublished(phase);
  }();
  if (!repeated) {
    AGG_RETURN_IF_ERROR(Update(phase, compute).status());
  }
  return Publish(phase, compute, ready);
}

void ShardEngine::BreakEpoch(uint64_t epoch, const char* where,
                             const absl::Status& status) {
  if (epoch_.number() != epoch) return;  // it is over anyway
  epoch_.Break(absl::UnavailableError(absl::StrCat("shard ", options_.ordinal,
                                                   " failed within ", where,
                                                   ": ", status.message())));
  Replication::TellReplica(this);
}

absl::StatusOr<PhaseResult> ShardEngine::LoadSeed(const Phase& phase,
                                                  ShardCompute* compute) {
  const PublishPlan& plan = phase.publish;
  const VersionId id{phase.epoch, 0};
  std::shared_ptr<Snapshot> seed;
  {
    MutexLock lock(&mutex_);
    if (home_.At(id)) return PhaseResult();  // a repeat
    // A late copy of an earlier call: it would write over the parameters.
    if (open_round_->published()) {
      return absl::FailedPreconditionError("load_seed: the job is seeded");
    }
    if (!open_round_->SeedComplete(plan.seed_session, plan.seed_attempt)) {
      return absl::FailedPreconditionError(
          absl::StrCat("the seed of session ", plan.seed_session, ", attempt ",
                       plan.seed_attempt, ", is not complete"));
    }
    AGG_RETURN_IF_ERROR(compute->TakeSeed());
    seed = compute->seed();
    // From here on the buffer is read, and then it is a version: a higher
    // attempt comes too late.
    open_round_->Close();
  }
  const absl::Status status = compute->LoadSeed(seed.get());
  MutexLock lock(&mutex_);
  if (!status.ok()) {
    open_round_->Reopen();
    return status;  // the seed stays, for a repeat
  }
  compute->ReleaseSeed();
  loaded_ = std::move(seed);
  home_.Hold(id, phase.record);
  return PhaseResult();
}

absl::Status ShardEngine::CheckPublish(const Phase& phase, bool* repeated,
                                       bool* prepared) const {
  const PublishPlan& plan = phase.publish;
  MutexLock lock(&mutex_);
  *prepared = home_.whole();
  const bool published = open_round_->published();
  *repeated = published && open_round_->version() == plan.version;
  if (*repeated) return absl::OkStatus();
  if (plan.seed ? published || plan.version != 0
                : plan.version != phase.round + 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "publish of version ", plan.version, " in round ", phase.round,
        "; current version ", open_round_->version()));
  }
  // A skipped round changes nothing that a second copy has to know before.
  const bool may_be_unprepared = plan.unchanged && !options_.replicated;
  if (!plan.seed && !may_be_unprepared && !*prepared) {
    return absl::FailedPreconditionError(
        absl::StrCat("round ", phase.round, " has not been updated"));
  }
  return options_.replicated ? compute_->replica()->CheckPrepared(plan.version)
                             : absl::OkStatus();
}

void ShardEngine::AwaitLandings() {
  MutexLock lock(&mutex_);
  open_round_->Close();
  while (open_round_->landing()) claims_ended_.Wait(&mutex_);
}

absl::Status ShardEngine::TakeStep(ShardCompute* compute) {
  // From the next version on a worker may write its row on the device (P47):
  // nothing that lands on the host may come behind.
  AwaitLandings();
  AGG_RETURN_IF_ERROR(backend_.AwaitRows());
  const uint64_t version = [&] {
    MutexLock lock(&mutex_);
    return home_.id().version;
  }();
  ParameterStore* const store = compute->store();
  int32_t not_finite_slice = round_.closed.not_finite_slice();
  std::shared_ptr<const Snapshot> snapshot = round_.closed.updated();
  if (round_.waves.next != nullptr) snapshot = round_.waves.next;
  if (round_.unchanged) {
    snapshot = store->Find(version);
  } else if (options_.replicated) {
    AGG_ASSIGN_OR_RETURN(snapshot, Replication::StepHomeArrays(
                                       this, compute, &not_finite_slice));
  }
  store->Publish(version + 1, std::move(snapshot));
  published_ = PhaseResult();
  published_.not_finite_slice = not_finite_slice;
  if (!round_.unchanged) published_.narrowing = compute->narrowing();
  round_ = RoundInWork();
  MutexLock lock(&mutex_);
  home_.Step();
  written_ = nullptr;  // at once: it is no part of the version after this one
  open_round_->Publish(version + 1);
  ForgetOffer();
  DropAllEndedRows();  // those that were held for the round
  WakeFiller();
  return absl::OkStatus();
}

void ShardEngine::ShowLoaded(ShardCompute* compute) {
  MutexLock lock(&mutex_);
  const uint64_t version = home_.id().version;
  compute->store()->Publish(version, std::move(loaded_));
  loaded_ = nullptr;
  published_ = PhaseResult();
  open_round_->Publish(version);
}

absl::StatusOr<PhaseResult> ShardEngine::Publish(const Phase& phase,
                                                 ShardCompute* compute,
                                                 Closures* ready) {
  bool repeated;
  bool prepared;
  absl::Status status = CheckPublish(phase, &repeated, &prepared);
  if (!status.ok()) return status;
  if (repeated) return published_;
  if (phase.publish.seed) {
    status = LoadSeed(phase, compute).status();
    if (!status.ok()) return status;
    ShowLoaded(compute);
  } else {
    // A skipped round needs no Update before.
    if (!prepared) status = Update(phase, compute).status();
    if (status.ok()) status = TakeStep(compute);
    if (!status.ok()) return status;
    Replication::ReleaseReplica(this, compute);
  }
  MutexLock lock(&mutex_);
  WakeFiller();
  *ready = ResolvePulls();
  if (progress_ != nullptr) {
    ready->push_back([progress = std::exchange(progress_, nullptr)] {
      progress->Publish();
    });
  }
  return published_;
}

// A close before it is asked for (P44): when the last row of a small round
// lands, the shard computes what the close would answer, on the thread that
// landed it. Nothing is decided here: the round stays open until the
// coordinator closes it, with these rows or with others.

namespace {

// A frame's thread computes it, with the engine's lock: some 0.1 ms at most.
// What is larger gains nothing by a trip less.
constexpr int64_t kMaxProducts = int64_t{1} << 20;
// Numbers of all its Grams: it travels in one message with the reports.
constexpr int64_t kMaxNumbers = 4096;
// Of all rows: so much a parked copy of them takes.
constexpr int64_t kMaxRowBytes = int64_t{1} << 20;

bool IsSmall(const ShardLayout& layout, int64_t row_bytes, int64_t num_rows) {
  const int64_t num_pairs = num_rows * (num_rows + 1) / 2;
  return num_pairs * layout.num_elements <= kMaxProducts &&
         num_pairs * static_cast<int64_t>(layout.slices.size()) <=
             kMaxNumbers &&
         num_rows * row_bytes <= kMaxRowBytes;
}

}  // namespace

void ShardEngine::OfferClose(uint64_t epoch) {
  if (on_offer_ == nullptr || options_.pipelined) return;
  // Who has it may keep it for long, and this thread must not wait: then the
  // round is closed in a phase of its own.
  if (!turn_.TryLock()) return;
  std::shared_ptr<const CloseOffer> offer;
  std::shared_ptr<ShardCompute> compute;
  {
    MutexLock lock(&mutex_);
    offer = MakeOffer(epoch);
    compute = compute_;
  }
  // As the close would: the neighbour's frames, which may come next, wait for
  // it (P17). If it fails, the close comes, and the update finds it void.
  if (offer != nullptr && !Replication::StepReplica(compute.get()).ok()) {
    MutexLock lock(&mutex_);
    DropOffer();
    offer = nullptr;
  }
  turn_.Unlock();
  ReportLostDevice();
  if (offer != nullptr) on_offer_(epoch, std::move(offer));
}

std::shared_ptr<const CloseOffer> ShardEngine::MakeOffer(uint64_t epoch) {
  if (epoch_.number() != epoch || !epoch_.open() || open_round_ == nullptr ||
      offered_ || backend_.memory_needs(1).on_device) {
    return nullptr;
  }
  std::vector<RoundRow> rows = open_round_->CompleteRound();
  const ShardLayout& layout = *compute_->layout();
  if (rows.empty() || !IsSmall(layout, compute_->rows()->row_bytes(),
                               static_cast<int64_t>(rows.size()))) {
    return nullptr;
  }
  const absl::Time start = absl::Now();
  std::vector<int32_t> slices(layout.slices.size());
  std::iota(slices.begin(), slices.end(), 0);
  absl::StatusOr<std::vector<SliceGram>> grams =
      compute_->Gram(rows, slices, /*compensated=*/false);
  if (!grams.ok()) return nullptr;  // the close tries again, and says it
  auto offer = std::make_shared<CloseOffer>();
  offer->round = open_round_->version();
  for (const RoundRow& row : rows) {
    offer->result.row_crc32c.push_back(open_round_->RowCrc32c(row));
  }
  offer->rows = std::move(rows);
  offer->result.grams = *std::move(grams);
  offer->result.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  offered_ = true;
  offer_ = offer;
  return offer;
}

absl::Status ShardEngine::ParkOffered(const FrameLanding& landing) {
  const FrameHeader& header = landing.header;
  if (offer_ == nullptr || landing.closed ||
      header.kind != PushKind::kGradient) {
    return absl::OkStatus();
  }
  for (const RoundRow& row : offer_->rows) {
    if (row.rank != landing.rank || row.session != header.session ||
        row.attempt >= header.attempt ||
        row.attempt != open_round_->AttemptOf(row)) {
      continue;
    }
    return compute_->rows()->Park(row.rank, row.session, row.attempt);
  }
  return absl::OkStatus();
}

bool ShardEngine::Offered(const std::vector<RoundRow>& rows) const {
  return offer_ != nullptr && offer_->rows == rows;
}

void ShardEngine::TakeOffer() {
  AGG_DCHECK(offer_ != nullptr);
  const std::shared_ptr<const CloseOffer> offer = std::move(offer_);
  offer_ = nullptr;
  open_round_->Close();
  const int num_slices = static_cast<int>(compute_->layout()->slices.size());
  open_round_->early()->TakeResults(offer->rows, num_slices);
  round_.closed = ClosedRound(*offer);
  totals_.early_grams += num_slices;
}

bool ShardEngine::IsQuick(const Phase& phase) const {
  if (phase.kind != PhaseKind::kUpdate || options_.replicated) return false;
  MutexLock lock(&mutex_);
  return Offered(phase.rows);
}

void ShardEngine::ForgetOffered(uint64_t session) {
  if (offer_ == nullptr) return;
  const bool named = std::any_of(
      offer_->rows.begin(), offer_->rows.end(),
      [session](const RoundRow& row) { return row.session == session; });
  if (named) ForgetOffer();  // the others' rows may be offered
}

void ShardEngine::DropOffer() {
  offer_ = nullptr;
  if (compute_ != nullptr) compute_->rows()->Unpark();
}

void ShardEngine::ForgetOffer() {
  DropOffer();
  offered_ = false;
}

// Memory for other processes: the GrantRegions part of a ShardEngine.

void ShardEngine::GrantRow(const RegionQuery& query, int32_t rank,
                           RegionGrant* grant) {
  const uint64_t session = query.session;
  // Nothing is written on a shard without slices, and the ledger holds none of
  // its rows for a session that has ended.
  if (compute_->layout()->slices.empty()) return;
  GradientRows* const rows = compute_->rows();
  if (!rows->Granted(rank, session)) {
    if (SharedBuffer::RegionOf(rows->Find(rank, session).get()) == nullptr) {
      return;
    }
    // A former session's row is in the common memory, unless it has its own.
    grant->row_later = !rows->Granted(rank, open_round_->OwnerOf(rank)) &&
                       !open_round_->RowIsFree(rank, session);
    // With its own, two rows of the rank may be written until the round ends.
    if (rows->HasGranted(rank)) {
      grant->row_later |= !CheckMemoryPlan(compute_->PlanWithSuccessors(1),
                                           options_.memory_budget)
                               .ok();
    }
    if (grant->row_later) return;
  }
  const std::shared_ptr<const Buffer> row = rows->Grant(rank, session);
  grant->row.push_back(
      {options_.push_dtype, SharedBuffer::RegionOf(row.get())});
  if (query.takes_device && row->device_share() != nullptr) {
    grant->row_device.push_back(
        {options_.push_dtype, grant->row[0].region->number(), row->num_bytes(),
         *row->device_share(), row, nullptr});
  }
  const auto num_slices =
      static_cast<int32_t>(compute_->layout()->slices.size());
  for (int32_t slice = 0; slice < num_slices; ++slice) {
    grant->row_offsets.push_back(
        static_cast<uint64_t>(rows->SliceOffset(slice)));
  }
}

absl::StatusOr<RegionGrant> ShardEngine::GrantRegions(
    const RegionQuery& query) {
  RegionGrant grant;
  MutexLock lock(&mutex_);
  AGG_RETURN_IF_ERROR(
      epoch_.CheckOpen(query.epoch == 0 ? epoch_.number() : query.epoch));
  if (compute_ == nullptr) return NoManifest();
  if (query.life != life_) {
    return absl::UnavailableError(absl::StrCat(
        "shard ", options_.ordinal, " has another life than the one asked"));
  }
  if (query.session != 0) {
    AGG_ASSIGN_OR_RETURN(const int32_t rank, sessions_.Rank(query.session));
    if (options_.push_dtype != DType::kI8 || query.takes_int8) {
      GrantRow(query, rank, &grant);
    }
  }
  // Clang's analysis knows of no lock in a lambda.
  ParameterStore* const store = compute_->store();
  const auto add = [&grant, store](DType dtype) {
    for (auto& region : store->regions(dtype)) {
      grant.versions.push_back({dtype, std::move(region)});
    }
  };
  add(DType::kF32);
  if (options_.pull_dtype != DType::kF32) add(options_.pull_dtype);
  if (query.takes_device && store->master_head() != nullptr) {
    const Buffer& master = *store->master();
    grant.parameters_device.push_back(
        {DType::kF32, store->master_head()->number(), master.num_bytes(),
         *master.device_share(), compute_, store->master_head()});
  }
  return grant;
}

// Checkpoints of a shard, as the coordinator asks for them (P30): a copy
// between two rounds, how far its file is, the manifest.

absl::Status ShardEngine::SetCheckpointFolder(
    CheckpointFolder folder, FileSystem* files,
    absl::optional<CheckpointFolder> other) {
  options_.checkpoints = true;
  checkpoints_.SetFolder(std::move(folder), files, std::move(other));
  const CheckpointListing listing = checkpoints_.List();
  MutexLock lock(&mutex_);
  NoteMade(listing, /*epoch=*/0);
  return listing.error.empty() ? absl::OkStatus()
                               : absl::UnavailableError(listing.error);
}

void ShardEngine::NoteMade(const CheckpointListing& checkpoints,
                           uint64_t epoch) {
  const auto promise = [&](uint64_t made) {
    if (made != epoch || epoch_.number() != epoch) epoch_.PromiseAtLeast(made);
  };
  for (const CheckpointState& state : checkpoints.states) {
    promise(state.id.made);
  }
  // Else what the job saves next would be older than that.
  promise(checkpoints.begun_anew);
}

absl::StatusOr<PhaseResult> ShardEngine::Capture(const Phase& phase,
                                                 ShardCompute* compute) {
  {
    MutexLock lock(&mutex_);
    if (!home_.At(phase.id) || home_.prepared()) {
      return absl::FailedPreconditionError(
          absl::StrCat("no checkpoint of ", DescribeVersion(phase.id), ": ",
                       home_.Describe()));
    }
  }
  const auto copy = CopyFrom(&backend_, compute->store());
  AGG_RETURN_IF_ERROR(
      checkpoints_.Capture(phase.id, [&](int array, absl::Span<float> to) {
        bytes_progress_.Note();
        return copy(array, to);
      }));
  return PhaseResult();
}

absl::StatusOr<PhaseResult> ShardEngine::RunCheckpointPhase(
    const Phase& phase) {
  absl::Status status = CheckEpoch(phase.epoch);
  PhaseResult result;
  if (status.ok() && phase.kind == PhaseKind::kSeal) {
    if (phase.begins_anew) {
      status = checkpoints_.BeginAnew(phase.line);
    } else if (phase.checkpoint.empty()) {
      status = checkpoints_.Discard(phase.id);
    } else {
      status = checkpoints_.Seal(phase.checkpoint, phase.keep, phase.line);
    }
  }
  if (status.ok() && phase.kind == PhaseKind::kReadManifest) {
    absl::StatusOr<std::string> manifest = checkpoints_.ReadManifest(phase.id);
    status = manifest.status();
    if (status.ok()) result.manifest = *std::move(manifest);
  }
  if (status.ok() && phase.kind == PhaseKind::kVerify) {
    status = checkpoints_.Verify(phase.checkpoint, options_.ordinal,
                                 options_.num_shards, &bytes_progress_);
  }
  if (!status.ok()) return status;
  result.checkpoint = checkpoints_.progress();
  return result;
}

absl::Status ShardEngine::Fetch(const CopyHeader& header,
                                const CopySink& sink) {
  const bool home = header.part == options_.ordinal;
  std::shared_ptr<ShardCompute> compute;
  if (home) {
    MutexLock lock(&mutex_);
    compute = compute_;
  } else {
    AGG_ASSIGN_OR_RETURN(compute, Replication::ReplicaFor(this, header));
  }
  RecordText record;
  AGG_RETURN_IF_ERROR(Replication::CheckCopy(this, header, &record));
  const auto read_home = CopyFrom(&backend_, compute->store());
  // Without the turn: the neighbour's phase waits for this, and one of ours may
  // wait for the neighbour's. A copy at the target of a recovery stands still;
  // if the epoch is over meanwhile, what was read does not count.
  const auto read = [&](int array, absl::Span<float> to) {
    AGG_RETURN_IF_ERROR(home ? read_home(array, to)
                             : compute->replica()->Read(array, to));
    return Replication::CheckCopy(this, header, &record);
  };
  const ShardLayout& layout =
      home ? *compute->layout() : *compute->replica()->layout();
  absl::Status status = SendArrays(
      layout, 1 + OptimizerStateArrays(options_.optimizer), read, sink.slice);
  if (status.ok() && header.part == 0 && sink.record != nullptr) {
    status = sink.record(record == nullptr ? "" : *record);
  }
  ReportLostDevice();
  return status;
}

void ShardEngine::SetNeighbours(NeighbourPeer* buddy, NeighbourPeer* before) {
  buddy_ = buddy;
  before_ = before;
}

absl::Status ShardEngine::SendCombined(const CopyHeader& header,
                                       const CopySlice& slice) {
  AGG_ASSIGN_OR_RETURN(const auto compute,
                       Replication::ReplicaFor(this, header));
  return compute->replica()->Land(header, slice);
}

absl::Status ShardEngine::FinishCombined(const CopyHeader& header) {
  AGG_ASSIGN_OR_RETURN(const auto compute,
                       Replication::ReplicaFor(this, header));
  return compute->replica()->CheckLanded(header);
}

}  // namespace agg
