// Reads Prometheus' text format.
#ifndef AGG_TESTS_SERVER_METRICS_SCRAPE_H_
#define AGG_TESTS_SERVER_METRICS_SCRAPE_H_

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace agg {

// Labels of every series of Options() in samples.h.
inline constexpr char kConstant[] = "job=\"digits\",shard=\"0\"";

// A scrape, taken apart: series as printed -> value as printed.
struct Scrape {
  std::map<std::string, std::string> values;
  std::map<std::string, std::string> types;  // family -> type
  std::set<std::string> helped;              // families with a HELP line
  std::vector<std::string> duplicates;

  explicit Scrape(const std::string& text) {
    for (absl::string_view line :
         absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      if (words[0] == "#") {
        if (words[1] == "TYPE") types[words[2]] = words[3];
        if (words[1] == "HELP" && words.size() > 3) helped.insert(words[2]);
        continue;
      }
      const size_t space = line.rfind(' ');
      const std::string series(line.substr(0, space));
      if (!values.emplace(series, line.substr(space + 1)).second) {
        duplicates.push_back(series);
      }
    }
  }

  // The value as a number; `labels` after the constant ones.
  double Value(const std::string& name, const std::string& labels = "") const {
    const std::string series = absl::StrCat(
        name, "{", kConstant, labels.empty() ? "" : ",", labels, "}");
    const auto it = values.find(series);
    if (it == values.end()) {
      ADD_FAILURE() << "no series " << series;
      return -12345.0;
    }
    return std::stod(it->second);
  }

  int Count(const std::string& family) const {
    int count = 0;
    for (const auto& [series, value] : values) {
      if (absl::StartsWith(series, family + "{")) ++count;
    }
    return count;
  }
};

}  // namespace agg

#endif  // AGG_TESTS_SERVER_METRICS_SCRAPE_H_
