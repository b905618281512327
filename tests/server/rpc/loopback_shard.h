// A shard behind a loopback gRPC server, with neither options nor main.
#ifndef AGG_TESTS_SERVER_RPC_LOOPBACK_SHARD_H_
#define AGG_TESTS_SERVER_RPC_LOOPBACK_SHARD_H_

#include <grpcpp/channel.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "proto/agg.grpc.pb.h"
#include "proto/shard_plan.h"
#include "server/access/caller_gate.h"
#include "server/base/call_counts.h"
#include "server/base/clock.h"
#include "server/coordinator/coordinator.h"
#include "server/round/neighbour_peer.h"
#include "server/round/shard_options.h"
#include "server/rpc/rpc_server.h"
#include "server/shard/shard_engine.h"

namespace agg {

inline constexpr uint64_t kEpoch = 7;
inline constexpr uint64_t kSession = 11;
inline constexpr uint64_t kLoopbackLife = 0x1234;
inline constexpr char kFingerprint[] = "00112233aabbccdd";

// One tensor "x" of `num_elements` float32.
Manifest OneTensor(int64_t num_elements);

class LoopbackShard {
 public:
  using MakeEngine = std::function<std::unique_ptr<ShardEngine>(
      const ShardOptions&, Backend*)>;

  // `make_engine`: for a test that watches the calls of an engine of its own.
  explicit LoopbackShard(int ordinal = 0, int num_shards = 1,
                         const MakeEngine& make_engine = nullptr);

  // What neighbours' calls reach; before Serve. It outlives this.
  void set_copies(NeighbourPeer* copies) { copies_ = copies; }
  // RpcServerOptions::on_shards; before Serve.
  void set_on_shards(
      std::function<void(const std::vector<std::string>&)> on_shards) {
    on_shards_ = std::move(on_shards);
  }
  // Who may call it; before Serve. It outlives this.
  void set_gate(const CallerGate* gate) { gate_ = gate; }
  // Listens; once. `coordinator` may be null, and so may `clock`, for the real
  // one.
  void Serve(Coordinator* coordinator = nullptr, const Clock* clock = nullptr);
  // Stops listening.
  void Stop();

  // Epoch, manifest and one session with the seed role.
  void Begin(const Manifest& manifest);
  // Publishes what the session has pushed as version 0.
  absl::Status PublishSeed();

  ShardEngine* engine() { return engine_.get(); }
  RpcServer* rpc() { return rpc_.get(); }
  const CallCounts& calls() const { return calls_; }
  std::string address() const;
  std::shared_ptr<grpc::Channel> NewChannel() const;

 private:
  const int ordinal_;
  const int num_shards_;
  NeighbourPeer* copies_ = nullptr;
  std::function<void(const std::vector<std::string>&)> on_shards_;
  const CallerGate* gate_ = CallerGate::Open();
  CallCounts calls_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ShardEngine> engine_;
  std::unique_ptr<RpcServer> rpc_;
};

// A frame of slice 0 with a good checksum.
v1::PushFrame FrameOf(const std::vector<float>& values, v1::PushKind kind,
                      uint64_t round);

// Pushes one frame on a stream of its own: the acknowledgements, and how the
// stream ended.
std::pair<std::vector<v1::PushAck>, grpc::Status> PushOne(
    const std::shared_ptr<grpc::Channel>& channel, const v1::PushFrame& frame);

// All frames of a pull, and how it ended.
std::pair<std::vector<v1::PullFrame>, grpc::Status> PullAll(
    const std::shared_ptr<grpc::Channel>& channel,
    const v1::PullRequest& request);

}  // namespace agg

#endif  // AGG_TESTS_SERVER_RPC_LOOPBACK_SHARD_H_
