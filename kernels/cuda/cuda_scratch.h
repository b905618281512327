// The device memory that computing takes besides rows and state: allocated
// once, when the backend is made, never within a round.
#ifndef AGG_KERNELS_CUDA_CUDA_SCRATCH_H_
#define AGG_KERNELS_CUDA_CUDA_SCRATCH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/args_block.h"
#include "kernels/cuda/cublas_library.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/numa_node.h"
#include "kernels/cuda/snapshot_copies.h"

namespace agg::cuda {

// Bytes for the partial sums of a wave, and as many for their sums per range,
// on the host (with cuBLAS on the device, too).
inline constexpr int64_t kPartialBytes = int64_t{32} << 20;

// Bytes for the cuBLAS Gram's tile, and as many for its matrices.
inline constexpr int64_t kTileBytes = int64_t{64} << 20;

// More rows than this are many: cuBLAS multiplies them, where there is one. By
// way of cuBLAS 4 bytes of a row become 28 (read, written as a double, read for
// both operands) in a tile larger than the L2 cache, and both triangles are
// computed. Up to 512 rows, the most that cuda_kernels measures, the hand
// kernels are faster on an H100, of 512 float32 rows 5.7 times.
inline constexpr int64_t kManyRows = 512;

struct CudaScratch {
  Stream compute;   // kernels
  Stream download;  // snapshots to the host
  Event computed;
  Event published;  // what is published at once is where its readers are
  std::shared_ptr<SnapshotCopies> snapshots;  // of float32, behind those
  std::vector<ArgsBlock> args;                // two, taking turns
  // Plain Grams by LaunchGramDoubleFloat, of any number of rows.
  bool double_float = false;
  // Rows that are not many yet. Set before there are any.
  int64_t many_rows = kManyRows;
  // What a wave of Gram may take of each of partial and the sums. Tests make it
  // smaller, to see several waves of small ranges.
  int64_t wave_bytes = kPartialBytes;
  DeviceMemory partial;    // kPartialBytes
  PinnedMemory host_sums;  // kPartialBytes; kernels write there, too

  // Only once there are many rows (PrepareManyRows).
  std::unique_ptr<CublasLibrary> cublas;  // null: not found or not wanted
  DeviceMemory tile;                      // kTileBytes
  DeviceMemory matrices;                  // kTileBytes
  DeviceMemory sums;                      // kPartialBytes

  // Its host memory is on the node.
  static absl::StatusOr<std::unique_ptr<CudaScratch>> Make(
      const NumaNode& node);

  // What it takes with that many row buffers (or none that cuBLAS serves),
  // besides what CUDA and cuBLAS take for themselves.
  static int64_t HostBytes() { return kPartialBytes + 2 * kArgsBytes; }
  int64_t DeviceBytes(int64_t num_rows) const {
    return kPartialBytes +
           (num_rows > many_rows ? 2 * kTileBytes + kPartialBytes : 0);
  }

  // Called when there are more than many_rows row buffers, before any round
  // has so many; multiplies once, so that a library which cannot is found out
  // here, and loads its kernels. After an error nothing is prepared. Without
  // cuBLAS, or once prepared, there is nothing to do.
  absl::Status PrepareManyRows();
  bool prepared() const { return prepared_; }

 private:
  absl::Status StartCublas();
  bool prepared_ = false;
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_CUDA_SCRATCH_H_
