// Every call of a job is a place where a process can die: at each of them, and
// at several at once, the job has to end with the bits of the undisturbed one.
//
// AGG_SIM_SEEDS: how many random plans are run (200); AGG_SIM_FIRST_SEED.
#include "tests/sim/job_simulation.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

constexpr size_t kMaxFailures = 8;  // that are told of one test

SimPlan MakePlan(int num_shards, bool replicated, bool checkpoints) {
  SimPlan plan;
  plan.num_shards = num_shards;
  plan.replicated = replicated;
  plan.checkpoints = checkpoints;
  return plan;
}

// One for each kind of job: later runs are compared with it.
const SimOutcome& Undisturbed(SimPlan plan) {
  static auto& runs = *new std::map<std::string, SimOutcome>();
  plan.faults.clear();
  plan.seed = 0;
  plan.record = true;
  const std::string key = Describe(plan);
  const auto found = runs.find(key);
  if (found != runs.end()) return found->second;
  return runs[key] = JobSimulation(plan).Run();
}

// Nothing: the run is as it should be.
std::string Disturbed(const SimPlan& plan) {
  SimOutcome run = JobSimulation(plan).Run();
  CompareRuns(plan, Undisturbed(plan), &run);
  if (run.errors.empty()) return "";
  if (run.errors.size() > 4) run.errors.resize(4);
  std::string text = Describe(plan);
  const std::vector<std::string>& calls = Undisturbed(plan).calls;
  if (!plan.faults.empty() &&
      plan.faults[0].call < static_cast<int64_t>(calls.size())) {
    text += " (first: " + calls[plan.faults[0].call] + ")";
  }
  return text + "\n    " + absl::StrJoin(run.errors, "\n    ");
}

void ExpectNone(const std::vector<std::string>& failures, int num_runs) {
  for (size_t i = 0; i < std::min(failures.size(), kMaxFailures); ++i) {
    ADD_FAILURE() << failures[i];
  }
  EXPECT_TRUE(failures.empty())
      << failures.size() << " of " << num_runs << " runs fail";
}

// Each process dies once, before or after each call.
void Sweep(SimPlan plan, int stride) {
  const int64_t num_calls = Undisturbed(plan).num_calls;
  std::vector<std::string> failures;
  int num_runs = 0;
  for (int64_t place = 0; place < 2 * num_calls * plan.num_shards;
       place += stride) {
    Fault fault;
    fault.target = static_cast<int>(place % plan.num_shards);
    fault.call = place / plan.num_shards / 2;
    fault.after = place / plan.num_shards % 2 != 0;
    plan.faults = {fault};
    const std::string failure = Disturbed(plan);
    if (!failure.empty()) failures.push_back(failure);
    ++num_runs;
  }
  ExpectNone(failures, num_runs);
}

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

TEST(UndisturbedTest, TheJobEndsAndRepeatsItself) {
  for (const int num_shards : {1, 2, 3}) {
    for (const bool replicated : {false, true}) {
      if (num_shards == 1 && replicated) continue;
      for (const bool checkpoints : {false, true}) {
        const SimPlan plan = MakePlan(num_shards, replicated, checkpoints);
        const SimOutcome& run = Undisturbed(plan);
        ASSERT_TRUE(run.errors.empty())
            << Describe(plan) << absl::StrJoin(run.errors, "\n");
        const std::vector<std::vector<int32_t>> rows = {
            {0, 1}, {0, 1}, {}, {0, 1, 2}, {0, 1, 2}};
        EXPECT_EQ(run.rows, rows);
        SimPlan again = plan;
        again.record = true;
        EXPECT_EQ(JobSimulation(again).Run().calls, run.calls);
        std::printf("%s: %d calls\n", Describe(plan).c_str(),
                    static_cast<int>(run.num_calls));
      }
    }
  }
}

TEST(SweepTest, TwoShardsReplicated) { Sweep(MakePlan(2, true, false), 1); }
TEST(SweepTest, ThreeShardsReplicated) { Sweep(MakePlan(3, true, true), 3); }
TEST(SweepTest, TwoShardsWithCheckpoints) {
  Sweep(MakePlan(2, false, true), 1);
}

// What became of runs in which all die at once and come back to a folder that
// is not what it was.
struct TornRuns {
  int num = 0;
  int num_waited = 0;
  int num_begun_anew = 0;
};

// Each `stride`-th call of the last two thirds is one that all die at.
TornRuns RunTorn(const std::vector<Torn>& kinds, bool anew, int64_t stride) {
  std::vector<std::string> failures;
  TornRuns runs;
  for (const Torn torn : kinds) {
    for (const bool replicated : {false, true}) {
      SimPlan plan = MakePlan(2 + runs.num % 2, replicated, true);
      plan.torn = torn;
      plan.anew = anew;
      const int64_t num_calls = Undisturbed(plan).num_calls;
      for (int64_t call = num_calls / 3; call < num_calls; call += stride) {
        plan.torn_shard = runs.num % plan.num_shards;
        plan.faults.clear();
        for (int k = 0; k < plan.num_shards; ++k) {
          Fault fault;
          fault.call = call;
          fault.target = k;
          plan.faults.push_back(fault);
        }
        SimOutcome run = JobSimulation(plan).Run();
        CompareRuns(plan, Undisturbed(plan), &run);
        if (!run.errors.empty()) {
          failures.push_back(Describe(plan) + "\n    " +
                             absl::StrJoin(run.errors, "\n    "));
        }
        runs.num_waited += run.waited ? 1 : 0;
        runs.num_begun_anew += run.began_anew ? 1 : 0;
        ++runs.num;
      }
    }
  }
  ExpectNone(failures, runs.num);
  return runs;
}

