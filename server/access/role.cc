#include "server/access/role.h"

#include <array>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace agg {
namespace {

constexpr std::array<absl::string_view, 5> kNames = {
    "worker", "observer", "admin", "shard", "metrics"};

}  // namespace

absl::string_view RoleName(Role role) {
  return kNames[static_cast<size_t>(role)];
}

std::optional<Role> ParseRole(absl::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Role>(i);
  }
  return std::nullopt;
}

std::string Roles::Text(absl::string_view word) const {
  std::vector<absl::string_view> names;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (Has(static_cast<Role>(i))) names.push_back(kNames[i]);
  }
  return absl::StrJoin(names, absl::StrCat(" ", word, " "));
}

}  // namespace agg
