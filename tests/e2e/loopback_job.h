// A complete job through its public door: K servers of one process on loopback
// ports, and worker threads that use AggClient.
#ifndef AGG_TESTS_E2E_LOOPBACK_JOB_H_
#define AGG_TESTS_E2E_LOOPBACK_JOB_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend_maker.h"
#include "proto/shard_plan.h"
#include "server/server.h"
#include "worker_client/agg_client.h"

namespace agg {

// Different ports of loopback that were free a moment ago, for servers that
// must know each other's before they start. Ends the process if there are none.
std::vector<int> FreePorts(int number);

// The calls of a gRPC method, "Service/Method", that have ended well at the
// server with this metrics port.
double EndedCalls(int metrics_port, const std::string& method);

using HostTensors = std::vector<std::vector<float>>;

// A tensor "t<t>" for shape t.
Manifest ShapedManifest(const std::vector<std::vector<int64_t>>& shapes);

// Uniform in (-1, 1), a pure function of the arguments.
HostTensors MakeTensors(const Manifest& manifest, uint64_t stream);

std::vector<TensorView> Views(const HostTensors& tensors);
std::vector<MutableTensorView> MutableViews(HostTensors* tensors);

// kernels/backend_factory's; in loopback_job, not in loopback_job_core.
BackendMaker FactoryBackends();

class LoopbackJob {
 public:
  // `config` in text format, without `shards`. Fails the test on errors.
  // `make_backend` makes each shard's, in descending order; `edit` changes
  // what the config cannot say.
  LoopbackJob(int num_shards, const std::string& config,
              const BackendMaker& make_backend = FactoryBackends(),
              const std::function<void(ServerOptions*)>& edit = nullptr);
  // Shards above 0 first, as if they died.
  ~LoopbackJob();

  const std::string& coordinator() const { return coordinator_; }
  const std::string& address(int ordinal) const { return addresses_[ordinal]; }
  // Ends one shard at once.
  void Stop(int ordinal);
  // A stopped one begins another life, at its address. REQUIRES: the job is
  // replicated, so that the address was in its configuration.
  void StartAgain(int ordinal);
  // Whether the shard has asked for the end of its process: its device is lost.
  bool DeviceLost(int ordinal) const { return *device_lost_[ordinal]; }

  ClientOptions Options(int rank, const Manifest& manifest) const;
  // Fails the test if it cannot connect.
  std::unique_ptr<AggClient> Connect(int rank, const Manifest& manifest) const;
  std::unique_ptr<AggClient> Observe() const;
  // The newest version, pulled by an observer in float32.
  HostTensors Parameters(const Manifest& manifest) const;

 private:
  // Takes the port; 0: any, which it notes.
  void Start(int ordinal, int port);

  const std::string config_;
  const BackendMaker make_backend_;
  const std::function<void(ServerOptions*)> edit_;
  // Declared before the servers, which may set it to their end.
  std::vector<std::unique_ptr<std::atomic<bool>>> device_lost_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::string> addresses_;
  std::string coordinator_;
};

// Runs worker(rank) on a thread for each rank and joins them.
void RunWorkers(int num_workers, const std::function<void(int)>& worker);

// Every worker seeds or pulls, then pushes MakeTensors of (round, rank) for
// `num_rounds` rounds; the last outcome of rank 0.
RoundOutcome Train(const LoopbackJob& job, const Manifest& manifest,
                   int num_workers, int num_rounds);

}  // namespace agg

#endif  // AGG_TESTS_E2E_LOOPBACK_JOB_H_
