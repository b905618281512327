#include "tests/bench/process_numbers.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/server/status/http_get.h"

namespace agg {

double Mebibytes(absl::string_view field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    absl::string_view text = line;
    if (!absl::ConsumePrefix(&text, field)) continue;
    return std::strtod(std::string(text).c_str(), nullptr) / 1024;
  }
  return 0;
}

double Metric(int port, absl::string_view name) {
  const std::string page = Get(port, "/metrics");
  for (absl::string_view line : absl::StrSplit(page, '\n')) {
    if (!absl::ConsumePrefix(&line, name)) continue;
    const std::vector<std::string> parts = absl::StrSplit(line, ' ');
    return std::strtod(parts.back().c_str(), nullptr);
  }
  return 0;
}

}  // namespace agg
