// Norms, updates and their halves: what a step means to the backend.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "server/shard/narrowing_loss.h"
#include "server/shard/row_buffers.h"
#include "server/shard/shard_compute.h"
#include "server/shard/step_layout.h"
#include "server/shard/wave_step.h"

namespace agg {
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
  absl::StatusOr<std::vector<UpdateRange>> ranges =
      StepRanges(step, *layout_, group_of_tensor_, rows.size(), kept.size(),
                 filled->compact);
  if (!ranges.ok()) return ranges.status();
  filled->ranges = *std::move(ranges);
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
  absl::StatusOr<SplitStep> wave = SplitByRows(step, rows);
  if (!wave.ok()) return wave.status();
  for (const StepPlan& part : wave->steps) {
    int32_t slice;
    const absl::Status status =
        WriteVersion(&rows, part, snapshot, /*deferral=*/nullptr, &slice);
    if (!status.ok()) return status;
    if (*not_finite_slice < 0 || (slice >= 0 && slice < *not_finite_slice)) {
      *not_finite_slice = slice;
    }
  }
  CopyTensors(wave->unchanged, before, snapshot);
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
