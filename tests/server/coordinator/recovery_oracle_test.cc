// The resolution against the protocol's model: tests/sim/recovery_table.py has
// the table's form, and which inventories are in it. Each is decided here, too,
// then carried out, and asked for again.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/types/optional.h"
#include "gtest/gtest.h"
#include "server/coordinator/recovery_plan.h"
#include "server/round/recovery.h"
#include "tests/server/coordinator/recovery_actions.h"

namespace agg {
namespace {

using Kind = RecoveryDecision::Kind;

constexpr char kTable[] = "tests/sim/recovery_table.txt";

// A line of the table.
struct Case {
  std::vector<ShardInventory> inventories;
  uint64_t epoch = 0;
  CheckpointChoice checkpoint;
  std::string kind;
  absl::optional<VersionId> target;
  std::vector<std::string> actions;  // "home/replica", by ordinal
};

Case ParseCase(const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  Case result;
  size_t at = 0;
  const int shards = static_cast<int>(Number(words[at++]));
  result.epoch = Number(words[at++]);
  result.checkpoint = ParseChoice(words[at++]);
  for (int shard = 0; shard < shards; ++shard) {
    const std::vector<std::string> process = absl::StrSplit(words[at++], '/');
    EXPECT_EQ(process.size(), 3u) << line;
    ShardInventory inventory;
    inventory.member_epoch = Number(process[0]);
    AddCopy(shard, process[1], &inventory);
    AddCopy((shard + shards - 1) % shards, process[2], &inventory);
    result.inventories.push_back(inventory);
  }
  EXPECT_EQ(words[at++], "->") << line;
  result.kind = words[at++];
  result.target = ParseId(words[at++]);
  result.actions.assign(words.begin() + at, words.end());
  EXPECT_EQ(result.actions.size(), static_cast<size_t>(shards)) << line;
  return result;
}

std::string KindText(Kind kind) {
  switch (kind) {
    case Kind::kGoOn:
      return "copies";
    case Kind::kLoad:
      return "load";
    case Kind::kRewind:
      return "rewind";
    case Kind::kNothing:
    case Kind::kUnseeded:
      return "nothing";
    case Kind::kWait:
      return "wait";
  }
  return "";
}

void ExpectAsInTheModel(const Case& asked, const RecoveryDecision& decision) {
  EXPECT_EQ(KindText(decision.kind), asked.kind);
  EXPECT_EQ(decision.kind == Kind::kNothing,
            asked.kind == "nothing" && NumCopies(asked.inventories) == 0);
  EXPECT_EQ(decision.target, asked.target.value_or(VersionId()));
  for (size_t shard = 0; shard < asked.actions.size(); ++shard) {
    const RecoverPlan& plan = decision.plans[shard];
    EXPECT_EQ(ActionText(plan.home) + "/" + ActionText(plan.replica),
              asked.actions[shard])
        << "shard " << shard;
  }
}

TEST(RecoveryOracleTest, AllInventoriesOfTheModel) {
  std::ifstream table(kTable);
  ASSERT_TRUE(table.is_open()) << kTable;
  std::map<std::string, int> counts;
  for (std::string line; std::getline(table, line);) {
    SCOPED_TRACE(line);
    const Case asked = ParseCase(line);
    ASSERT_FALSE(HasFailure());
    const RecoveryDecision decision =
        DecideRecovery(asked.inventories, true, asked.epoch, asked.checkpoint);
    ExpectAsInTheModel(asked, decision);
    if (asked.kind != "nothing" && asked.kind != "wait") {
      ExpectNothingMoreToDo(asked.inventories, true, asked.epoch,
                            asked.checkpoint, decision);
    }
    ++counts[asked.kind];
    ASSERT_FALSE(HasFailure());  // one line is enough to read
  }
  for (const auto& [kind, count] : counts) {
    RecordProperty(kind, count);
    std::printf("%s: %d\n", kind.c_str(), count);
  }
  EXPECT_GT(counts["copies"], 5000);
  EXPECT_GT(counts["load"], 200);
  EXPECT_GT(counts["rewind"], 200);
  EXPECT_GT(counts["nothing"], 1000);
  EXPECT_GT(counts["wait"], 1000);
}

}  // namespace
}  // namespace agg
