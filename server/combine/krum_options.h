// What a job may choose about the rules krum and multi_krum. Apart from krum.h,
// since the interface of all rules hands it on.
#ifndef AGG_SERVER_COMBINE_KRUM_OPTIONS_H_
#define AGG_SERVER_COMBINE_KRUM_OPTIONS_H_

#include <algorithm>
#include <cstdint>

namespace agg {

struct KrumOptions {
  // f: rows that may be anything, >= 0. The guarantee needs P >= 2 f + 3.
  int32_t byzantine_workers = 1;
  // m: rows that multi_krum averages, >= 0; 0: P - f. krum ignores it.
  int32_t selected = 0;
};

// The largest f that Krum's guarantee allows with P rows; below 0 with fewer
// than 3.
constexpr int32_t MostByzantineWorkers(int32_t num_rows) {
  return num_rows < 3 ? -1 : (num_rows - 3) / 2;
}

// f of a job of so many workers that does not say it: the usual one, or what
// the guarantee allows, at least 0.
constexpr int32_t DefaultByzantineWorkers(int32_t num_workers) {
  const int32_t usual = KrumOptions().byzantine_workers;
  const int32_t most = std::max(MostByzantineWorkers(num_workers), 0);
  return std::min(usual, most);
}

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_KRUM_OPTIONS_H_
