// Whether parameters have the same bytes.
#ifndef AGG_TESTS_SIM_SAME_BITS_H_
#define AGG_TESTS_SIM_SAME_BITS_H_

#include <cstddef>
#include <cstring>

#include "tests/server/round/row_frames.h"

namespace agg {

inline bool SameBits(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (size_t t = 0; t < a.size(); ++t) {
    if (a[t].size() != b[t].size()) return false;
    if (!a[t].empty() &&
        std::memcmp(a[t].data(), b[t].data(), a[t].size() * 4) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace agg

#endif  // AGG_TESTS_SIM_SAME_BITS_H_
