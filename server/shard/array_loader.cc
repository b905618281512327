// Load clears the state, so that parameters come first.
#include "server/shard/array_loader.h"

#include <cstddef>

#include "server/base/try_resize.h"

namespace agg {

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
    const absl::Status status = TryResize(num_elements_, &state_);
    if (!status.ok()) return status;
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

}  // namespace agg
