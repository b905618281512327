// The rule `external`: its coefficients are decided in a process beside the job
// (server/combine/README.md 15). The waiting for that process is the
// coordinator's; what is here is as pure as any other rule.
#ifndef AGG_SERVER_COMBINE_EXTERNAL_H_
#define AGG_SERVER_COMBINE_EXTERNAL_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/combine/combination_rule.h"
#include "server/combine/compacted_round.h"

namespace agg {

// What an external rule remembers, at most, over all segments: it is in the
// record that travels with each round of a replicated job.
inline constexpr size_t kMostExternalState = size_t{64} << 10;

// The rule external, whose weights are RuleInput::external. Without an answer
// it is the mean and leaves its state as it was; a job has another rule run
// then (ExternalOptions::fallback).
class ExternalRule : public CombinationRule {
 public:
  RuleResult Combine(const RuleInput& input, RuleState* state,
                     absl::Span<double> coefficients) override;
};

// Whether an answer fits a round of so many segments and kept rows.
// INVALID_ARGUMENT naming the field, its value and what is allowed: as many
// segments, as many weights in each, all finite; states of kMostExternalState
// bytes together; a step_scale that is finite and > 0.
absl::Status CheckExternalAnswer(const ExternalAnswer& answer,
                                 size_t num_segments, int num_rows);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_EXTERNAL_H_
