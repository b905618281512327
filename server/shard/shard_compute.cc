// Memory, and Grams: translates between the words of a round (rows by rank,
// tensors, slices) and the backend's (buffers, ranges). Steps are in
// shard_compute_steps.cc.
#include "server/shard/shard_compute.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/checkpoint/checkpoint_writer.h"
#include "server/ingest/arrival_ledger.h"
#include "server/params/shared_buffer.h"
#include "server/shard/early_grams.h"
#include "server/shard/row_buffers.h"
#include "server/shard/shard_checkpoint.h"
#include "server/shard/step_layout.h"

namespace agg {
namespace {

// Adds the plan to an allocation's error: a plan within its budget does not
// help if other processes have taken the memory.
absl::Status WithPlan(const absl::Status& status, const MemoryPlan& plan) {
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::ResourceExhaustedError(absl::StrCat(
      status.message(), "; the plan needs ", DescribeMemoryPlan(plan)));
}

// What second copies take: all float32. The combined gradients are on the host,
// the replica's arrays where the home's are.
void PlanCopies(int64_t num_elements, int64_t num_replica_elements,
                int num_arrays, const MemoryNeeds& needs, MemoryPlan* plan) {
  plan->host.combined = num_elements * 4;
  plan->host.incoming = num_replica_elements * 4;
  plan->host.transfer = TransferBytes(num_elements, num_replica_elements);
  MemoryUse& compute = plan->device.total() > 0 ? plan->device : plan->host;
  compute.replica = num_arrays * OnDevice(num_replica_elements * 4, needs);
}

// Refuses what is far beyond the budget before a million slices are planned,
// which anybody who may join could ask for. Shards are balanced to within one
// slice, so that this one has at least so many elements.
absl::Status CheckLeastMemory(const ShardOptions& options, Backend* backend,
                              const Manifest& manifest) {
  const absl::Status status = ValidateManifest(manifest);
  if (!status.ok()) return status;
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
  absl::Status status = CheckLeastMemory(options, backend, manifest);
  if (!status.ok()) return status;
  absl::StatusOr<ShardLayout> layout = MakeShardLayout(
      manifest, options.num_shards, options.ordinal, options.push_dtype);
  if (!layout.ok()) return layout.status();
  std::unique_ptr<ShardCompute> compute(new ShardCompute(options, backend));
  compute->layout_ = std::make_shared<ShardLayout>(*std::move(layout));
  compute->manifest_size_ = SizeOf(compute->layout_->manifest);
  absl::StatusOr<std::vector<GroupOptions>> groups =
      GroupsOf(options, manifest);
  if (!groups.ok()) return groups.status();
  compute->group_of_tensor_ = *std::move(groups);
  if (options.replicated) {
    auto replica = ShardReplica::Create(options, backend, manifest);
    if (!replica.ok()) return replica.status();
    compute->replica_ = *std::move(replica);
  }
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
          options.pull_dtype, kPatience, options.shared_memory);
  if (!store.ok()) {
    return WithPlan(store.status(), compute->PlanRows(1));
  }
  compute->store_ = *std::move(store);
  status = compute->AllocateCopies();
  if (!status.ok()) return WithPlan(status, compute->PlanRows(1));
  return compute;
}

absl::Status ShardCompute::AllocateCopies() {
  if (replica_ == nullptr) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<Buffer>> combined =
      backend_->Allocate(BufferUse::kSnapshot,
                         std::max(layout_->num_elements, kLayoutAlignment) * 4);
  if (!combined.ok()) return combined.status();
  combined_ = *std::move(combined);
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
               1 + OptimizerStateArrays(options_.optimizer),
               backend_->memory_needs(num_rows), &plan);
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
  absl::Status status = CheckMemoryPlan(plan, options_.memory_budget);
  if (!status.ok()) return status;
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
           num_elements < kGramElements) {
      num_elements += layout_->ranges[slices[end++]].num_elements;
    }
    const absl::Status status =
        AppendGrams(buffers.pointers(),
                    absl::MakeConstSpan(slices).subspan(begin, end - begin),
                    compensated, &grams);
    if (!status.ok()) return status;
    begin = end;
  }
  return grams;
}

}  // namespace agg
