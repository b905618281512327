// A complete job on real coordinators, shards and checkpoints, with simulated
// workers, whose processes die where a plan says. One plan is one run.
//
// The job: two workers, a third one that joins in round 1, Adam, adacons and a
// shadow rule, round 2 skipped, another rule from round 4 on, five rounds. With
// `evicts` an operator ends the third one's session before round 4, whose
// worker wants to come back again and again.
#ifndef AGG_TESTS_SIM_JOB_SIMULATION_H_
#define AGG_TESTS_SIM_JOB_SIMULATION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/base/clock.h"
#include "server/coordinator/coordinator.h"
#include "server/round/neighbour_peer.h"
#include "tests/server/base/sim_disk.h"
#include "tests/server/round/row_frames.h"
#include "tests/sim/coordinator_thread.h"
#include "tests/sim/sim_ledger.h"
#include "tests/sim/sim_network.h"
#include "tests/sim/sim_peers.h"
#include "tests/sim/sim_worker.h"
#include "tests/sim/torn_files.h"

namespace agg {

struct SimPlan {
  int num_shards = 2;
  bool replicated = false;
  bool checkpoints = false;
  bool evicts = false;
  uint64_t seed = 0;  // of the order of parallel calls; 0: by ordinal
  std::vector<Fault> faults;
  bool record = false;  // the calls' names
  bool log = false;     // the server's lines go to stderr
  // Each shard has a folder of its own. When all processes have died, that of
  // shard `torn_shard` is torn for 5 s after they are back; the job waits then.
  Torn torn = Torn::kNone;
  int torn_shard = 0;
  // An operator has the waiting job begin anew. When that is answered the
  // folder is put back, and all processes are killed.
  bool anew = false;
};
std::string Describe(const SimPlan& plan);

struct SimOutcome {
  int64_t num_calls = 0;
  std::vector<std::string> calls;
  std::vector<std::string> errors;
  int num_rewinds = 0;
  bool waited = false;           // for a folder that was torn
  bool began_anew = false;       // as an operator was told
  bool neighbours_lost = false;  // between two complete openings
  bool lost_at_end = false;      // all copies were, after it had finished
  std::vector<std::vector<int32_t>> rows;  // by round
  Tensors parameters;                      // in the end
  // What was pulled in any history, by version.
  std::multimap<uint64_t, Tensors> versions;
};

// Adds to the errors where the run differs from an undisturbed one.
void CompareRuns(const SimPlan& plan, const SimOutcome& undisturbed,
                 SimOutcome* run);

class JobSimulation {
 public:
  explicit JobSimulation(const SimPlan& plan);
  ~JobSimulation();
  SimOutcome Run();

 private:
  static constexpr uint64_t kRuleRound = 3;   // a rule is set while it is open
  static constexpr uint64_t kEvictRound = 4;  // a worker is evicted in it

  // A coordinator with what it calls. The host outlives it.
  struct Leader {
    SimHostPtr host;
    std::vector<std::unique_ptr<SimPeer>> peers;
    std::unique_ptr<Coordinator> coordinator;
    std::unique_ptr<CoordinatorThread> thread;  // after what it runs
    absl::Time frozen_until = absl::InfinitePast();
  };

  void StartShard(int ordinal);
  void StartLeader();
  // The coordinator of the process that has shard 0's address; null: it is dead
  // or frozen.
  Coordinator* coordinator() const;
  bool RunLeader(Leader* leader);
  // Called on the leader's thread, in a call: returns when the process goes on.
  bool Freeze(SimHost* host);
  bool StepWorkers();
  // What an operator does between two rounds.
  void SetRule();
  void Evict();
  // What was answered OK holds (P50): who was evicted is no member, and does
  // not become one.
  void CheckEvicted(const JobStatus& status);
  bool MayPush(uint64_t round) const;
  // Ends what has died, and starts it again when its time has come.
  void Bury();
  void Revive();
  void ThawLeader();
  void ReportCuts();
  void Observe();
  // Tears a folder when all have died, and puts it back in time.
  void TearOrMend();
  // Whether a checkpoint is sealed, and the torn folder would lack it.
  bool MayTear();
  // What an operator says to the job that waits.
  void BeginAnew();
  // What was answered OK holds (P50): nothing of the former job comes back.
  void CheckBegun(const JobStatus& status);
  bool Finished() const;
  void ReadEnd(SimOutcome* outcome);
  std::string Where() const;

  const SimPlan plan_;
  FakeClock clock_;
  SimLedger ledger_;
  SimNetwork network_;
  SimDisk disk_;
  std::vector<std::unique_ptr<TornFiles>> folders_;  // by ordinal
  absl::Time mended_at_ = absl::InfiniteFuture();    // once it is torn
  bool torn_ = false;
  bool waited_ = false;
  bool anew_asked_ = false;  // and there is no answer yet
  uint64_t begun_anew_ = 0;  // the epoch, as the operator was told
  SimWorld world_;
  CoordinatorOptions options_;
  uint64_t next_life_ = 1;
  std::vector<std::unique_ptr<NeighbourPeer>> neighbours_;  // of all lives
  std::vector<absl::Time> revive_at_;                       // by ordinal
  std::vector<absl::Time> cut_reported_;                    // by ordinal
  std::vector<SimHostPtr> former_;                          // all lives
  std::unique_ptr<Leader> leader_;
  std::unique_ptr<Leader> frozen_;  // a former one
  std::vector<std::unique_ptr<SimWorker>> workers_;
  SimHost operator_;
  uint64_t rule_set_in_ = 0;  // history, as the operator was told
  bool neighbours_lost_ = false;
  uint64_t seen_epoch_ = 0;       // the last one that was on when this looked
  uint64_t rule_asked_in_ = 0;    // epoch
  uint64_t evicted_in_ = 0;       // history, as the operator was told
  uint64_t evict_asked_in_ = 0;   // epoch
  uint64_t zombie_asked_in_ = 0;  // the same
  // Sessions and their clients, as the operator was told.
  std::map<uint64_t, std::string> evicted_;
};

}  // namespace agg

#endif  // AGG_TESTS_SIM_JOB_SIMULATION_H_
