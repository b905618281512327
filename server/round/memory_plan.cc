#include "server/round/memory_plan.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/shard_plan.h"
#include "server/params/parameter_store.h"

namespace agg {
namespace {

std::string Mebibytes(int64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

MemoryPlan PlanMemory(int64_t num_elements, int64_t num_rows, DType push_dtype,
                      DType pull_dtype, const OptimizerOptions& optimizer) {
  MemoryPlan plan;
  plan.rows = num_rows * num_elements * DTypeBytes(push_dtype);
  plan.master = num_elements * 4;
  plan.state = OptimizerStateArrays(optimizer) * num_elements * 4;
  const int64_t narrowed =
      pull_dtype == DType::kF32 ? 0 : DTypeBytes(pull_dtype);
  plan.snapshots = kNumSnapshots * num_elements * (4 + narrowed);
  plan.frames = 2 * num_rows * kMaxFramePayloadBytes;
  return plan;
}

std::string DescribeMemoryPlan(const MemoryPlan& plan) {
  return absl::StrCat("rows ", Mebibytes(plan.rows), " + master ",
                      Mebibytes(plan.master), " + optimizer state ",
                      Mebibytes(plan.state), " + snapshots ",
                      Mebibytes(plan.snapshots), " + frames ",
                      Mebibytes(plan.frames), " = ", Mebibytes(plan.total()));
}

absl::Status CheckMemoryPlan(const MemoryPlan& plan, int64_t budget_bytes) {
  if (budget_bytes <= 0 || plan.total() <= budget_bytes) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "memory_budget_bytes is ", budget_bytes, " (", Mebibytes(budget_bytes),
      "), the plan needs ", DescribeMemoryPlan(plan),
      "; raise the budget, use more shards, fewer workers or bf16 rows"));
}

}  // namespace agg
