#include "tests/server/rpc/loopback_shard.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/sync_stream.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/backend_factory.h"
#include "proto/byte_buffer_frame.h"
#include "proto/crc32c.h"

namespace agg {

Manifest OneTensor(int64_t num_elements) {
  TensorSpec tensor;
  tensor.name = "x";
  tensor.shape = {num_elements};
  return Manifest{{tensor}};
}

namespace {

// Each is another process, as far as its coordinator knows.
uint64_t NextLife() {
  static std::atomic<uint64_t> last{kLoopbackLife};
  return ++last;
}

}  // namespace

LoopbackShard::LoopbackShard(int ordinal, int num_shards,
                             const MakeEngine& make_engine)
    : ordinal_(ordinal), num_shards_(num_shards) {
  backend_ = *MakeBackend("cpu", {1});
  ShardOptions options;
  options.ordinal = ordinal;
  options.num_shards = num_shards;
  options.max_workers = 4;
  engine_ = make_engine != nullptr
                ? make_engine(options, backend_.get())
                : std::make_unique<ShardEngine>(options, backend_.get());
}

void LoopbackShard::Serve(Coordinator* coordinator, const Clock* clock) {
  RpcServerOptions options;
  if (clock != nullptr) options.clock = clock;
  options.self = {ordinal_,
                  num_shards_,
                  "here:1",
                  kFingerprint,
                  "cpu",
                  NextLife(),
                  /*local_socket=*/"",
                  /*region_socket=*/""};
  options.job.job = "test";
  options.job.optimizer = "sgd";
  options.job.coordinator_life = kLoopbackLife;
  options.job.workers = 1;
  options.job.max_workers = 4;
  options.job.lease = absl::Seconds(30);
  for (int i = 0; i < num_shards_; ++i) {
    options.job.shards.push_back(absl::StrCat("127.0.0.1:", i + 1));
  }
  options.calls = &calls_;
  options.copies = copies_;
  options.on_shards = on_shards_;
  options.gate = gate_;
  auto rpc = RpcServer::Start(options, engine_.get(), coordinator);
  if (!rpc.ok()) std::abort();
  rpc_ = *std::move(rpc);
}

void LoopbackShard::Stop() { rpc_ = nullptr; }

void LoopbackShard::Begin(const Manifest& manifest) {
  absl::Status status = engine_->Attach(kEpoch, nullptr).status();
  status.Update(engine_->SetManifest(kEpoch, manifest));
  SessionChange change;
  change.session = kSession;
  change.seed_role = true;
  status.Update(engine_->SetSession(kEpoch, change));
  if (!status.ok()) std::abort();
}

absl::Status LoopbackShard::PublishSeed() {
  Phase phase;
  phase.kind = PhaseKind::kPublish;
  phase.epoch = kEpoch;
  phase.publish.seed = true;
  phase.publish.seed_session = kSession;
  return engine_->RunPhase(phase).status();
}

std::string LoopbackShard::address() const {
  return absl::StrCat("127.0.0.1:", rpc_->port());
}

std::shared_ptr<grpc::Channel> LoopbackShard::NewChannel() const {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetMaxReceiveMessageSize(kMaxMessageBytes);
  return grpc::CreateCustomChannel(address(),
                                   grpc::InsecureChannelCredentials(), args);
}

v1::PushFrame FrameOf(const std::vector<float>& values, v1::PushKind kind,
                      uint64_t round) {
  v1::PushFrame frame;
  std::string* payload = frame.mutable_payload();
  payload->resize(values.size() * sizeof(float));
  std::memcpy(&(*payload)[0], values.data(), payload->size());
  v1::FrameMeta* meta = frame.mutable_meta();
  meta->set_epoch(kEpoch);
  meta->set_session(kSession);
  meta->set_round(round);
  meta->set_kind(kind);
  meta->set_dtype(v1::F32);
  meta->add_slices(0);
  meta->add_crc32c(Crc32c(*payload));
  return frame;
}

std::pair<std::vector<v1::PushAck>, grpc::Status> PushOne(
    const std::shared_ptr<grpc::Channel>& channel, const v1::PushFrame& frame) {
  auto stub = v1::Shard::NewStub(channel);
  grpc::ClientContext context;
  auto stream = stub->Push(&context);
  stream->Write(frame);
  stream->WritesDone();
  std::vector<v1::PushAck> acks;
  v1::PushAck ack;
  while (stream->Read(&ack)) acks.push_back(ack);
  return {acks, stream->Finish()};
}

std::pair<std::vector<v1::PullFrame>, grpc::Status> PullAll(
    const std::shared_ptr<grpc::Channel>& channel,
    const v1::PullRequest& request) {
  auto stub = v1::Shard::NewStub(channel);
  grpc::ClientContext context;
  auto stream = stub->Pull(&context, request);
  std::vector<v1::PullFrame> frames;
  v1::PullFrame frame;
  while (stream->Read(&frame)) frames.push_back(frame);
  return {frames, stream->Finish()};
}

}  // namespace agg
