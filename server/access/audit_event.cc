#include "server/access/audit_event.h"

#include "nlohmann/json.hpp"
#include "server/base/json.h"

namespace agg {

std::string AuditLine(const AuditEvent& event) {
  Json line;
  line["time"] =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", event.time, absl::UTCTimeZone());
  line["action"] = event.action;
  line["who"] = event.who;
  line["from"] = event.from;
  if (event.rank >= 0) line["rank"] = event.rank;
  if (event.session != 0) line["session"] = event.session;
  if (!event.detail.empty()) line["detail"] = event.detail;
  line["outcome"] = event.outcome;
  if (event.times > 1) line["times"] = event.times;
  return JsonLine(line);
}

}  // namespace agg
