// What violations and notes of an audit call things.
#ifndef AGG_SERVER_TOOLS_AUDIT_WORDS_H_
#define AGG_SERVER_TOOLS_AUDIT_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/tools/round_audit.h"

namespace agg {

// "3 rows", "1 row".
inline std::string Number(size_t number, const std::string& noun) {
  return absl::StrCat(number, " ", noun, number == 1 ? "" : "s");
}

inline std::string NameOf(uint64_t session, uint32_t attempt) {
  return absl::StrCat("session ", session, ", attempt ", attempt);
}

inline std::string VersionOf(const AuditedRound& round) {
  return absl::StrCat("version ", round.version, " made in epoch ", round.made);
}

}  // namespace agg

#endif  // AGG_SERVER_TOOLS_AUDIT_WORDS_H_
