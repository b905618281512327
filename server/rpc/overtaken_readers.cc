#include "server/rpc/overtaken_readers.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/log.h"

namespace agg {
namespace {

// "unix:, of process 77 or 78".
std::string Where(const std::string& peer, const OpenConnections* connections) {
  if (connections == nullptr || !absl::StartsWith(peer, "unix")) return peer;
  const std::vector<int32_t> processes = connections->Unread();
  if (processes.empty()) return peer;
  return absl::StrCat(peer, ", of process ", absl::StrJoin(processes, " or "));
}

}  // namespace

void OvertakenReaders::Note(const Reader& reader) {
  const std::string where = Where(reader.peer, connections_.get());
  const bool cut =
      reader.cut && connections_ != nullptr &&
      (connections_->End(reader.peer) || !connections_->EndUnread().empty());
  int64_t unsaid;
  {
    const absl::Time now = clock_->Now();
    MutexLock lock(&mutex_);
    if (now - said_ < kQuiet) {
      ++unsaid_;
      return;
    }
    said_ = now;
    unsaid = std::exchange(unsaid_, 0);
  }
  LogWarning(reader.who, " (", where, ") does not read: its pull of version ",
             reader.version, " was ended, and the round goes on",
             cut ? "; its connection is ended" : "",
             unsaid == 0 ? ""
                         : absl::StrCat("; so were ", unsaid,
                                        " other pulls since the last line"));
}

}  // namespace agg
