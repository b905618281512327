// One step of the offline combination as a line of JSON.
#ifndef AGG_SERVER_TOOLS_STEP_LINE_H_
#define AGG_SERVER_TOOLS_STEP_LINE_H_

#include <cstdint>
#include <string>

#include "server/tools/combine_step.h"

namespace agg {

// Members: step, file, coefficients, gram, norm, orthogonality,
// gradient_diversity, mean_pairwise_cosine, kappa, fallback (compensated or
// adacons_fallback), excluded (rows), sigma2 and mu2 (this step's, unclipped),
// sigma2_mean and mu2_mean (averaged), gain, tau, step_factor, learning_rate,
// clip_factor, finished, skipped (the reason). Undefined and infinite values
// are null. No newline.
std::string CombineStepLine(int64_t step, const std::string& file,
                            const CombineStepResult& result);

}  // namespace agg

#endif  // AGG_SERVER_TOOLS_STEP_LINE_H_
