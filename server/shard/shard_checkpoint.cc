// Capture is one Read of each array; restoring goes by slices, since the files'
// parts and this shard's layout may be of different numbers of shards.
#include "server/shard/shard_checkpoint.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"
#include "server/base/process_memory.h"
#include "server/base/status_macros.h"

namespace agg {

// Load clears the state, so that parameters come first.

Buffer* ArrayOf(ParameterStore* store, int array) {
  if (array == 0) return store->master();
  return array == 1 ? store->state0() : store->state1();
}

ArrayLoader::ArrayLoader(const OptimizerOptions& optimizer, Backend* backend,
                         ParameterStore* store, int64_t num_elements)
    : optimizer_(optimizer),
      backend_(backend),
      store_(store),
      num_elements_(num_elements) {}

absl::Status ArrayLoader::Begin() {
  int revoked = 0;
  absl::StatusOr<std::shared_ptr<Snapshot>> snapshot =
      store_->NextSnapshot(&revoked);
  if (snapshot.ok()) snapshot_ = *std::move(snapshot);
  return snapshot.status();
}

absl::StatusOr<absl::Span<float>> ArrayLoader::Destination(int array) {
  if (array > 0) {
    AGG_RETURN_IF_ERROR(TryResize(num_elements_, &state_));
    return absl::MakeSpan(state_);
  }
  return absl::MakeSpan(
      reinterpret_cast<float*>(snapshot_->buffers()->f32->host()),
      static_cast<size_t>(num_elements_));
}

absl::Status ArrayLoader::Finish(int array) {
  if (array == 0) {
    store_->BeginMaster();
    const absl::Status status = backend_->Load(
        optimizer_, *snapshot_->buffers()->f32, store_->master(),
        store_->state0(), store_->state1(),
        snapshot_->buffers()->narrowed.get(), store_->narrowed_dtype());
    if (status.ok()) store_->EndMaster(snapshot_.get());
    return status;
  }
  // A shard without slices has arrays all the same: no array is empty.
  if (state_.empty()) return absl::OkStatus();
  return backend_->Write(state_, ArrayOf(store_, array));
}

namespace {

// Fills `to`, an array in the shard's layout.
absl::Status ReadArray(CheckpointReader* reader, const ShardLayout& layout,
                       int array, absl::Span<float> to) {
  for (size_t i = 0; i < layout.slices.size(); ++i) {
    const ElementRange& range = layout.ranges[i];
    AGG_RETURN_IF_ERROR(
        reader->ReadSlice(layout.slices[i], array,
                          to.subspan(static_cast<size_t>(range.begin),
                                     static_cast<size_t>(range.num_elements))));
  }
  return absl::OkStatus();
}

absl::Status CheckArrays(const CheckpointReader& reader,
                         const OptimizerOptions& optimizer) {
  const int num_arrays = OptimizerStateArrays(optimizer);
  const int num_read = reader.manifest().num_state_arrays;
  if (num_read == num_arrays) return absl::OkStatus();
  return FieldError("checkpoint.state_arrays", absl::StrCat(num_read),
                    absl::StrCat(num_arrays, ", as configured"));
}

}  // namespace

ShardArrays ArraysOf(const ShardLayout& layout,
                     const OptimizerOptions& optimizer) {
  ShardArrays arrays;
  arrays.plan = layout.plan;
  arrays.ordinal = layout.ordinal;
  arrays.num_arrays = 1 + OptimizerStateArrays(optimizer);
  arrays.num_elements = layout.num_elements;
  for (const ElementRange& range : layout.ranges) {
    arrays.slice_begins.push_back(range.begin);
  }
  return arrays;
}

CheckpointWriter::CopyArray CopyFrom(Backend* backend, ParameterStore* store) {
  return [backend, store](int array, absl::Span<float> to) {
    // A shard without slices has arrays all the same: no array is empty.
    return to.empty() ? absl::OkStatus()
                      : backend->Read(*ArrayOf(store, array), to);
  };
}

absl::Status VerifyShare(CheckpointReader* reader, int ordinal,
                         int num_shards) {
  for (int i = ordinal; i < reader->manifest().num_shards; i += num_shards) {
    AGG_RETURN_IF_ERROR(reader->VerifyPart(i));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Snapshot>> RestoreArrays(
    CheckpointReader* reader, const ShardLayout& layout,
    const OptimizerOptions& optimizer, Backend* backend,
    ParameterStore* store) {
  AGG_DCHECK(reader->plan().slices.size() == layout.plan.slices.size());
  AGG_RETURN_IF_ERROR(CheckArrays(*reader, optimizer));
  ArrayLoader loader(optimizer, backend, store, layout.num_elements);
  absl::Status status = loader.Begin();
  if (!status.ok()) return status;
  for (int array = 0; array <= OptimizerStateArrays(optimizer); ++array) {
    const absl::StatusOr<absl::Span<float>> to = loader.Destination(array);
    status = to.ok() ? ReadArray(reader, layout, array, *to) : to.status();
    if (status.ok()) status = loader.Finish(array);
    if (!status.ok()) return status;
  }
  return loader.snapshot();
}

}  // namespace agg
