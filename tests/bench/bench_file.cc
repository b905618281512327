#include "tests/bench/bench_file.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "server/base/atomic_file.h"

namespace agg {

bool ParseBenchFlags(int argc, char** argv, BenchFlags* flags) {
  constexpr absl::string_view kJson = "--json=";
  for (int i = 1; i < argc; ++i) {
    const absl::string_view flag = argv[i];
    if (flag == "--smoke") {
      flags->smoke = true;
    } else if (absl::StartsWith(flag, kJson) && flag.size() > kJson.size()) {
      flags->json = std::string(flag.substr(kJson.size()));
    } else {
      std::fprintf(stderr,
                   "\"%s\" is no argument; allowed: --smoke, --json=FILE\n",
                   argv[i]);
      return false;
    }
  }
  return true;
}

Json SpreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {{"median", RoundedNumber(values[values.size() / 2])},
          {"min", RoundedNumber(values.front())},
          {"max", RoundedNumber(values.back())}};
}

BenchFile::BenchFile(const std::string& program, std::string path)
    : path_(std::move(path)),
      value_(std::make_unique<Json>(
          Json{{"program", program}, {"complete", false}})) {
  Write();
}

BenchFile::~BenchFile() = default;

void BenchFile::Set(const std::string& name, Json value) {
  (*value_)[name] = std::move(value);
  Write();
}

void BenchFile::Append(const std::string& name, Json value) {
  (*value_)[name].push_back(std::move(value));
  Write();
}

void BenchFile::Finish() { Set("complete", true); }

void BenchFile::Write() const {
  if (path_.empty()) return;
  const absl::Status written =
      WriteFile(path_, absl::StrCat(JsonLine(*value_), "\n"));
  if (written.ok()) return;
  std::fprintf(stderr, "%s\n",
               OutputError("--json", path_, written).ToString().c_str());
  std::exit(1);
}

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
