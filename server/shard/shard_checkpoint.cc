// Capture is one Read of each array; restoring goes by slices, since the files'
// parts and this shard's layout may be of different numbers of shards.
#include "server/shard/shard_checkpoint.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "server/base/field_error.h"

namespace agg {
namespace {

// By the numbers of checkpoint arrays; null if the optimizer keeps fewer.
Buffer* ArrayOf(ParameterStore* store, int array) {
  if (array == 0) return store->master();
  return array == 1 ? store->state0() : store->state1();
}

// Fills `to`, an array in the shard's layout.
absl::Status ReadArray(CheckpointReader* reader, const ShardLayout& layout,
                       int array, absl::Span<float> to) {
  for (size_t i = 0; i < layout.slices.size(); ++i) {
    const ElementRange& range = layout.ranges[i];
    const absl::Status status =
        reader->ReadSlice(layout.slices[i], array,
                          to.subspan(static_cast<size_t>(range.begin),
                                     static_cast<size_t>(range.num_elements)));
    if (!status.ok()) return status;
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
    const absl::Status status = reader->VerifyPart(i);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Snapshot>> RestoreArrays(
    CheckpointReader* reader, const ShardLayout& layout,
    const OptimizerOptions& optimizer, Backend* backend,
    ParameterStore* store) {
  absl::Status status = CheckArrays(*reader, optimizer);
  if (!status.ok()) return status;
  int revoked = 0;
  const std::shared_ptr<Snapshot> snapshot = store->NextSnapshot(&revoked);
  const auto num_elements = static_cast<size_t>(layout.num_elements);
  // Where the seed lands, too: Load then does for both what follows from the
  // parameters, the narrowed copy among them.
  Buffer* const parameters = snapshot->buffers()->f32.get();
  status =
      ReadArray(reader, layout, 0,
                absl::MakeSpan(reinterpret_cast<float*>(parameters->host()),
                               num_elements));
  if (!status.ok()) return status;
  status = backend->Load(
      optimizer, *parameters, store->master(), store->state0(), store->state1(),
      snapshot->buffers()->narrowed.get(), store->narrowed_dtype());
  std::vector<float> state(status.ok() ? num_elements : 0);
  for (int array = 1; array <= OptimizerStateArrays(optimizer); ++array) {
    if (status.ok()) {
      status = ReadArray(reader, layout, array, absl::MakeSpan(state));
    }
    if (status.ok() && !state.empty()) {
      status = backend->Write(state, ArrayOf(store, array));
    }
  }
  if (!status.ok()) return status;
  return snapshot;
}

}  // namespace agg