// The job waits, and takes what it had when the folder is put back.
TEST(TornFolderTest, IsWaitedFor) {
  const TornRuns runs =
      RunTorn({Torn::kEmpty, Torn::kOlder, Torn::kOtherK, Torn::kUnreadable,
               Torn::kHanging, Torn::kBadPart},
              /*anew=*/false, /*stride=*/7);
  std::printf("%d of %d runs waited for a folder\n", runs.num_waited, runs.num);
  EXPECT_GT(runs.num_waited, runs.num / 2);
}

// An operator says that the job begins anew. All die again when that is
// answered, and find the folder put back: it is not gone on from.
TEST(TornFolderTest, BeginningAnewOutlivesAllProcesses) {
  const TornRuns runs =
      RunTorn({Torn::kEmpty, Torn::kOlder, Torn::kUnreadable, Torn::kBadPart},
              /*anew=*/true, /*stride=*/29);
  std::printf("%d of %d runs began anew\n", runs.num_begun_anew, runs.num);
  EXPECT_GT(runs.num_begun_anew, runs.num / 3);
}

SimPlan Evicting(SimPlan plan) {
  plan.evicts = true;
  return plan;
}
// Whoever was evicted stays away, whatever is killed behind the answer.
TEST(SweepTest, TwoShardsReplicatedWithAnEviction) {
  Sweep(Evicting(MakePlan(2, true, false)), 2);
}
TEST(SweepTest, TwoShardsWithCheckpointsAndAnEviction) {
  Sweep(Evicting(MakePlan(2, false, true)), 2);
}

SimPlan RandomPlan(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return random() % n; };
  const int num_shards = static_cast<int>(2 + below(3));
  const bool replicated = below(4) != 0;
  SimPlan plan = MakePlan(num_shards, replicated, !replicated || below(2) != 0);
  plan.seed = seed;
  plan.evicts = below(2) != 0;
  const int64_t num_calls = Undisturbed(plan).num_calls;
  int64_t call = 0;
  for (uint64_t i = 1 + below(4); i > 0; --i) {
    Fault fault;
    // Often close together: what recovers is hit again.
    call = below(2) != 0 ? static_cast<int64_t>(below(num_calls))
                         : call + static_cast<int64_t>(below(60));
    fault.call = call;
    fault.after = below(2) != 0;
    fault.quarters = static_cast<int>(below(12));
    const uint64_t kind = below(10);
    fault.kind = kind < 5   ? FaultKind::kKill
                 : kind < 7 ? FaultKind::kCut
                 : kind < 9 ? FaultKind::kKillWorker
                            : FaultKind::kFreeze;
    fault.target = fault.kind == FaultKind::kKillWorker
                       ? static_cast<int>(below(3))
                   : fault.kind == FaultKind::kFreeze
                       ? 0
                       : static_cast<int>(below(num_shards));
    plan.faults.push_back(fault);
  }
  return plan;
}

// One run with the server's log: AGG_SIM_PLAN="K replicated checkpoints evicts
// seed [call after kind target quarters]..", numbers all.
TEST(OneTest, IsSaidInTheEnvironment) {
  const char* const text = std::getenv("AGG_SIM_PLAN");
  if (text == nullptr) GTEST_SKIP() << "AGG_SIM_PLAN is not set";
  std::istringstream in(text);
  int num_shards = 0;
  bool replicated = false;
  bool checkpoints = false;
  uint64_t seed = 0;
  bool evicts = false;
  in >> num_shards >> replicated >> checkpoints >> evicts >> seed;
  SimPlan plan = MakePlan(num_shards, replicated, checkpoints);
  plan.evicts = evicts;
  plan.seed = seed;
  Fault fault;
  int kind = 0;
  while (in >> fault.call >> fault.after >> kind >> fault.target >>
         fault.quarters) {
    fault.kind = static_cast<FaultKind>(kind);
    plan.faults.push_back(fault);
  }
  Undisturbed(plan);
  plan.log = true;
  plan.record = true;
  EXPECT_EQ(Disturbed(plan), "");
}

TEST(RandomTest, JobsSurviveWhatMayHappen) {
  const int64_t first = FromEnvironment("AGG_SIM_FIRST_SEED", 1);
  const int64_t number = FromEnvironment("AGG_SIM_SEEDS", 200);
  std::vector<std::string> failures;
  for (int64_t seed = first; seed < first + number; ++seed) {
    const std::string failure = Disturbed(RandomPlan(seed));
    if (!failure.empty()) failures.push_back(failure);
  }
  ExpectNone(failures, static_cast<int>(number));
}

}  // namespace
}  // namespace agg
