#include "tests/bench/turn_rates.h"

#include <vector>

#include "nlohmann/json.hpp"
#include "tests/bench/bench_file.h"

namespace agg {

Json RatesOf(const std::vector<Turn>& turns, double kernel_bytes,
             double copy_bytes) {
  std::vector<double> rates, shares;
  for (const Turn& turn : turns) {
    rates.push_back(kernel_bytes / turn.kernel * 1e-9);
    shares.push_back(kernel_bytes / turn.kernel / (copy_bytes / turn.copy));
  }
  return {{"bytes", ExactNumber(kernel_bytes)},
          {"repetitions", turns.size()},
          {"gb_per_s", SpreadOf(rates)},
          {"share_of_copy", SpreadOf(shares)}};
}

Json ShareOfYardstick(const std::vector<Turn>& turns) {
  std::vector<double> shares;
  for (const Turn& turn : turns) {
    if (turn.yardstick <= 0.0) return nullptr;
    shares.push_back(turn.yardstick / turn.kernel);
  }
  return SpreadOf(shares);
}

}  // namespace agg
