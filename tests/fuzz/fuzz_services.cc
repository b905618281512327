#include "tests/fuzz/fuzz_services.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/backend_factory.h"
#include "proto/protocol_version.h"
#include "server/base/log.h"
#include "server/combine/rule_table.h"
#include "server/rpc/admit_call.h"
#include "server/rpc/job_conversion.h"

namespace agg {
namespace {

const char* const kNames[] = {"alice", "bob",  "watcher",   "operator",
                              "shard", "boss", "of_nobody", "honest"};

Roles RolesNumber(int i) {
  switch (i) {
    case 2:
      return {Role::kObserver};
    case 3:
      return {Role::kAdmin};
    case 4:
      return {Role::kShard};
    case 5:
      return {Role::kWorker, Role::kAdmin};
    default:
      return {Role::kWorker};
  }
}

std::string TokenOf(const std::string& name) {
  return absl::StrCat("token-of-the-identity-", name);
}

// The same for all inputs: nothing of it changes.
Identities* TheIdentities() {
  static Identities* const identities = [] {
    AccessOptions options;
    for (int i = 0; i < 8; ++i) {
      if (i == 6) continue;  // of nobody
      IdentityOptions identity;
      identity.name = kNames[i];
      identity.token_file = kNames[i];
      identity.roles = RolesNumber(i);
      options.identities.push_back(identity);
    }
    static const FakeClock* const clock = new FakeClock();
    auto made = Identities::Make(
        options, clock, [](const std::string& path) { return TokenOf(path); });
    if (!made.ok()) {
      std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
      std::abort();
    }
    return made->release();
  }();
  return identities;
}

DType DTypeOr(v1::DType dtype, bool is_push) {
  switch (dtype) {
    case v1::BF16:
      return DType::kBF16;
    case v1::F16:
      return DType::kF16;
    case v1::I8:
      return is_push ? DType::kI8 : DType::kF32;
    default:
      return DType::kF32;
  }
}

Manifest TheManifest() {
  Manifest manifest = MakeManifest({{3}, {2, 2}, {}, {0}, {300}});
  manifest.tensors[1].optional = true;
  return manifest;
}

ClusterOptions MakeOptions(const fuzz::JobSetup& setup) {
  QuietFuzzLog();
  const int num_shards = setup.two_shards() ? 2 : 1;
  const bool waves = setup.pipelined();
  const bool known = !waves && FindRule(setup.rule()) != nullptr;
  ClusterOptions options = MakeClusterOptions(num_shards, /*workers=*/1,
                                              known ? setup.rule() : "mean");
  CoordinatorOptions& coordinator = options.coordinator;
  ShardOptions& shard = options.shard;
  coordinator.max_workers = shard.max_workers = 4;
  if (!waves) coordinator.quorum = static_cast<int32_t>(setup.quorum() % 3);
  if (setup.round_timeout() && !waves) {
    coordinator.round_timeout = absl::Seconds(3);
  }
  shard.push_dtype = DTypeOr(setup.push_dtype(), true);
  shard.pull_dtype = DTypeOr(setup.pull_dtype(), false);
  shard.replicated = setup.replicated() && num_shards > 1 && !waves;
  shard.pipelined = waves;
  coordinator.replicated = shard.replicated;
  coordinator.pipelined = shard.pipelined;
  // No thread computes beside the input's: runs are the same, and faster.
  options.make_backend = [] { return *MakeBackend("cpu", {1}); };
  options.order = [](int size) {
    std::vector<int> order(size);
    std::iota(order.begin(), order.end(), 0);
    return order;
  };
  shard.background = false;
  shard.early_gram = false;
  shard.memory_budget.host_bytes = int64_t{64} << 20;
  if (setup.adam()) {
    OptimizerOptions adam;
    adam.kind = OptimizerKind::kAdam;
    SetOptimizer(adam, &options);
  }
  return options;
}

}  // namespace

void QuietFuzzLog() {
  static const bool quiet = [] {
    if (std::getenv("AGG_FUZZ_LOG") != nullptr) return false;
    // glibc's own; sanitizers and libFuzzer write past it.
    stderr = std::fopen("/dev/null", "w");
    return true;
  }();
  (void)quiet;
}

std::string FuzzToken(uint32_t number) {
  const uint32_t i = number % 8;
  return i == 0 ? "" : absl::StrCat("Bearer ", TokenOf(kNames[i - 1]));
}

std::string HonestToken() {
  return absl::StrCat("Bearer ", TokenOf(kNames[7]));
}

bool IsAdminToken(uint32_t number) {
  return number % 8 == 4 || number % 8 == 6;
}

// Of one shard.
struct FuzzServices::Services {
  Services(const ShardIdentity& self, const JobInfo& job, ShardEngine* engine,
           Coordinator* coordinator, const CallerGate* gate)
      : coordinator(self, job, coordinator, &open, gate),
        reductions(self, job, coordinator, gate),
        shard({engine, &open, /*cache=*/nullptr, &reports, coordinator,
               NotTheCoordinator(self, job), gate}),
        admin({self,
               job,
               "fuzz",
               {{"rule", "mean"}},
               [] { return std::string("aggserver_shards 1\n"); },
               [] {},
               gate},
              coordinator) {}

