// One worker of a simulated job: what P26 and P27 ask of a client, over a
// SimNetwork and the real RowLedger, as a state machine that a loop steps.
#ifndef AGG_TESTS_SIM_SIM_WORKER_H_
#define AGG_TESTS_SIM_SIM_WORKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/shard_plan.h"
#include "server/base/clock.h"
#include "server/coordinator/coordinator.h"
#include "tests/server/round/row_frames.h"
#include "tests/sim/sim_ledger.h"
#include "tests/sim/sim_network.h"
#include "worker_client/row_ledger.h"

namespace agg {

// What all workers of a job share. Not owned.
struct SimWorld {
  SimNetwork* network = nullptr;
  const Clock* clock = nullptr;
  SimLedger* ledger = nullptr;
  Manifest manifest;
  int num_shards = 1;
  // The coordinator of the process that has shard 0's address; null: none.
  std::function<Coordinator*()> coordinator;
  // Whether the worker may contribute to the round now: what the test has
  // planned for it has happened.
  std::function<bool(int32_t rank, uint64_t round)> may_push;
};

// The gradient of a rank on a version: a function of these alone.
Tensors SimGradient(const Manifest& manifest, int32_t rank, uint64_t version,
                    const Tensors& parameters);

class SimWorker {
 public:
  // A new process; `world` outlives it.
  SimWorker(SimWorld* world, int32_t rank, uint64_t life);

  // Does what it can without waiting; whether it did anything.
  bool Step();
  // It has been told that the job has finished.
  bool done() const { return state_ == State::kDone; }
  bool joined() const { return session_ != 0; }
  SimHost* host() const { return host_.get(); }
  std::string Where() const;

 private:
  enum class State { kJoining, kPulling, kPushing, kCommitting, kDone };
  template <typename T>
  struct Answer {
    SimHostPtr server;
    std::optional<absl::StatusOr<T>> value;
  };
  // The callback of a call to `server`, whose answer comes over the network.
  template <typename T>
  std::function<void(absl::StatusOr<T>)> Expect(
      const char* what, const SimHostPtr& server,
      std::shared_ptr<Answer<T>>* answer);
  // Nothing: it has not come. UNAVAILABLE: it will not.
  template <typename T>
  std::optional<absl::StatusOr<T>> Take(std::shared_ptr<Answer<T>>* answer);
  template <typename F>
  absl::Status CallShard(const char* what, int ordinal, F call);

  // One for each state.
  bool Join();
  bool Pull();
  bool Push();
  bool Commit();
  bool Renew();

  // The job's; 0: not known.
  uint64_t HistoryNow() const;
  void TakeJoined(const JoinResult& joined);
  void TakeOutcome(const RoundResult& outcome);
  void GoOnAt(uint64_t version, uint64_t made);
  // Its epoch is over, or something else went wrong: it resumes.
  void Rejoin(const absl::Status& why);
  void Begin(bool seed, uint64_t round);
  absl::Status PushTo(int shard);

  SimWorld* const world_;
  const int32_t rank_;
  const SimHostPtr host_;
  const ShardPlan plan_;
  RowLedger row_ledger_;
  State state_ = State::kJoining;
  absl::Time retry_at_ = absl::InfinitePast();
  absl::Time renew_at_ = absl::InfinitePast();
  absl::Status last_error_;
  uint64_t session_ = 0;
  uint64_t epoch_ = 0;
  uint64_t history_ = 0;  // that the job had when it joined
  ShardLives lives_;
  uint64_t version_ = 0;  // of parameters_, or that is pulled
  uint64_t made_ = 0;     // 0: not known
  bool has_parameters_ = false;
  Tensors parameters_;
  Tensors row_;  // row_ledger_.row()
  std::shared_ptr<Answer<JoinResult>> join_;
  std::shared_ptr<Answer<RoundResult>> commit_;
  std::vector<std::shared_ptr<Answer<PublishedVersion>>> pulls_;  // by ordinal
};

}  // namespace agg

#endif  // AGG_TESTS_SIM_SIM_WORKER_H_
