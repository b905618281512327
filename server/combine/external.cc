#include "server/combine/external.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"
#include "server/base/status_macros.h"
#include "server/combine/means.h"

namespace agg {

RuleResult ExternalRule::Combine(const RuleInput& input, RuleState* state,
                                 absl::Span<double> coefficients) {
  if (input.external == nullptr) {
    MeanCoefficients(coefficients);
    return ResultOf(input.gram, coefficients);
  }
  const ExternalSegment& answer = *input.external;
  AGG_DCHECK(answer.weights.size() == coefficients.size());
  std::copy(answer.weights.begin(), answer.weights.end(), coefficients.begin());
  state->bytes = answer.state;
  return ResultOf(input.gram, coefficients);
}

absl::Status CheckExternalAnswer(const ExternalAnswer& answer,
                                 size_t num_segments, int num_rows) {
  if (answer.segments.size() != num_segments) {
    return FieldError("segments", absl::StrCat(answer.segments.size()),
                      absl::StrCat(num_segments, ", as the question has"));
  }
  AGG_RETURN_IF_ERROR(CheckField(IsFinitePositive(answer.step_scale),
                                 "step_scale", answer.step_scale,
                                 "finite and > 0"));
  size_t num_bytes = 0;
  for (size_t s = 0; s < num_segments; ++s) {
    const ExternalSegment& segment = answer.segments[s];
    if (segment.weights.size() != static_cast<size_t>(num_rows)) {
      return FieldError(absl::StrCat("segments[", s, "].weights"),
                        absl::StrCat(segment.weights.size(), " weights"),
                        absl::StrCat(num_rows, ", one for each row"));
    }
    for (size_t i = 0; i < segment.weights.size(); ++i) {
      AGG_RETURN_IF_ERROR(
          CheckField(std::isfinite(segment.weights[i]),
                     absl::StrCat("segments[", s, "].weights[", i, "]"),
                     segment.weights[i], "finite"));
    }
    num_bytes += segment.state.size();
  }
  if (num_bytes > kMostExternalState) {
    return FieldError("state", absl::StrCat(num_bytes, " bytes"),
                      absl::StrCat("at most ", kMostExternalState));
  }
  return absl::OkStatus();
}

}  // namespace agg
