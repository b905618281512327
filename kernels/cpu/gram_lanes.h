// The virtual layout of sums: 8 lanes of doubles, whatever the SIMD target.
//
// Lane l accumulates the elements l, l + 8, l + 16 .. of a block in order (a
// last, incomplete group of 8 is filled up with zeros), and the lanes are
// added as ((0+4)+(2+6))+((1+5)+(3+7)).
#ifndef AGG_KERNELS_CPU_GRAM_LANES_H_
#define AGG_KERNELS_CPU_GRAM_LANES_H_

#include <cstdint>

namespace agg {

inline constexpr int64_t kGramLanes = 8;

inline double SumOfGramLanes(const double* lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

}  // namespace agg

#endif  // AGG_KERNELS_CPU_GRAM_LANES_H_
