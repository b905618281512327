// What a job may choose about the rule geometric_median. Apart from
// geometric_median.h, since the interface of all rules hands it on.
#ifndef AGG_SERVER_COMBINE_GEOMETRIC_MEDIAN_OPTIONS_H_
#define AGG_SERVER_COMBINE_GEOMETRIC_MEDIAN_OPTIONS_H_

#include <cstdint>

namespace agg {

struct GeometricMedianOptions {
  int32_t iterations = 64;  // at most, of Weiszfeld's algorithm; >= 1
  // Distances count as at least this part of the rows' median norm, in
  // [1e-8, 1].
  double epsilon = 1e-6;
};

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_GEOMETRIC_MEDIAN_OPTIONS_H_
