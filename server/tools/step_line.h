// One step of the offline combination as a line of JSON.
#ifndef AGG_SERVER_TOOLS_STEP_LINE_H_
#define AGG_SERVER_TOOLS_STEP_LINE_H_

#include <cstdint>
#include <string>

#include "server/tools/combine_step.h"

namespace agg {

// Members: step, file, coefficients, gram; the numbers that RoundNumbers() has
// for agg_combine, by their names there; fallback (compensated or
// adacons_fallback), compensated, adacons_fallback, short_of_rows (Krum took
// fewer rows for byzantine than it was told), excluded (rows), outliers (rows,
// excluded or not), outliers_not_judged (there were too few rows to look for
// any), finished, skipped (the reason). Undefined and infinite values are null.
// No newline.
std::string CombineStepLine(int64_t step, const std::string& file,
                            const CombineStepResult& result);

}  // namespace agg

#endif  // AGG_SERVER_TOOLS_STEP_LINE_H_
