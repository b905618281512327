// How much memory a shard will need: a pure function of its layout.
#ifndef AGG_SERVER_SHARD_MEMORY_PLAN_H_
#define AGG_SERVER_SHARD_MEMORY_PLAN_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/dtype.h"
#include "kernels/optimizer_step.h"
#include "proto/manifest_size.h"
#include "server/round/shard_options.h"

namespace agg {

// Bytes by purpose, in one kind of memory.
struct MemoryUse {
  int64_t rows = 0;  // landing memory: RowBytes of each
  // Rows of ranks whose former session's row is held until its round ends, and
  // whose next session may write one of its own meanwhile.
  int64_t successors = 0;
  int64_t master = 0;  // float32 weights
  int64_t state = 0;   // optimizer state arrays
  // Snapshots: three, float32 and narrowed; on a device: narrowed.
  int64_t snapshots = 0;
  int64_t frames = 0;       // in flight: two frames per worker
  int64_t ledger = 0;       // which slices of which rows have landed
  int64_t grams = 0;        // slices' Gram matrices of a round
  int64_t early_grams = 0;  // which of them are computed before its close
  int64_t scratch = 0;      // of the backend
  int64_t checkpoint = 0;   // a copy of the arrays, while it is written
  // Replication alone needs these: combined gradients of the own part and of
  // the one that has its replica here, and the replica's arrays.
  int64_t combined = 0;
  int64_t incoming = 0;
  int64_t replica = 0;
  // Arrays on their way from a checkpoint, or from and to other processes that
  // have a copy: TransferBytes.
  int64_t transfer = 0;
  int64_t coordinator = 0;  // in shard 0's process; CoordinatorBytes
  int64_t manifest = 0;     // names, shapes, slices; LayoutBytes
  int64_t total() const {
    return rows + successors + master + state + snapshots + frames + ledger +
           grams + early_grams + scratch + checkpoint + combined + incoming +
           replica + transfer + coordinator + manifest;
  }
};

struct MemoryPlan {
  MemoryUse host;
  MemoryUse device;  // zeros unless the backend has memory of its own
};

// What the coordinator needs for rounds of `num_rows` rows in a job of that
// many tensors and slices: the tensors' Gram matrices of the round in execution
// and of the one whose statistics are being computed, those of slices that have
// come before their turn, coefficients, and messages on their way. Compensated
// Grams, which few rounds ask for, are not in it.
int64_t CoordinatorBytes(int64_t num_tensors, int64_t num_slices,
                         int64_t num_rows, int64_t num_shards);

// What the manifest and the plan of its slices take in a process, which with
// many small tensors is more than their elements do. The coordinator has them
// once more, and one manifest besides, which all Joins share, with its bytes.
int64_t LayoutBytes(const ManifestSize& size, int64_t num_slices,
                    bool coordinates);

// What a shard takes while copies are fetched (P15): one array of its own part
// and one of the part that it has the replica of, with so many elements. Each
// is sent or got, never both. And two frames of each of the two streams, which
// rounds have as well.
int64_t TransferBytes(int64_t num_elements, int64_t num_replica_elements);

// What a kRow or kState buffer of so many bytes takes there, or on the host for
// a backend without a device.
int64_t OnDevice(int64_t num_bytes, const MemoryNeeds& needs);

// The plan for `num_rows` rows (at most so many workers) of num_elements, and
// for `num_successors` rows more.
// `needs`: Backend::memory_needs(num_rows). What goes by slices is left at 0
// (ledger, grams, early_grams, coordinator): their number is known to the
// caller (ShardCompute) alone.
MemoryPlan PlanMemory(int64_t num_elements, int64_t num_rows, DType push_dtype,
                      DType pull_dtype, const OptimizerOptions& optimizer,
                      const MemoryNeeds& needs, int64_t num_successors = 0);

// Adds what second copies take: all float32. The combined gradients are on the
// host, the replica's arrays where the home's are.
void PlanCopies(int64_t num_elements, int64_t num_replica_elements,
                const OptimizerOptions& optimizer, const MemoryNeeds& needs,
                MemoryPlan* plan);

// "rows 4.0 MiB + master 1.0 MiB = 5.0 MiB", for messages. A device's memory
// follows in the same form behind "; on the device ".
std::string DescribeMemoryPlan(const MemoryPlan& plan);

// FAILED_PRECONDITION with the plan's numbers when it exceeds the budget.
absl::Status CheckMemoryPlan(const MemoryPlan& plan,
                             const MemoryBudget& budget);

}  // namespace agg

#endif  // AGG_SERVER_SHARD_MEMORY_PLAN_H_
