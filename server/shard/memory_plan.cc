// Adds up the uses for host and device, and says in an error how large each
// of them is.
#include "server/shard/memory_plan.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/row_format.h"
#include "proto/shard_plan.h"
#include "server/params/parameter_store.h"

namespace agg {
namespace {

std::string Mebibytes(int64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

// Purposes that need no memory are left out.
std::string DescribeUse(const MemoryUse& use) {
  std::vector<std::string> parts;
  const auto add = [&](const char* what, int64_t bytes) {
    if (bytes != 0) parts.push_back(absl::StrCat(what, " ", Mebibytes(bytes)));
  };
  add("rows", use.rows);
  add("successors' rows", use.successors);
  add("master", use.master);
  add("optimizer state", use.state);
  add("snapshots", use.snapshots);
  add("frames", use.frames);
  add("arrival ledger", use.ledger);
  add("Gram matrices", use.grams);
  add("early Grams", use.early_grams);
  add("scratch", use.scratch);
  add("checkpoint", use.checkpoint);
  add("combined gradient", use.combined);
  add("incoming combined gradient", use.incoming);
  add("replica", use.replica);
  add("transfer", use.transfer);
  add("coordinator", use.coordinator);
  add("manifest", use.manifest);
  return absl::StrCat(absl::StrJoin(parts, " + "), " = ",
                      Mebibytes(use.total()));
}

absl::Status CheckUse(const char* field, int64_t budget_bytes,
                      int64_t planned_bytes, const MemoryPlan& plan) {
  if (budget_bytes <= 0 || planned_bytes <= budget_bytes) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      field, " is ", budget_bytes, " (", Mebibytes(budget_bytes),
      "), the plan needs ", DescribeMemoryPlan(plan),
      "; raise the budget, use more shards, fewer workers or bf16 rows"));
}

}  // namespace

int64_t CoordinatorBytes(int64_t num_tensors, int64_t num_slices,
                         int64_t num_rows, int64_t num_shards) {
  constexpr int64_t kDouble = sizeof(double);
  // The decision's and the shards', the rule's state before and after the
  // round, and once more for the round that is being reported.
  constexpr int64_t kCoefficientCopies = 8;
  // Of 3 MiB each: gRPC's bytes, the message made of them, the next one's
  // bytes.
  constexpr int64_t kMessageBytes = 3 * (int64_t{3} << 20);
  const int64_t gram = PackedGramSize(num_rows) * kDouble;
  const int64_t grams =
      2 * num_tensors + std::max<int64_t>(0, num_slices - num_tensors);
  return grams * gram + kCoefficientCopies * num_tensors * num_rows * kDouble +
         (num_shards - 1) * std::min(kMessageBytes, 3 * num_slices * gram);
}

int64_t LayoutBytes(const ManifestSize& size, int64_t num_slices,
                    bool coordinates) {
  // A tensor's list of slices, and its group's options; a slice in the plan and
  // where it lies.
  constexpr int64_t kTensor = 80;
  constexpr int64_t kSlice = 64;
  const int64_t plan =
      ManifestBytes(size) + size.tensors * kTensor + num_slices * kSlice;
  if (!coordinates) return plan;
  return 2 * plan + ManifestBytes(size) + size.text_bytes + 16 * size.tensors;
}

int64_t TransferBytes(int64_t num_elements, int64_t num_replica_elements) {
  constexpr int64_t kNumFrames = 4;
  return (num_elements + num_replica_elements) * int64_t{sizeof(float)} +
         kNumFrames * kMaxFramePayloadBytes;
}

int64_t OnDevice(int64_t num_bytes, const MemoryNeeds& needs) {
  const int64_t unit = needs.device_granularity;
  return (num_bytes + unit - 1) / unit * unit;
}

MemoryPlan PlanMemory(int64_t num_elements, int64_t num_rows, DType push_dtype,
                      DType pull_dtype, const OptimizerOptions& optimizer,
                      const MemoryNeeds& needs, int64_t num_successors) {
  MemoryPlan plan;
  const int64_t narrowed =
      pull_dtype == DType::kF32 ? 0 : DTypeBytes(pull_dtype);
  plan.host.rows = num_rows * RowBytes(push_dtype, num_elements);
  plan.host.successors = num_successors * RowBytes(push_dtype, num_elements);
  plan.host.snapshots = kNumSnapshots * num_elements * (4 + narrowed);
  plan.host.frames = 2 * num_rows * kMaxFramePayloadBytes;
  plan.host.scratch = needs.scratch_bytes;
  if (needs.on_device) {
    const int64_t row = OnDevice(RowBytes(push_dtype, num_elements), needs);
    plan.device.rows = num_rows * row;
    plan.device.successors = num_successors * row;
    plan.device.snapshots = num_elements * narrowed;
    plan.device.scratch = needs.device_scratch_bytes;
  }
  MemoryUse& compute = needs.on_device ? plan.device : plan.host;
  compute.master = OnDevice(num_elements * 4, needs);
  compute.state = OptimizerStateArrays(optimizer) * compute.master;
  return plan;
}

void PlanCopies(int64_t num_elements, int64_t num_replica_elements,
                const OptimizerOptions& optimizer, const MemoryNeeds& needs,
                MemoryPlan* plan) {
  plan->host.combined = num_elements * 4;
  plan->host.incoming = num_replica_elements * 4;
  plan->host.transfer = TransferBytes(num_elements, num_replica_elements);
  MemoryUse& compute = plan->device.total() > 0 ? plan->device : plan->host;
  compute.replica = (1 + OptimizerStateArrays(optimizer)) *
                    OnDevice(num_replica_elements * 4, needs);
}

std::string DescribeMemoryPlan(const MemoryPlan& plan) {
  std::string text = DescribeUse(plan.host);
  if (plan.device.total() > 0) {
    absl::StrAppend(&text, "; on the device ", DescribeUse(plan.device));
  }
  return text;
}

absl::Status CheckMemoryPlan(const MemoryPlan& plan,
                             const MemoryBudget& budget) {
  absl::Status status = CheckUse("memory_budget_bytes", budget.host_bytes,
                                 plan.host.total(), plan);
  status.Update(CheckUse("device_memory_budget_bytes", budget.device_bytes,
                         plan.device.total(), plan));
  return status;
}

}  // namespace agg
