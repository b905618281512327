// Ended sessions are kept, up to a number: a late call of one gets the reason
// of its end, and not "unknown".
#include "server/round/session_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace agg {

void SessionTable::Begin(uint64_t session, int32_t rank, uint64_t first_round,
                         const std::string& client,
                         const std::string& identity) {
  highest_ = std::max(highest_, session);
  // A repeat must not revive a session that has ended since.
  if (sessions_
          .insert({session, Entry{rank, absl::OkStatus(), first_round, client,
                                  identity}})
          .second) {
    alive_[rank] = session;
  }
}

std::vector<MemberState> SessionTable::members() const {
  std::vector<MemberState> members;
  for (const auto& [rank, session] : alive_) {
    const Entry& entry = sessions_.at(session);
    members.push_back(
        {rank, session, entry.first_round, entry.client, entry.identity});
  }
  return members;
}

void SessionTable::End(uint64_t session, const absl::Status& reason) {
  constexpr size_t kMaxEnded = 4096;
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || !found->second.ended.ok()) return;
  found->second.ended = reason;
  const auto alive = alive_.find(found->second.rank);
  if (alive != alive_.end() && alive->second == session) alive_.erase(alive);
  ended_.push_back(session);
  if (ended_.size() > kMaxEnded) {
    sessions_.erase(ended_.front());
    ended_.pop_front();
  }
}

void SessionTable::Clear() {
  sessions_.clear();
  ended_.clear();
  alive_.clear();
}

absl::StatusOr<int32_t> SessionTable::Rank(uint64_t session) const {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return Unknown(session);
  if (!found->second.ended.ok()) return found->second.ended;
  return found->second.rank;
}

absl::StatusOr<std::string> SessionTable::Owner(uint64_t session) const {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return Unknown(session);
  return found->second.identity;
}

absl::Status SessionTable::Unknown(uint64_t session) {
  return absl::NotFoundError(absl::StrCat(
      "session ", session, " is not known here: Join (again) first"));
}

}  // namespace agg
