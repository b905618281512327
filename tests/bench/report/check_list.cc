#include "tests/bench/report/check_list.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace agg {
namespace {

constexpr size_t kFields = 8;

bool IsVerdict(absl::string_view word) {
  return word == "passed" || word == "failed" || word == "skipped";
}

// False if the line has another form.
bool ReadCheck(absl::string_view line, Json* check) {
  const std::vector<std::string> fields = absl::StrSplit(line, '\t');
  if (fields.size() != kFields || fields[0].empty()) return false;
  const std::string& verdict = fields[1];
  const std::string& reason = fields[7];
  if (!IsVerdict(verdict) || (verdict != "passed" && reason.empty())) {
    return false;
  }
  int numbers[5];  // seconds, limit, cases: passed, failed, skipped
  for (int i = 0; i < 5; ++i) {
    if (!absl::SimpleAtoi(fields[2 + i], &numbers[i]) || numbers[i] < 0) {
      return false;
    }
  }
  const bool has_cases = numbers[2] + numbers[3] + numbers[4] > 0;
  const Json cases = {
      {"passed", numbers[2]}, {"failed", numbers[3]}, {"skipped", numbers[4]}};
  *check = {{"name", fields[0]},
            {"verdict", verdict},
            {"seconds", numbers[0]},
            {"limit_s", numbers[1] == 0 ? Json() : Json(numbers[1])},
            {"cases", has_cases ? cases : Json()},
            {"reason", reason.empty() ? Json() : Json(reason)}};
  return true;
}

}  // namespace

absl::StatusOr<Json> ReadCheckList(absl::string_view text) {
  Json checks = Json::array();
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    Json check;
    if (!ReadCheck(line, &check)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", number, " of the checks is \"", line,
          "\"; allowed: name, verdict, seconds, limit, passed, failed, "
          "skipped, reason"));
    }
    checks.push_back(check);
  }
  return checks;
}

}  // namespace agg
