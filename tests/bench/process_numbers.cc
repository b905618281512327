#include "tests/bench/process_numbers.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

std::map<std::string, double> MetricBy(int port, absl::string_view name,
                                       absl::string_view label) {
  const std::string page = Get(port, "/metrics");
  const std::string begin = absl::StrCat(label, "=\"");
  std::map<std::string, double> values;
  for (absl::string_view line : absl::StrSplit(page, '\n')) {
    if (!absl::ConsumePrefix(&line, name)) continue;
    const size_t at = line.find(begin);
    if (at == absl::string_view::npos) continue;
    const absl::string_view value = line.substr(at + begin.size());
    const std::vector<std::string> parts = absl::StrSplit(line, ' ');
    values[std::string(value.substr(0, value.find('"')))] =
        std::strtod(parts.back().c_str(), nullptr);
  }
  return values;
}

}  // namespace agg
