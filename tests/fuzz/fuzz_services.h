// A job of one or two shards in this process with the services of each, for
// calls without a transport (fake_call.h).
#ifndef AGG_TESTS_FUZZ_FUZZ_SERVICES_H_
#define AGG_TESTS_FUZZ_FUZZ_SERVICES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/admin.grpc.pb.h"
#include "proto/agg.grpc.pb.h"
#include "proto/reduction.grpc.pb.h"
#include "proto/shard_plan.h"
#include "server/access/audit_trail.h"
#include "server/access/caller_gate.h"
#include "server/access/identities.h"
#include "server/base/call_counts.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/bidi_stream.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/row_reports.h"
#include "server/rpc/shard_service.h"
#include "tests/fuzz/job_input.pb.h"
#include "tests/server/round/local_cluster.h"

namespace agg {

// The server's lines go nowhere from now on, unless AGG_FUZZ_LOG is in the
// environment.
void QuietFuzzLog();

// Values of `authorization`: "" for 0, then worker "alice", worker "bob", an
// observer, an admin, a shard, a worker that is an admin, and one that nobody
// has. The honest worker's is no number's.
std::string FuzzToken(uint32_t number);
std::string HonestToken();
// Whether the number is that of an admin.
bool IsAdminToken(uint32_t number);

class FuzzServices {
 public:
  using Shard = v1::Shard::WithRawCallbackMethod_Push<
      v1::Shard::WithRawCallbackMethod_Pull<v1::Shard::Service>>;

  explicit FuzzServices(const fuzz::JobSetup& setup);
  ~FuzzServices();

  int num_shards() const { return cluster_.num_shards(); }
  LocalCluster* cluster() { return &cluster_; }
  bool identities() const { return identities_; }
  const Manifest& manifest() const { return manifest_; }
  const ShardPlan& plan() const { return plan_; }

  // The service of an ordinal, modulo their number.
  CoordinatorMethods* coordinator(uint32_t shard);
  v1::Reductions::CallbackService* reductions(uint32_t shard);
  Shard* shard(uint32_t shard);
  AdminMethods* admin(uint32_t shard);
  const CallerGate* gate() const { return gate_.get(); }

  // Runs the coordinator until nothing is due, and brings it what other shards
  // report; whether it did anything.
  bool Settle();

 private:
  struct Services;

  const Manifest manifest_;
  const bool identities_;
  LocalCluster cluster_;
  const ShardPlan plan_;
  std::unique_ptr<AuditTrail> audit_;
  DenialCounts denials_;
  std::unique_ptr<CallerGate> gate_;
  std::vector<std::unique_ptr<Services>> services_;  // by ordinal
};

}  // namespace agg

#endif  // AGG_TESTS_FUZZ_FUZZ_SERVICES_H_
