// Master weights, optimizer state and snapshots of one layout, for tests of
// Load, Update, its two halves and Norms.
#ifndef AGG_TESTS_CONFORMANCE_UPDATE_RUN_H_
#define AGG_TESTS_CONFORMANCE_UPDATE_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "tests/conformance/backend_conformance.h"

namespace agg {

// What an UpdateRange says besides its range and coefficients.
struct RangeStep {
  float learning_rate = 1.0f;
  float weight_decay = 0.0f;
  float trust = 1.0f;
};

class UpdateRun {
 public:
  using Change = std::function<void(UpdateRequest*)>;

  // What the snapshot buffers hold before anything is published.
  static constexpr float kUntouched = 12345.0f;

  // `narrowed_dtype` kF32: no narrowed snapshot.
  UpdateRun(Backend* backend, const OptimizerOptions& options,
            std::vector<ElementRange> ranges,
            DType narrowed_dtype = DType::kF32);

  // Makes `seed` version 0 and forgets the step count.
  void Load(const std::vector<float>& seed);

  // Master weights, then the optimizer's arrays, as they are.
  std::vector<std::vector<float>> ReadArrays() const;
  // Makes this run what another one was when its arrays were read, after
  // `num_steps` steps.
  void Resume(const std::vector<std::vector<float>>& arrays, int64_t num_steps);

  // All ranges, each with the same; `coefficients` outlives them.
  std::vector<UpdateRange> MakeRanges(const std::vector<double>& coefficients,
                                      const RangeStep& step) const;
  void MakeRanges(std::vector<double>&& coefficients,
                  const RangeStep& step) const = delete;

  // One step of all ranges with the same coefficients; `change` may spoil the
  // request. A refused step is not counted.
  absl::Status Update(const TestRows& rows,
                      const std::vector<double>& coefficients,
                      const RangeStep& step, const Change& change = {});
  absl::Status Update(const TestRows& rows,
                      const std::vector<UpdateRange>& updates,
                      const Change& change = {});

  // The halves of an Update. Combine of other ranges than a step's changes
  // nothing else; Step has neither rows nor coefficients, and is counted.
  absl::Status Combine(const TestRows& rows,
                       const std::vector<UpdateRange>& updates,
                       const Change& change = {});
  absl::Status Step(const std::vector<UpdateRange>& updates,
                    const Change& change = {});

  // Norms of the coming step.
  std::vector<RangeNorms> Norms(const TestRows& rows,
                                const std::vector<double>& coefficients,
                                const RangeStep& step);

  // What the last Update or Step said.
  bool all_finite() const { return all_finite_; }
  // Memory on the host, for as many floats as the layout has; kUntouched at
  // first.
  float* combined() const;
  std::vector<float> Combined() const;
  std::vector<float> Snapshot() const;
  std::vector<uint16_t> NarrowedSnapshot() const;  // of Load or Update

 private:
  // The request of a Step, which has no rows.
  UpdateRequest MakeStepRequest(const std::vector<UpdateRange>& updates) const;
  UpdateRequest MakeRequest(const TestRows& rows,
                            const std::vector<UpdateRange>& updates) const;

  Backend* backend_;
  OptimizerOptions options_;
  std::vector<ElementRange> ranges_;
  DType narrowed_dtype_;
  int64_t num_elements_;
  int64_t step_ = 1;
  bool all_finite_ = true;
  std::unique_ptr<Buffer> master_;
  std::unique_ptr<Buffer> state0_;
  std::unique_ptr<Buffer> state1_;
  std::unique_ptr<Buffer> snapshot_;
  std::unique_ptr<Buffer> narrowed_;
  std::unique_ptr<Buffer> combined_;
};

// combined = float(sum in double): P roundings in double, one to float.
void ExpectCombined(const TestRows& rows,
                    const std::vector<double>& coefficients,
                    const std::vector<float>& combined);

}  // namespace agg

#endif  // AGG_TESTS_CONFORMANCE_UPDATE_RUN_H_
