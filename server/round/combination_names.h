// A combination by the names that configurations, metrics and logs use.
#ifndef AGG_SERVER_ROUND_COMBINATION_NAMES_H_
#define AGG_SERVER_ROUND_COMBINATION_NAMES_H_

#include <string>

namespace agg {

struct CombinationNames {
  std::string rule = "mean";
  std::string scope = "per_tensor";
  std::string step_scale = "none";
};

inline bool operator==(const CombinationNames& a, const CombinationNames& b) {
  return a.rule == b.rule && a.scope == b.scope && a.step_scale == b.step_scale;
}
inline bool operator!=(const CombinationNames& a, const CombinationNames& b) {
  return !(a == b);
}

}  // namespace agg

#endif  // AGG_SERVER_ROUND_COMBINATION_NAMES_H_
