// Memory, and Grams: translates between the words of a round (rows by rank,
// tensors, slices) and the backend's (buffers, ranges).
#include "server/shard/shard_compute.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/narrow_float.h"
#include "server/base/dcheck.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/checkpoint/checkpoint_writer.h"
#include "server/ingest/arrival_ledger.h"
#include "server/params/shared_buffer.h"
#include "server/shard/open_round.h"
#include "server/shard/shard_checkpoint.h"
#include "server/shard/step_layout.h"

namespace agg {

// Nearly always all tensors have all rows, and there is one step.

namespace {

absl::Status Check(const StepPlan& step, size_t num_rows) {
  if (step.per_tensor && step.trust.empty() &&
      step.coefficients.size() == step.tensors.size() * num_rows &&
      std::adjacent_find(step.tensors.begin(), step.tensors.end(),
                         std::greater_equal<int32_t>()) == step.tensors.end()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the step of a wave has ", step.coefficients.size(), " coefficients and ",
      step.trust.size(), " trust ratios for ", step.tensors.size(),
      " tensors and ", num_rows,
      " rows; allowed: one coefficient for each of both, per tensor, and no "
      "trust ratio"));
}

// The step of no tensors, with the rows of `kept`.
StepPlan StepOf(const StepPlan& step, const std::vector<RoundRow>& rows,
                const std::vector<bool>& kept) {
  StepPlan part;
  part.per_tensor = true;
  part.partial = true;
  part.learning_rate = step.learning_rate;
  part.step = step.step;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!kept[i]) part.excluded_ranks.push_back(rows[i].rank);
  }
  return part;
}

}  // namespace

absl::StatusOr<SplitStep> SplitByRows(const StepPlan& step,
                                      const std::vector<RoundRow>& rows) {
  AGG_RETURN_IF_ERROR(Check(step, rows.size()));
  SplitStep result;
  std::map<std::vector<bool>, size_t> places;  // in result.steps
  for (size_t t = 0; t < step.tensors.size(); ++t) {
    const auto begin = step.coefficients.begin() + t * rows.size();
    std::vector<bool> kept(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) kept[i] = !std::isnan(begin[i]);
    if (std::find(kept.begin(), kept.end(), true) == kept.end()) {
      result.unchanged.push_back(step.tensors[t]);
      continue;
    }
    const auto place = places.emplace(kept, result.steps.size());
    if (place.second) result.steps.push_back(StepOf(step, rows, kept));
    StepPlan& part = result.steps[place.first->second];
    part.tensors.push_back(step.tensors[t]);
    for (size_t i = 0; i < rows.size(); ++i) {
      part.coefficients.push_back(kept[i] ? begin[i] : 0.0);
    }
  }
  return result;
}

// By the bits of magnitudes, whose order is that of the values.

namespace {

constexpr uint32_t kInfinityBits = 0x7f800000u;

uint32_t MagnitudeBits(float value) { return BitsOfFloat(value) & 0x7fffffffu; }

}  // namespace

void AddInfinite(absl::Span<const float> values, DType dtype, int32_t slice,
                 NarrowingLoss* loss) {
  const uint32_t limit = dtype == DType::kF16    ? kF16OverflowBits
                         : dtype == DType::kBF16 ? kBf16OverflowBits
                                                 : kInfinityBits;
  uint64_t number = 0;
  for (const float value : values) {
    const uint32_t bits = MagnitudeBits(value);
    number += bits >= limit && bits < kInfinityBits ? 1 : 0;
  }
  loss->num_infinite += number;
  if (number > 0 && (loss->slice < 0 || slice < loss->slice)) {
    loss->slice = slice;
  }
}

void AddVanished(absl::Span<const float> values, DType dtype,
                 NarrowingLoss* loss) {
  const uint32_t limit = dtype == DType::kF16    ? kF16VanishBits
                         : dtype == DType::kBF16 ? kBf16VanishBits
                                                 : 0;
  for (const float value : values) {
    const uint32_t bits = MagnitudeBits(value);
    loss->num_compared += bits > 0 ? 1 : 0;
    loss->num_vanished += bits > 0 && bits <= limit ? 1 : 0;
  }
}

