// Translates between the words of a round (rows by rank, tensors, slices)
// and the backend's (buffers, ranges).
#include "server/shard/shard_compute.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/checkpoint/checkpoint_writer.h"
#include "server/ingest/arrival_ledger.h"
#include "server/shard/early_grams.h"
#include "server/shard/shard_checkpoint.h"
#include "server/shard/step_layout.h"

namespace agg {
namespace {

std::vector<const Buffer*> RowBuffers(const GradientRows& rows,
                                      const std::vector<RoundRow>& round_rows) {
  std::vector<const Buffer*> buffers;
  for (const RoundRow& row : round_rows) buffers.push_back(rows.row(row.rank));
  return buffers;
}

// Adds the plan to an allocation's error: a plan within its budget does not
// help if other processes have taken the memory.
absl::Status WithPlan(const absl::Status& status, const MemoryPlan& plan) {
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::ResourceExhaustedError(absl::StrCat(
      status.message(), "; the plan needs ", DescribeMemoryPlan(plan)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardCompute>> ShardCompute::Create(
    const ShardOptions& options, Backend* backend, const Manifest& manifest) {
  absl::StatusOr<ShardLayout> layout =
      MakeShardLayout(manifest, options.num_shards, options.ordinal);
  if (!layout.ok()) return layout.status();
  std::unique_ptr<ShardCompute> compute(new ShardCompute(options, backend));
  compute->layout_ = std::make_shared<ShardLayout>(*std::move(layout));
  absl::Status status = compute->ResolveGroups();
  if (!status.ok()) return status;
  compute->rows_ = std::make_unique<GradientRows>(
      backend, compute->layout_.get(), options.push_dtype, options.max_workers);
  status = CheckMemoryPlan(compute->PlanRows(1), options.memory_budget);
  if (!status.ok()) return status;
  LogInfo(
      "memory plan of one worker: ", DescribeMemoryPlan(compute->PlanRows(1)),
      "; of ", options.max_workers, ": ",
      DescribeMemoryPlan(compute->PlanRows(options.max_workers)));
  absl::StatusOr<std::unique_ptr<ParameterStore>> store =
      ParameterStore::Create(
          backend, options.optimizer,
          std::max(compute->layout_->num_elements, kLayoutAlignment),
          options.pull_dtype);
  if (!store.ok()) {
    return WithPlan(store.status(), compute->PlanRows(1));
  }
  compute->store_ = *std::move(store);
  return compute;
}

absl::Status ShardCompute::ResolveGroups() {
  for (const TensorSpec& tensor : layout_->manifest.tensors) {
    GroupOptions group;
    group.weight_decay = options_.weight_decay;
    if (!tensor.group.empty()) {
      const auto found = std::find_if(
          options_.groups.begin(), options_.groups.end(),
          [&](const GroupOptions& g) { return g.name == tensor.group; });
      if (found == options_.groups.end()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "tensor \"", tensor.name, "\" is in group \"", tensor.group,
            "\"; allowed: a name in the config's `groups`, or none"));
      }
      group = *found;
    }
    group_of_tensor_.push_back(std::move(group));
  }
  return absl::OkStatus();
}

MemoryPlan ShardCompute::PlanRows(int64_t num_rows) const {
  MemoryPlan plan = PlanMemory(
      layout_->num_elements, num_rows, options_.push_dtype, options_.pull_dtype,
      options_.optimizer, backend_->memory_needs(num_rows));
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
  }
  if (options_.ordinal == 0) {
    plan.host.coordinator =
        CoordinatorBytes(static_cast<int64_t>(layout_->manifest.tensors.size()),
                         static_cast<int64_t>(layout_->plan.slices.size()),
                         num_rows, options_.num_shards);
  }
  return plan;
}

MemoryPlan ShardCompute::PlanWith(int64_t num_more_rows) const {
  return PlanRows(rows_->num_rows() + num_more_rows);
}

absl::StatusOr<std::unique_ptr<Buffer>> ShardCompute::AllocateRow(
    const MemoryPlan& plan) const {
  absl::Status status = CheckMemoryPlan(plan, options_.memory_budget);
  if (!status.ok()) return status;
  absl::StatusOr<std::unique_ptr<Buffer>> buffer = rows_->Allocate();
  if (!buffer.ok()) return WithPlan(buffer.status(), plan);
  return buffer;
}

std::shared_ptr<Snapshot> ShardCompute::seed() {
  if (seed_ == nullptr) {
    int num_revoked;  // 0: before the seed there is nothing to read
    seed_ = store_->NextSnapshot(&num_revoked);
  }
  return seed_;
}

char* ShardCompute::LandingAddress(PushKind kind, int32_t rank, int32_t slice) {
  if (kind == PushKind::kGradient) return rows_->SliceAddress(rank, slice);
  // A seed is float32, whatever the dtype of gradients.
  return seed()->buffers()->f32->host() + layout_->ranges[slice].begin * 4;
}

absl::Status ShardCompute::AppendGrams(
    const std::vector<const Buffer*>& buffers, absl::Span<const int32_t> slices,
    bool compensated, std::vector<SliceGram>* grams) {
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
  absl::Status status = backend_->Gram(request);
  if (!status.ok()) return status;
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
  const std::vector<const Buffer*> buffers = RowBuffers(*rows_, rows);
  const int64_t bytes = PackedGramSize(static_cast<int64_t>(rows.size())) *
                        static_cast<int64_t>(sizeof(double));
  // A slice's Gram depends on its rows alone (kernels/backend.h), so that the
  // batches may be cut anywhere.
  const size_t batch = static_cast<size_t>(
      std::max<int64_t>(1, kMaxGramBytes / std::max<int64_t>(1, bytes)));
  std::vector<SliceGram> grams;
  grams.reserve(slices.size());
  for (size_t begin = 0; begin < slices.size(); begin += batch) {
    const absl::Status status =
        AppendGrams(buffers, absl::MakeConstSpan(slices).subspan(begin, batch),
                    compensated, &grams);
    if (!status.ok()) return status;
  }
  return grams;
}

absl::Status ShardCompute::FillUpdate(const std::vector<RoundRow>& rows,
                                      const StepPlan& step,
                                      std::vector<const Buffer*>* buffers,
                                      std::vector<double>* compact,
                                      std::vector<UpdateRange>* ranges,
                                      UpdateRequest* request) {
  if (layout_->slices.empty()) return absl::OkStatus();
  const absl::StatusOr<std::vector<int32_t>> places =
      PlacesIn(step, *layout_, rows.size());
  if (!places.ok()) return places.status();
  const std::vector<size_t> kept = KeptRows(step, rows);
  for (const size_t i : kept) buffers->push_back(rows_->row(rows[i].rank));
  for (size_t s = 0; s < step.coefficients.size(); s += rows.size()) {
    for (const size_t i : kept) compact->push_back(step.coefficients[s + i]);
  }
  for (size_t i = 0; i < layout_->slices.size(); ++i) {
    const int32_t tensor = layout_->plan.slices[layout_->slices[i]].tensor;
    const int32_t place = (*places)[tensor];
    const GroupOptions& group = group_of_tensor_[tensor];
    UpdateRange range;
    range.range = layout_->ranges[i];
    range.coefficients = absl::MakeConstSpan(*compact).subspan(
        step.per_tensor ? place * kept.size() : 0, kept.size());
    range.learning_rate = static_cast<float>(
        step.learning_rate * static_cast<double>(group.learning_rate_factor));
    range.weight_decay = group.weight_decay;
    range.trust = step.trust.empty() ? 1.0f : step.trust[place];
    ranges->push_back(range);
  }
  request->rows = *buffers;
  request->dtype = options_.push_dtype;
  request->optimizer = options_.optimizer;
  request->step = step.step;
  request->ranges = *ranges;
  request->master = store_->master();
  request->state0 = store_->state0();
  request->state1 = store_->state1();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SliceNorms>> ShardCompute::Norms(
    const std::vector<RoundRow>& rows, const StepPlan& step) {
  std::vector<const Buffer*> buffers;
  std::vector<double> compact;
  std::vector<UpdateRange> ranges;
  UpdateRequest request;
  absl::Status status =
      FillUpdate(rows, step, &buffers, &compact, &ranges, &request);
  if (!status.ok()) return status;
  std::vector<RangeNorms> norms(ranges.size());
  if (!ranges.empty()) {
    status = backend_->Norms(request, absl::MakeSpan(norms));
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
                                  const StepPlan& step, Snapshot* snapshot,
                                  int32_t* not_finite_slice) {
  *not_finite_slice = -1;
  std::vector<const Buffer*> buffers;
  std::vector<double> compact;
  std::vector<UpdateRange> ranges;
  UpdateRequest request;
  absl::Status status =
      FillUpdate(rows, step, &buffers, &compact, &ranges, &request);
  if (!status.ok() || ranges.empty()) return status;
  request.snapshot = snapshot->buffers()->f32.get();
  request.narrowed_snapshot = snapshot->buffers()->narrowed.get();
  request.narrowed_dtype = store_->narrowed_dtype();
  bool all_finite = true;
  request.all_finite = &all_finite;
  status = backend_->Update(request);
  if (status.ok() && !all_finite) *not_finite_slice = NotFiniteSlice(*snapshot);
  return status;
}

// A look at all parameters is cheap for something that should never happen.
int32_t ShardCompute::NotFiniteSlice(const Snapshot& snapshot) const {
  const auto* const values =
      reinterpret_cast<const float*>(snapshot.buffers()->f32->host());
  for (size_t i = 0; i < layout_->slices.size(); ++i) {
    const float* const begin = values + layout_->ranges[i].begin;
    const bool finite =
        std::all_of(begin, begin + layout_->ranges[i].num_elements,
                    [](float value) { return std::isfinite(value); });
    if (!finite) return layout_->slices[i];
  }
  return -1;
}

absl::Status ShardCompute::LoadSeed(Snapshot* snapshot) {
  return backend_->Load(options_.optimizer, *snapshot->buffers()->f32,
                        store_->master(), store_->state0(), store_->state1(),
                        snapshot->buffers()->narrowed.get(),
                        store_->narrowed_dtype());
}

}  // namespace agg
