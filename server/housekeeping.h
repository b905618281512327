// What a server does from time to time: it reports its health, gives freed
// memory back when idle, closes what the audit counts, and looks whether its
// shard hangs or is without its coordinator.
#ifndef AGG_SERVER_HOUSEKEEPING_H_
#define AGG_SERVER_HOUSEKEEPING_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/access/audit_trail.h"
#include "server/base/mutex.h"
#include "server/coordinator/coordinator.h"
#include "server/round/round_report.h"
#include "server/rpc/rpc_server.h"
#include "server/shard/shard_engine.h"

namespace agg {

// Whether a phase of this process's own shard hangs. Nothing can stop a call of
// a backend, so that the process has to end (P31); the coordinator's watch over
// all shards is server/coordinator/peer_group.h. Thread-compatible.
class HungPhase {
 public:
  explicit HungPhase(absl::Duration timeout) : timeout_(timeout) {}

  // Must be asked often, by a clock that leaves out what the process spent
  // frozen (P31). A phase that makes progress does not hang. "phase close of
  // round 7 has hung for 10m (phase_timeout_seconds)", once for each phase; "":
  // none does.
  std::string Look(const std::optional<RunningPhase>& running, absl::Time now);

 private:
  const absl::Duration timeout_;
  uint64_t number_ = 0;    // of the phase that is watched; 0: none
  uint64_t progress_ = 0;  // of it, as it was last
  absl::Time since_;       // it has not moved
  bool said_ = false;
};

// Health of one process, as grpc.health.v1 reports it.
struct Health {
  // Whether the shard is in an open epoch, which with second copies has all of
  // them. On ordinal 0: whether all shards are.
  bool process = false;
  bool coordinator = false;  // as above, ordinal 0 only
  bool shard = false;        // as process, and has a published version
};
// Pure. `job` is null on other ordinals than 0.
Health HealthOf(const ShardStatus& shard, const JobStatus* job);

// Health::process in words: OK, or UNAVAILABLE with the reason. `coordinator`:
// its address.
absl::Status ReadinessOf(const ShardStatus& shard, const JobStatus* job,
                         const std::string& coordinator);

// A thread that does it five times a second.
class Housekeeping {
 public:
  // `coordinator` is null on other ordinals than 0. All outlive this.
  // A phase of the shard that takes longer than `phase_timeout` ends the
  // process (ShardEngine::ReportHang). `each_second` is called about so often;
  // null: nothing is.
  Housekeeping(ShardEngine* engine, const Coordinator* coordinator,
               RpcServer* rpc, AuditTrail* audit, absl::Duration phase_timeout,
               std::function<void()> each_second = nullptr);
  // Health is NOT_SERVING when it returns.
  ~Housekeeping();
  // Health is NOT_SERVING from here on; the rest goes on.
  void StopServing();

 private:
  void Loop();
  void UpdateHealth(const ShardStatus& status);
  void SetHealth(const Health& health) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns freed memory to the kernel after a while without traffic.
  void TrimWhenIdle(const ShardStatus& status);

  // Ends the shard if a phase of it hangs.
  void LookForAHang();

  ShardEngine* const engine_;
  const Coordinator* const coordinator_;
  RpcServer* const rpc_;
  AuditTrail* const audit_;
  const std::function<void()> each_second_;
  // Used by the thread alone.
  int64_t traffic_bytes_ = 0;
  int idle_periods_ = 0;
  int look_ = 0;
  HungPhase hung_;

  Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool serving_ ABSL_GUARDED_BY(mutex_) = true;
  std::thread thread_;  // last: it uses the others
};

}  // namespace agg

#endif  // AGG_SERVER_HOUSEKEEPING_H_
