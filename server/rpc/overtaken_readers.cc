#include "server/rpc/overtaken_readers.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/log.h"

namespace agg {
namespace {

bool IsLocal(const std::string& peer) { return absl::StartsWith(peer, "unix"); }

// "unix:, of process 77 or 78".
std::string Where(const std::string& peer, const OpenConnections* connections) {
  if (connections == nullptr || !IsLocal(peer)) return peer;
  const std::vector<int32_t> processes = connections->Unread();
  if (processes.empty()) return peer;
  return absl::StrCat(peer, ", of process ", absl::StrJoin(processes, " or "));
}

}  // namespace

void OvertakenReaders::Note(const Reader& reader) {
  const absl::Time now = clock_->Now();
  bool quiet;
  {
    MutexLock lock(&mutex_);
    quiet = now - said_ < kQuiet;
  }
  // Before they are ended. It asks for each connection, and many readers may be
  // overtaken in one round, which waits for this.
  const std::string where = quiet ? "" : Where(reader.peer, connections_.get());
  const bool cut = reader.cut && connections_ != nullptr &&
                   (IsLocal(reader.peer) ? !connections_->EndUnread().empty()
                                         : connections_->End(reader.peer));
  int64_t unsaid;
  {
    MutexLock lock(&mutex_);
    if (quiet || now - said_ < kQuiet) {
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
