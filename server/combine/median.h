// The median of numbers, and what the median absolute deviation estimates.
#ifndef AGG_SERVER_COMBINE_MEDIAN_H_
#define AGG_SERVER_COMBINE_MEDIAN_H_

#include <vector>

namespace agg {

// The median absolute deviation times this estimates the standard deviation of
// normally distributed numbers.
inline constexpr double kMadToDeviation = 1.4826;

// The middle one, or the mean of the middle two; of two equal infinities that
// infinity. REQUIRES: not empty, no NaN.
double Median(std::vector<double> values);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_MEDIAN_H_
