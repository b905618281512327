// Inventories in words, and a recovery's plans carried out on them, for the
// tests of the decision.
#ifndef AGG_TESTS_SERVER_COORDINATOR_RECOVERY_ACTIONS_H_
#define AGG_TESTS_SERVER_COORDINATOR_RECOVERY_ACTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "gtest/gtest.h"
#include "server/coordinator/recovery_plan.h"
#include "server/round/recovery.h"

namespace agg {

inline uint64_t Number(absl::string_view text) {
  uint64_t number = 0;
  EXPECT_TRUE(absl::SimpleAtoi(text, &number)) << text;
  return number;
}

// "MADE.VERSION"; "-" is nothing.
inline absl::optional<VersionId> ParseId(absl::string_view text) {
  if (text == "-") return absl::nullopt;
  const std::vector<std::string> numbers = absl::StrSplit(text, '.');
  EXPECT_EQ(numbers.size(), 2u) << text;
  if (numbers.size() != 2) return VersionId();
  return VersionId{Number(numbers[0]), Number(numbers[1])};
}

// "MADE.VERSION", "MADE.VERSION+EPOCH", "MADE.VERSION~EPOCH", "-".
inline void AddCopy(int part, const std::string& text,
                    ShardInventory* inventory) {
  if (text == "-") return;
  CopyState copy;
  copy.part = part;
  const size_t mark = text.find_first_of("+~");
  copy.id = *ParseId(text.substr(0, mark));
  if (mark != std::string::npos) {
    copy.prepared_by = Number(text.substr(mark + 1));
    copy.whole = text[mark] == '+';
  }
  inventory->copies.push_back(copy);
}

// "MADE.VERSION", "-"; with "!" behind it cannot be loaded, or a folder cannot
// be listed.
inline CheckpointChoice ParseChoice(std::string text) {
  CheckpointChoice choice;
  const bool usable = text.back() != '!';
  if (!usable) text.pop_back();
  choice.id = ParseId(text);
  if (!usable)
    (choice.id.has_value() ? choice.refused : choice.unreadable) = "torn";
  return choice;
}

inline std::string ActionText(CopyAction action) {
  switch (action) {
    case CopyAction::kVoid:
      return "void";
    case CopyAction::kKeep:
      return "keep";
    case CopyAction::kStep:
      return "step";
    case CopyAction::kLoad:
      return "load";
  }
  return "";
}

inline size_t NumCopies(const std::vector<ShardInventory>& inventories) {
  size_t count = 0;
  for (const ShardInventory& inventory : inventories) {
    count += inventory.copies.size();
  }
  return count;
}

// One copy after its action, into `after`; a void one is left out. Fails where
// the action does not lead from the copy to the target.
inline void Act(CopyAction action, const CopyState* copy, int part,
                bool replicated, const VersionId& target,
                ShardInventory* after) {
  if (action == CopyAction::kVoid) return;
  if (action == CopyAction::kKeep || action == CopyAction::kStep) {
    ASSERT_NE(copy, nullptr);
  }
  if (action == CopyAction::kKeep) {
    EXPECT_EQ(copy->id, target);
    if (!replicated) {
      EXPECT_EQ(copy->prepared_by, 0u);
    }
  }
  if (action == CopyAction::kStep) {
    EXPECT_TRUE(copy->whole);
    EXPECT_EQ((VersionId{copy->prepared_by, copy->id.version + 1}), target);
  }
  after->copies.push_back({part, target, 0, false});
}

// All processes after kRecover, before anything is fetched.
inline std::vector<ShardInventory> Carried(
    const std::vector<ShardInventory>& inventories, bool replicated,
    uint64_t epoch, const RecoveryDecision& decision) {
  std::vector<ShardInventory> all;
  const int shards = static_cast<int>(inventories.size());
  for (int shard = 0; shard < shards; ++shard) {
    const RecoverPlan& plan = decision.plans[shard];
    const int before = (shard + shards - 1) % shards;
    const CopyState* home = nullptr;
    const CopyState* replica = nullptr;
    for (const CopyState& copy : inventories[shard].copies) {
      if (copy.part == shard) home = &copy;
      if (copy.part == before && before != shard) replica = &copy;
    }
    ShardInventory after;
    after.member_epoch = epoch;
    Act(plan.home, home, shard, replicated, plan.target, &after);
    Act(plan.replica, replica, before, replicated, plan.target, &after);
    all.push_back(after);
  }
  return all;
}

// Carries the decision out and asks again, by a later epoch: before the
// fetches it has the same target, after them nothing is left to do.
inline void ExpectNothingMoreToDo(
    const std::vector<ShardInventory>& inventories, bool replicated,
    uint64_t epoch, const CheckpointChoice& checkpoint,
    const RecoveryDecision& decision) {
  std::vector<ShardInventory> after =
      Carried(inventories, replicated, epoch, decision);
  RecoveryDecision again =
      DecideRecovery(after, replicated, epoch + 1, checkpoint);
  EXPECT_EQ(again.kind, RecoveryDecision::Kind::kGoOn);
  EXPECT_EQ(again.target, decision.target);
  EXPECT_EQ(again.fetch, decision.fetch);
  EXPECT_EQ(decision.fetch,
            NumCopies(after) < (replicated ? 2 : 1) * after.size());
  const int shards = static_cast<int>(after.size());
  for (int shard = 0; shard < shards; ++shard) {
    after[shard].copies = {{shard, decision.target, 0, false}};
    if (replicated) {
      after[shard].copies.push_back(
          {(shard + shards - 1) % shards, decision.target, 0, false});
    }
  }
  again = DecideRecovery(after, replicated, epoch + 1, checkpoint);
  EXPECT_EQ(again.kind, RecoveryDecision::Kind::kGoOn);
  EXPECT_EQ(again.target, decision.target);
  EXPECT_FALSE(again.fetch);
  for (const RecoverPlan& plan : again.plans) {
    EXPECT_EQ(plan.home, CopyAction::kKeep);
    if (replicated) {
      EXPECT_EQ(plan.replica, CopyAction::kKeep);
    }
  }
}

}  // namespace agg

#endif  // AGG_TESTS_SERVER_COORDINATOR_RECOVERY_ACTIONS_H_