  OpenStreams open;
  RowReports reports;
  uint64_t reports_epoch = 0;
  uint64_t reports_number = 0;
  CoordinatorService coordinator;
  ReductionService reductions;
  ShardService shard;
  AdminService admin;
};

FuzzServices::FuzzServices(const fuzz::JobSetup& setup)
    : manifest_(TheManifest()),
      identities_(setup.identities()),
      cluster_(MakeOptions(setup)),
      plan_(*MakeShardPlan(manifest_, cluster_.num_shards())),
      audit_(std::make_unique<AuditTrail>(cluster_.clock())) {
  gate_ = std::make_unique<CallerGate>(CallerGate::Parts{
      identities_ ? TheIdentities() : nullptr, audit_.get(), &denials_});
  const CoordinatorOptions& options = cluster_.options().coordinator;
  JobInfo job;
  job.job = options.job;
  job.workers = options.workers;
  job.max_workers = options.max_workers;
  job.lease = options.lease;
  job.push_dtype = cluster_.options().shard.push_dtype;
  job.pull_dtype = cluster_.options().shard.pull_dtype;
  job.pipelined = options.pipelined;
  job.coordinator_life = 1;
  for (int k = 0; k < num_shards(); ++k) {
    job.shards.push_back(absl::StrCat("127.0.0.1:", k + 1));
  }
  for (int k = 0; k < num_shards(); ++k) {
    const ShardIdentity self = {k,
                                num_shards(),
                                job.shards[k],
                                "fuzz",
                                "cpu",
                                job.coordinator_life + k,
                                "",
                                ""};
    services_.push_back(std::make_unique<Services>(
        self, job, cluster_.engine(k),
        k == 0 ? cluster_.coordinator() : nullptr, gate_.get()));
  }
}

FuzzServices::~FuzzServices() {
  // Those that wait are answered before the services go.
  cluster_.coordinator()->Drain(absl::InfinitePast());
}

CoordinatorMethods* FuzzServices::coordinator(uint32_t shard) {
  return &services_[shard % services_.size()]->coordinator;
}
v1::Reductions::CallbackService* FuzzServices::reductions(uint32_t shard) {
  return &services_[shard % services_.size()]->reductions;
}
FuzzServices::Shard* FuzzServices::shard(uint32_t shard) {
  return &services_[shard % services_.size()]->shard;
}
AdminMethods* FuzzServices::admin(uint32_t shard) {
  return &services_[shard % services_.size()]->admin;
}

bool FuzzServices::Settle() {
  bool did = false;
  for (size_t k = 1; k < services_.size(); ++k) {
    Services& services = *services_[k];
    const uint64_t epoch = cluster_.engine(static_cast<int>(k))->Status().epoch;
    if (services.reports_epoch != epoch) {
      services.reports_epoch = epoch;
      services.reports_number = services.reports.Begin(epoch, [] {});
    }
    services.reports.Flush();
    const RowReport report = services.reports.Take(services.reports_number);
    if (report.rows.empty()) continue;
    did = true;
    cluster_.peer(static_cast<int>(k))->ReportComplete(epoch, report.rows);
  }
  while (cluster_.coordinator()->RunOnce()) did = true;
  return did;
}

}  // namespace agg