namespace {

// Adds the plan to an allocation's error: a plan within its budget does not
// help if other processes have taken the memory.
absl::Status WithPlan(const absl::Status& status, const MemoryPlan& plan) {
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::ResourceExhaustedError(absl::StrCat(
      status.message(), "; the plan needs ", DescribeMemoryPlan(plan)));
}

// Refuses what is far beyond the budget before a million slices are planned,
// which anybody who may join could ask for. Shards are balanced to within one
// slice, so that this one has at least so many elements.
absl::Status CheckLeastMemory(const ShardOptions& options, Backend* backend,
                              const Manifest& manifest) {
  AGG_RETURN_IF_ERROR(ValidateManifest(manifest));
  const int64_t per_shard =
      NumElements(manifest) / std::max(1, options.num_shards);
  return CheckMemoryPlan(
      PlanMemory(std::max<int64_t>(0, per_shard - kMaxSliceElements),
                 /*num_rows=*/1, options.push_dtype, options.pull_dtype,
                 options.optimizer, backend->memory_needs(1)),
      options.memory_budget);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardCompute>> ShardCompute::Create(
    const ShardOptions& options, Backend* backend, const Manifest& manifest) {
  AGG_RETURN_IF_ERROR(CheckLeastMemory(options, backend, manifest));
  AGG_ASSIGN_OR_RETURN(ShardLayout layout,
                       MakeShardLayout(manifest, options.num_shards,
                                       options.ordinal, options.push_dtype));
  std::unique_ptr<ShardCompute> compute(new ShardCompute(options, backend));
  compute->layout_ = std::make_shared<ShardLayout>(std::move(layout));
  compute->manifest_size_ = SizeOf(compute->layout_->manifest);
  AGG_ASSIGN_OR_RETURN(compute->group_of_tensor_, GroupsOf(options, manifest));
  if (options.replicated) {
    AGG_ASSIGN_OR_RETURN(compute->replica_,
                         ShardReplica::Create(options, backend, manifest));
  }
  compute->rows_ = std::make_unique<GradientRows>(
      backend, compute->layout_.get(), options.push_dtype, options.max_workers);
  AGG_RETURN_IF_ERROR(
      CheckMemoryPlan(compute->PlanRows(1), options.memory_budget));
  LogInfo(
      "memory plan of one worker: ", DescribeMemoryPlan(compute->PlanRows(1)),
      "; of ", options.max_workers, ": ",
      DescribeMemoryPlan(compute->PlanRows(options.max_workers)));
  absl::StatusOr<std::unique_ptr<ParameterStore>> store =
      ParameterStore::Create(
          backend, options.optimizer,
          std::max(compute->layout_->num_elements, kLayoutAlignment),
          options.pull_dtype, kPatience, options.shared_memory);
  if (!store.ok()) {
    return WithPlan(store.status(), compute->PlanRows(1));
  }
  compute->store_ = *std::move(store);
  absl::Status status = compute->AllocateCopies();
  if (!status.ok()) return WithPlan(status, compute->PlanRows(1));
  return compute;
}

absl::Status ShardCompute::AllocateCopies() {
  if (replica_ == nullptr) return absl::OkStatus();
  AGG_ASSIGN_OR_RETURN(
      combined_, backend_->Allocate(
                     BufferUse::kSnapshot,
                     std::max(layout_->num_elements, kLayoutAlignment) * 4));
  return replica_->Allocate();
}

MemoryPlan ShardCompute::PlanRows(int64_t num_rows,
                                  int64_t num_successors) const {
  MemoryPlan plan = PlanMemory(
      layout_->num_elements, num_rows, options_.push_dtype, options_.pull_dtype,
      options_.optimizer, backend_->memory_needs(num_rows), num_successors);
  const int64_t num_slices = static_cast<int64_t>(layout_->slices.size());
  // Each slice's Gram, kept for a repeat of the phase, and those that the
  // backend is computing. Those with compensation are few, and not counted.
  const int64_t gram_bytes =
      num_slices *
      (PackedGramSize(num_rows) * static_cast<int64_t>(sizeof(double)) +
       static_cast<int64_t>(sizeof(SliceGram)));
  plan.host.grams = gram_bytes + std::min(gram_bytes, kMaxGramBytes);
  if (options_.early_gram) {
    plan.host.early_grams = EarlyGrams::Bytes(num_slices);
  }
  // As OpenRound makes it: a row of every rank and of the seed, of which the
  // joined ones and the seed are pushed to.
  plan.host.ledger =
      ArrivalLedger::Bytes(options_.max_workers + 1, num_slices, num_rows + 1);
  if (options_.checkpoints) {
    plan.host.checkpoint =
        CheckpointWriter::NumBytes(ArraysOf(*layout_, options_.optimizer));
    // State is loaded from one array by array; parameters need nothing more.
    if (OptimizerStateArrays(options_.optimizer) > 0) {
      plan.host.transfer = layout_->num_elements * 4;
    }
  }
  if (replica_ != nullptr) {
    PlanCopies(layout_->num_elements, replica_->layout()->num_elements,
               options_.optimizer, backend_->memory_needs(num_rows), &plan);
  }
  const auto all_slices = static_cast<int64_t>(layout_->plan.slices.size());
  plan.host.manifest =
      LayoutBytes(manifest_size_, all_slices, options_.ordinal == 0);
  if (options_.ordinal == 0) {
    plan.host.coordinator = CoordinatorBytes(manifest_size_.tensors, all_slices,
                                             num_rows, options_.num_shards);
  }
  return plan;
}

MemoryPlan ShardCompute::PlanWith(int64_t num_more_rows) const {
  return PlanRows(rows_->num_rows() + num_more_rows);
}

MemoryPlan ShardCompute::PlanWithSuccessors(int64_t num_more) const {
  return PlanRows(rows_->num_rows(), rows_->num_successors() + num_more);
}

absl::StatusOr<std::unique_ptr<Buffer>> ShardCompute::AllocateRow(
    const MemoryPlan& plan) const {
  AGG_RETURN_IF_ERROR(CheckMemoryPlan(plan, options_.memory_budget));
  absl::StatusOr<std::unique_ptr<Buffer>> buffer = AllocateHost(
      backend_, BufferUse::kRow, rows_->row_bytes(), options_.shared_memory);
  if (!buffer.ok()) return WithPlan(buffer.status(), plan);
  return buffer;
}

std::unique_ptr<Buffer> ShardCompute::AllocateSuccessor() const {
  if (!options_.shared_memory) return nullptr;
  auto buffer = SharedBuffer::Allocate(BufferUse::kRow, rows_->row_bytes());
  if (!buffer.ok() || !(*buffer)->AdoptBy(backend_, BufferUse::kRow).ok()) {
    return nullptr;
  }
  return *std::move(buffer);
}

absl::Status ShardCompute::TakeSeed() {
  if (seed_ != nullptr) return absl::OkStatus();
  int num_revoked;  // 0: before the seed there is nothing to read
  absl::StatusOr<std::shared_ptr<Snapshot>> seed =
      store_->NextSnapshot(&num_revoked);
  if (seed.ok()) seed_ = *std::move(seed);
  return seed.status();
}

SlicePlace ShardCompute::LandingPlace(PushKind kind, int32_t rank,
                                      uint64_t session, int32_t slice) {
  AGG_DCHECK(kind == PushKind::kGradient ? rows_->Find(rank, session) != nullptr
                                         : seed_ != nullptr);
  if (kind == PushKind::kGradient) {
    return rows_->PlaceIn(*rows_->Find(rank, session), slice);
  }
  // A seed is float32, whatever the dtype of gradients.
  SlicePlace place;
  place.elements =
      seed_->buffers()->f32->host() + layout_->ranges[slice].begin * 4;
  return place;
}

absl::Status ShardCompute::AppendGrams(absl::Span<const Buffer* const> buffers,
                                       absl::Span<const int32_t> slices,
                                       bool compensated,
                                       std::vector<SliceGram>* grams) {
  std::vector<ElementRange> ranges;
  for (const int32_t slice : slices) ranges.push_back(layout_->ranges[slice]);
  const size_t packed = PackedGramSize(static_cast<int64_t>(buffers.size()));
  std::vector<double> hi(ranges.size() * packed);
  std::vector<double> lo(compensated ? hi.size() : 0);
  GramRequest request;
  request.rows = buffers;
  request.dtype = options_.push_dtype;
  request.ranges = ranges;
  request.compensated = compensated;
  request.hi = absl::MakeSpan(hi);
  request.lo = absl::MakeSpan(lo);
  AGG_RETURN_IF_ERROR(backend_->Gram(request));
  for (size_t i = 0; i < slices.size(); ++i) {
    SliceGram gram;
    gram.slice = layout_->slices[slices[i]];
    gram.hi.assign(hi.begin() + i * packed, hi.begin() + (i + 1) * packed);
    if (compensated) {
      gram.lo.assign(lo.begin() + i * packed, lo.begin() + (i + 1) * packed);
    }
    grams->push_back(std::move(gram));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SliceGram>> ShardCompute::Gram(
    const std::vector<RoundRow>& rows, const std::vector<int32_t>& slices,
    bool compensated) {
  return Gram(RowBuffers(*rows_, rows), slices, compensated);
}

absl::StatusOr<std::vector<SliceGram>> ShardCompute::Gram(
    const RowBuffers& buffers, const std::vector<int32_t>& slices,
    bool compensated) {
  const auto num_rows = static_cast<int64_t>(buffers.pointers().size());
  const int64_t bytes =
      PackedGramSize(num_rows) * static_cast<int64_t>(sizeof(double));
  // A slice's Gram depends on its rows alone (kernels/backend.h), so that the
  // batches may be cut anywhere.
  const size_t batch = static_cast<size_t>(
      std::max<int64_t>(1, kMaxGramBytes / std::max<int64_t>(1, bytes)));
  std::vector<SliceGram> grams;
  grams.reserve(slices.size());
  for (size_t begin = 0; begin < slices.size();) {
    size_t end = begin;
    int64_t num_elements = 0;
    while (end < slices.size() && end - begin < batch &&
           num_elements < EarlyGrams::kMaxElements) {
      num_elements += layout_->ranges[slices[end++]].num_elements;
    }
    AGG_RETURN_IF_ERROR(
        AppendGrams(buffers.pointers(),
                    absl::MakeConstSpan(slices).subspan(begin, end - begin),
                    compensated, &grams));
    begin = end;
  }
  return grams;
}

// Norms, updates and their halves: what a step means to the backend.

namespace {

// Of one batch of Combine, at least: large enough for all threads of a backend,
// small enough for the first one to be on its way early.
constexpr int64_t kCombineElements = int64_t{1} << 22;

// The first slice (of the plan) at these positions with a value that is not
// finite; -1: none. A look at all of them is cheap for something that should
// never happen.
int32_t NotFiniteSlice(const ShardLayout& layout,
                       const std::vector<int32_t>& positions,
                       const Snapshot& snapshot) {
  const auto* const values =
      reinterpret_cast<const float*>(snapshot.buffers()->f32->host());
  for (const int32_t i : positions) {
    const float* const begin = values + layout.ranges[i].begin;
    const bool finite =
        std::all_of(begin, begin + layout.ranges[i].num_elements,
                    [](float value) { return std::isfinite(value); });
    if (!finite) return layout.slices[i];
  }
  return -1;
}

}  // namespace

struct ShardCompute::FilledUpdate {
  RowBuffers buffers;
  std::vector<double> compact;
  std::vector<UpdateRange> ranges;
  UpdateRequest request;
};

absl::Status ShardCompute::FillUpdate(const std::vector<RoundRow>& rows,
                                      const StepPlan& step,
                                      FilledUpdate* filled) {
  if (layout_->slices.empty()) return absl::OkStatus();
  const std::vector<size_t> kept = KeptRows(step, rows);
  for (const size_t i : kept) filled->buffers.Add(*rows_, rows[i]);
  const size_t stride = std::max<size_t>(1, rows.size());
  for (size_t s = 0; s + rows.size() <= step.coefficients.size(); s += stride) {
    for (const size_t i : kept) {
      filled->compact.push_back(step.coefficients[s + i]);
    }
  }
  AGG_ASSIGN_OR_RETURN(std::vector<UpdateRange> ranges,
                       StepRanges(step, *layout_, group_of_tensor_, rows.size(),
                                  kept.size(), filled->compact));
  filled->ranges = std::move(ranges);
  UpdateRequest* const request = &filled->request;
  request->rows = filled->buffers.pointers();
  request->dtype = options_.push_dtype;
  request->optimizer = options_.optimizer;
  request->step = step.step;
  request->ranges = filled->ranges;
  request->master = store_->master();
  request->state0 = store_->state0();
  request->state1 = store_->state1();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SliceNorms>> ShardCompute::Norms(
    const std::vector<RoundRow>& rows, const StepPlan& step) {
  FilledUpdate filled;
  absl::Status status = FillUpdate(rows, step, &filled);
  if (!status.ok()) return status;
  std::vector<RangeNorms> norms(filled.ranges.size());
  if (!filled.ranges.empty()) {
    status = backend_->Norms(filled.request, absl::MakeSpan(norms));
    if (!status.ok()) return status;
  }
  std::vector<SliceNorms> result;
  for (size_t i = 0; i < norms.size(); ++i) {
    result.push_back({layout_->slices[i], norms[i].parameter_norm_squared,
                      norms[i].update_norm_squared});
  }
  return result;
}

absl::Status ShardCompute::Update(const std::vector<RoundRow>& rows,
                                  const StepPlan& step,
                                  const std::shared_ptr<Snapshot>& snapshot,
                                  int32_t* not_finite_slice) {
  narrowing_ = NarrowingLoss();
  return WriteFloatsLater(&rows, step, snapshot, not_finite_slice);
}

void ShardCompute::CopyTensors(const std::vector<int32_t>& tensors,
                               const Snapshot& before,
                               Snapshot* snapshot) const {
  StepPlan step;
  step.partial = true;
  step.tensors = tensors;
  for (const int32_t position : StepSlices(step, *layout_)) {
    const ElementRange& range = layout_->ranges[position];
    const auto copy = [&](const Buffer& from, Buffer* to, int64_t bytes) {
      std::memcpy(to->host() + range.begin * bytes,
                  from.host() + range.begin * bytes,
                  static_cast<size_t>(range.num_elements * bytes));
    };
    SnapshotBuffers* const to = snapshot->buffers();
    copy(*before.buffers()->f32, to->f32.get(), 4);
    if (to->narrowed == nullptr) continue;
    copy(*before.buffers()->narrowed, to->narrowed.get(),
         DTypeBytes(store_->narrowed_dtype()));
  }
}

absl::Status ShardCompute::UpdateWave(const std::vector<RoundRow>& rows,
                                      const StepPlan& step,
                                      const Snapshot& before,
                                      Snapshot* snapshot,
                                      int32_t* not_finite_slice) {
  *not_finite_slice = -1;
  narrowing_ = NarrowingLoss();
  AGG_ASSIGN_OR_RETURN(SplitStep wave, SplitByRows(step, rows));
  for (const StepPlan& part : wave.steps) {
    int32_t slice;
    AGG_RETURN_IF_ERROR(
        WriteVersion(&rows, part, snapshot, /*deferral=*/nullptr, &slice));
    if (*not_finite_slice < 0 || (slice >= 0 && slice < *not_finite_slice)) {
      *not_finite_slice = slice;
    }
  }
  CopyTensors(wave.unchanged, before, snapshot);
  return absl::OkStatus();
}

absl::Status ShardCompute::WriteVersion(const std::vector<RoundRow>* rows,
                                        const StepPlan& step,
                                        Snapshot* snapshot, Deferral* deferral,
                                        int32_t* not_finite_slice) {
  *not_finite_slice = -1;
  FilledUpdate filled;
  absl::Status status = FillUpdate(
      rows == nullptr ? std::vector<RoundRow>() : *rows, step, &filled);
  if (!status.ok() || filled.ranges.empty()) return status;
  filled.request.snapshot = snapshot->buffers()->f32.get();
  filled.request.narrowed_snapshot = snapshot->buffers()->narrowed.get();
  filled.request.narrowed_dtype = store_->narrowed_dtype();
  filled.request.combined = combined_.get();
  bool all_finite = true;
  filled.request.all_finite = &all_finite;
  if (deferral != nullptr) {
    filled.request.snapshot_deferred = &deferral->deferred;
    filled.request.snapshot_on_demand = deferral->on_demand;
  }
  if (step.renews_state) {
    status = RenewState(options_.optimizer, backend_, store_->state0(),
                        store_->state1());
    if (!status.ok()) return status;
  }
  store_->BeginMaster();
  status = rows == nullptr ? backend_->Step(filled.request)
                           : backend_->Update(filled.request);
  if (status.ok() && !step.partial) store_->EndMaster(snapshot);
  if (!status.ok()) return status;
  if (deferral == nullptr || !deferral->deferred) {
    LookAtNarrowing(step, *snapshot);
  }
  if (all_finite) return status;
  if (deferral != nullptr && std::exchange(deferral->deferred, false)) {
    status = backend_->FinishSnapshot(*snapshot->buffers()->f32);
    if (!status.ok()) return status;
  }
  const std::vector<int32_t> slices = StepSlices(step, *layout_);
  *not_finite_slice = NotFiniteSlice(*layout_, slices, *snapshot);
  const auto* const values =
      reinterpret_cast<const float*>(snapshot->buffers()->f32->host());
  for (const int32_t i : slices) {
    const ElementRange& range = layout_->ranges[i];
    AddInfinite(absl::MakeConstSpan(values + range.begin, range.num_elements),
                store_->narrowed_dtype(), layout_->slices[i], &narrowing_);
  }
  return status;
}

// From where the last look has ended: a small part is looked at as a whole.
void ShardCompute::LookAtNarrowing(const StepPlan& step,
                                   const Snapshot& snapshot) {
  if (store_->narrowed_dtype() == DType::kF32) return;
  const auto* const values =
      reinterpret_cast<const float*>(snapshot.buffers()->f32->host());
  int64_t left = kComparedElements;
  for (const int32_t i : StepSlices(step, *layout_)) {
    const ElementRange& range = layout_->ranges[i];
    const int64_t begin = std::max(range.begin, next_compared_);
    const int64_t number =
        std::min(left, range.begin + range.num_elements - begin);
    if (number <= 0) continue;
    AddVanished(absl::MakeConstSpan(values + begin, number),
                store_->narrowed_dtype(), &narrowing_);
    next_compared_ = begin + number;
    left -= number;
  }
  if (left > 0) next_compared_ = 0;
}

bool ShardCompute::FloatsOnDemand() const {
  // Others than readers of float32 on the host have something to read, and the
  // two versions before had none of these: a reader may be one behind.
  const bool others = store_->narrowed_dtype() != DType::kF32 ||
                      store_->master_head() != nullptr;
  const std::shared_ptr<const Snapshot> last = last_deferred_.lock();
  const std::shared_ptr<const Snapshot> before = before_last_.lock();
  return others && last != nullptr && !last->asked() &&
         (before == nullptr || !before->asked());
}

absl::Status ShardCompute::WriteFloatsLater(
    const std::vector<RoundRow>* rows, const StepPlan& step,
    const std::shared_ptr<Snapshot>& snapshot, int32_t* not_finite_slice) {
  Deferral deferral;
  deferral.on_demand = FloatsOnDemand();
  // Before the master is written.
  const std::shared_ptr<const Snapshot> last = last_deferred_.lock();
  if (last != nullptr) last->Lose();
  const absl::Status status =
      WriteVersion(rows, step, snapshot.get(),
                   options_.background ? &deferral : nullptr, not_finite_slice);
  if (!status.ok() && last != nullptr) {
    last->FinishLost(absl::UnavailableError(
        absl::StrCat("this version is gone as float32, and the next one could "
                     "not be made: ",
                     status.message())));
  }
  before_last_ = std::exchange(last_deferred_, {});
  if (!deferral.deferred) return status;
  // Somebody may have come for the last one meanwhile, in vain.
  if (deferral.on_demand && !last->asked()) {
    finisher_.AddWhenAsked(snapshot);
  } else {
    finisher_.Add(snapshot);
  }
  last_deferred_ = snapshot;
  return status;
}

absl::Status ShardCompute::Combine(const std::vector<RoundRow>& rows,
                                   const StepPlan& step,
                                   const CombinedSink& done) {
  FilledUpdate filled;
  absl::Status status = FillUpdate(rows, step, &filled);
  filled.request.combined = combined_.get();
  for (size_t begin = 0; begin < filled.ranges.size() && status.ok();) {
    size_t end = begin;
    int64_t num_elements = 0;
    while (end < filled.ranges.size() && num_elements < kCombineElements) {
      num_elements += filled.ranges[end++].range.num_elements;
    }
    filled.request.ranges =
        absl::MakeConstSpan(filled.ranges).subspan(begin, end - begin);
    status = backend_->Combine(filled.request);
    if (status.ok()) done(begin, end);
    begin = end;
  }
  return status;
}

absl::Status ShardCompute::Step(const StepPlan& step,
                                const std::shared_ptr<Snapshot>& snapshot,
                                int32_t* not_finite_slice) {
  narrowing_ = NarrowingLoss();
  return WriteFloatsLater(nullptr, step, snapshot, not_finite_slice);
}

absl::Status ShardCompute::LoadSeed(Snapshot* snapshot) {
  store_->BeginMaster();
  const absl::Status status = backend_->Load(
      options_.optimizer, *snapshot->buffers()->f32, store_->master(),
      store_->state0(), store_->state1(), snapshot->buffers()->narrowed.get(),
      store_->narrowed_dtype());
  if (status.ok()) store_->EndMaster(snapshot);
  return status;
}

}  // namespace agg
