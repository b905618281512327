// A JobState with workers whose time stands in the test.
#ifndef AGG_TESTS_SERVER_COORDINATOR_JOB_STATE_FIXTURE_H_
#define AGG_TESTS_SERVER_COORDINATOR_JOB_STATE_FIXTURE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/coordinator/close_policy.h"
#include "server/coordinator/job_state.h"

namespace agg {

// Leases of 30 s, a grace of 5 s, ranks below 8.
inline CoordinatorOptions JobStateOptions() {
  CoordinatorOptions options;
  options.max_workers = 8;
  return options;
}

class JobStateTest : public testing::Test {
 protected:
  static constexpr uint64_t kEpoch = 100;
  using Answer = absl::StatusOr<std::optional<RoundResult>>;

  explicit JobStateTest(CoordinatorOptions options = JobStateOptions())
      : options_(options), state_(options, kEpoch, At(0)) {}

  static absl::Time At(int seconds) {
    return absl::UnixEpoch() + absl::Seconds(seconds);
  }
  static bool Waits(const Answer& answer) {
    return answer.ok() && !answer->has_value();
  }

  static JoinCall Call(int32_t rank) {
    JoinCall call;
    call.rank = rank;
    call.manifest = Manifest{{{"w", {3}, "", false}}};
    return call;
  }

  // The shards agree. Remembers the rank's session.
  JoinResult Join(int32_t rank, int now = 0) {
    EXPECT_EQ(state_.CheckJoin(Call(rank)), absl::OkStatus());
    last_change_ = state_.BeginJoin(Call(rank), next_session_++);
    const JoinResult result =
        state_.FinishJoin(Call(rank), last_change_, At(now));
    sessions_[rank] = result.session;
    return result;
  }

  Answer Commit(uint64_t session, uint64_t round,
                PushKind kind = PushKind::kGradient, int now = 0) {
    CommitCall call;
    call.epoch = kEpoch;
    call.session = session;
    call.round = round;
    call.kind = kind;
    return state_.Commit(call, At(now));
  }

  void Seed(uint64_t session) {
    EXPECT_TRUE(Waits(Commit(session, 0, PushKind::kSeed)));
    state_.FinishSeed(0, At(0));
  }

  // Ranks 0..n-1 joined, seeded and started.
  void StartJob(int num_workers) {
    for (int rank = 0; rank < num_workers; ++rank) Join(rank);
    Seed(sessions_[0]);
    state_.Start(At(0));
    state_.TakeEffects();
  }

  CloseDecision DecideNow(int now = 0) {
    const CloseOptions options{options_.workers, options_.min_workers,
                               options_.start_timeout, options_.round_timeout};
    return DecideClose(options, state_.close_snapshot(), At(now));
  }

  std::vector<int32_t> ContributingRanks() const {
    std::vector<int32_t> ranks;
    for (const auto& entry : state_.contributions()) {
      ranks.push_back(entry.first);
    }
    return ranks;
  }

  // As if the round were run over all contributions.
  void FinishRound(bool finished = false) {
    state_.BeginClosing();
    RoundResult outcome;
    outcome.epoch = kEpoch;
    outcome.round = state_.version();
    outcome.version = state_.version() + 1;
    outcome.ranks = ContributingRanks();
    outcome.finished = finished;
    state_.FinishRound(outcome, At(0));
  }

  void Expire(int now) { state_.ExpireLeases(At(now)); }

  const CoordinatorOptions options_;
  JobState state_;
  std::map<int32_t, uint64_t> sessions_;  // by rank, the last
  SessionChange last_change_;
  uint64_t next_session_ = 1;
};

}  // namespace agg

#endif  // AGG_TESTS_SERVER_COORDINATOR_JOB_STATE_FIXTURE_H_
