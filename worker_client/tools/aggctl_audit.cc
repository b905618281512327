#include "worker_client/tools/aggctl_audit.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "worker_client/tools/text_table.h"
#include "worker_client/tools/time_text.h"

namespace agg {

std::string AuditTable(const v1::ListAuditReply& reply) {
  TextTable table({{"TIME"},
                   {"ACTION"},
                   {"WHO"},
                   {"FROM"},
                   {"RANK", true},
                   {"TIMES", true},
                   {"WHAT"},
                   {"OUTCOME"}});
  for (const v1::AuditRecord& record : reply.records()) {
    table.AddRow(
        {Clock(absl::UnixEpoch() + absl::Seconds(record.time_seconds())),
         record.action(), record.who(), record.from(),
         record.rank() < 0 ? "" : absl::StrCat(record.rank()),
         absl::StrCat(record.times()), record.detail(), record.outcome()});
  }
  return table.ToString();
}

}  // namespace agg
