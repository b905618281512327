// Allocates everything that a round will need. cuBLAS takes its memory at
// its first call, so that call is made here, with zeros.
#include "kernels/cuda/cuda_scratch.h"

#include <utility>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/gram_schedule.h"

namespace agg::cuda {
namespace {

// Moves a value out of `made`, or returns why there is none.
template <class T>
absl::Status Take(absl::StatusOr<T> made, T* to) {
  if (!made.ok()) return made.status();
  *to = *std::move(made);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaScratch>> CudaScratch::Make(
    const NumaNode& node) {
  auto scratch = std::make_unique<CudaScratch>();
  absl::Status status = Take(MakeStream(), &scratch->compute);
  if (status.ok()) status = Take(MakeStream(), &scratch->download);
  if (status.ok()) status = Take(MakeEvent(), &scratch->computed);
  if (status.ok()) status = Take(MakeEvent(), &scratch->published);
  if (status.ok()) status = Take(SnapshotCopies::Make(), &scratch->snapshots);
  if (status.ok()) {
    status = Take(AllocateDevice(kPartialBytes), &scratch->partial);
  }
  if (status.ok()) {
    status = Take(AllocatePinned(kPartialBytes, node), &scratch->host_sums);
  }
  for (int i = 0; i < 2 && status.ok(); ++i) {
    absl::StatusOr<ArgsBlock> args = ArgsBlock::Make(node);
    if (args.ok()) scratch->args.push_back(*std::move(args));
    status = args.status();
  }
  if (!status.ok()) return status;
  return scratch;
}

absl::Status CudaScratch::StartCublas() {
  absl::Status status = Take(AllocateDevice(kTileBytes), &tile);
  if (status.ok()) status = Take(AllocateDevice(kTileBytes), &matrices);
  if (status.ok()) status = Take(AllocateDevice(kPartialBytes), &sums);
  if (status.ok()) status = cublas->Start(compute.get());
  if (!status.ok()) return status;
  const TileShape shape = PlanTile(many_rows + 1, kTileBytes);
  BatchedGram zeros;
  zeros.a = reinterpret_cast<const double*>(tile.get());
  zeros.num_rows = static_cast<int>(many_rows + 1);
  zeros.num_elements = kBatchElements;
  zeros.row_stride = static_cast<int>(shape.row_stride());
  zeros.num_batches = shape.num_batches;
  zeros.c = reinterpret_cast<double*>(matrices.get());
  status = cublas->Gram(zeros);
  if (!status.ok()) return status;
  AGG_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(compute.get()));
  return absl::OkStatus();
}

absl::Status CudaScratch::PrepareManyRows() {
  if (cublas == nullptr || prepared_) return absl::OkStatus();
  const absl::Status status = StartCublas();
  prepared_ = status.ok();
  if (!status.ok()) {
    tile = nullptr;
    matrices = nullptr;
    sums = nullptr;
  }
  return status;
}

}  // namespace agg::cuda
