// Who goes on after an epoch has ended, and by which facts: of all that the
// processes report, apart from what becomes of the copies.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "server/coordinator/recovery_plan.h"

namespace agg {

std::vector<MemberState> SurvivingMembers(
    const std::vector<ShardInventory>& inventories) {
  std::set<uint64_t> ended;
  for (const ShardInventory& inventory : inventories) {
    ended.insert(inventory.ended_sessions.begin(),
                 inventory.ended_sessions.end());
  }
  std::map<int32_t, MemberState> by_rank;
  for (const ShardInventory& inventory : inventories) {
    for (const MemberState& member : inventory.members) {
      if (ended.count(member.session) != 0) continue;
      MemberState& highest = by_rank[member.rank];
      if (member.session > highest.session) highest = member;
    }
  }
  std::vector<MemberState> members;
  members.reserve(by_rank.size());
  for (auto& [rank, member] : by_rank) members.push_back(std::move(member));
  return members;
}

JobFacts NewestFacts(const std::vector<ShardInventory>& inventories) {
  JobFacts newest;
  for (const ShardInventory& inventory : inventories) {
    if (newest < inventory.facts) newest = inventory.facts;
  }
  return newest;
}

uint64_t HighestSession(const std::vector<ShardInventory>& inventories) {
  uint64_t highest = 0;
  for (const ShardInventory& inventory : inventories) {
    highest = std::max(highest, inventory.highest_session);
    for (const MemberState& member : inventory.members) {
      highest = std::max(highest, member.session);
    }
    for (const uint64_t session : inventory.ended_sessions) {
      highest = std::max(highest, session);
    }
  }
  return highest;
}

}  // namespace agg
