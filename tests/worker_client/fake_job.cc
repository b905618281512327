#include "tests/worker_client/fake_job.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/row_format.h"
#include "proto/byte_buffer_frame.h"
#include "proto/crc32c.h"
#include "proto/manifest_message.h"
#include "server/base/local_socket.h"
#include "tests/worker_client/fake_job_services.h"
#include "tests/worker_client/fake_payload.h"

namespace agg {
FakeJob::FakeJob(Manifest manifest, Options options)
    : manifest_(std::move(manifest)),
      options_(options),
      plan_(MakeShardPlan(manifest_, options.num_shards).value()),
      shards_(options.num_shards) {
  auto coordinator = std::make_unique<CoordinatorService>(this);
  for (int i = 0; i < options_.num_shards; ++i) {
    auto shard = std::make_unique<ShardService>(this, i);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(
        "127.0.0.1:" + std::to_string(i == 0 ? options_.port : 0),
        grpc::InsecureServerCredentials(), &port);
    if (!options_.local_sockets.empty()) {
      builder.AddListeningPort(LocalSocketTarget(LocalSocket(i)),
                               grpc::InsecureServerCredentials());
    }
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.RegisterService(shard.get());
    if (i == 0) builder.RegisterService(coordinator.get());
    servers_.push_back(builder.BuildAndStart());
    addresses_.push_back("127.0.0.1:" + std::to_string(port));
    services_.push_back(std::move(shard));
  }
  services_.push_back(std::move(coordinator));
}

std::string FakeJob::LocalSocket(int shard) const {
  return options_.local_sockets + "-" + std::to_string(shard);
}

FakeJob::~FakeJob() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (auto& server : servers_) {
    server->Shutdown(std::chrono::system_clock::now());
    server->Wait();
  }
}

v1::JoinReply FakeJob::Describe() const {
  v1::JoinReply reply;
  reply.set_epoch(kFakeEpoch);
  reply.set_seeded(!versions_.empty());
  reply.set_finished(finished_);
  if (!versions_.empty()) reply.set_version(versions_.size() - 1);
  for (int i = 0; i < options_.num_shards; ++i) {
    const bool said = i > 0 && !options_.said_address.empty();
    reply.add_shards(said ? options_.said_address : addresses_[i]);
    if (options_.local_sockets.empty()) continue;
    reply.add_local_sockets(LocalSocket(i));
  }
  *reply.mutable_manifest() = ToProto(manifest_);
  reply.set_push_dtype(static_cast<v1::DType>(options_.push_dtype));
  reply.set_pull_dtype(static_cast<v1::DType>(options_.pull_dtype));
  for (const std::string& socket : options_.region_sockets) {
    reply.add_region_sockets(socket);
    reply.add_shard_lives(static_cast<uint64_t>(reply.shard_lives_size() + 1));
  }
  reply.set_lease_ms(options_.lease_ms);
  reply.set_rule("mean");
  reply.set_optimizer("sgd");
  return reply;
}

bool FakeJob::Land(int shard, const v1::PushFrame& frame) {
  // Another gradient empties the row (P5).
  const std::pair<uint64_t, uint32_t> name(frame.meta().round(),
                                           frame.meta().attempt());
  if (name > row_name_) row_.clear();
  row_name_ = std::max(row_name_, name);
  absl::string_view payload = frame.payload();
  for (int i = 0; i < frame.meta().slices_size(); ++i) {
    const Slice& slice = plan_.slices.at(frame.meta().slices(i));
    const auto dtype = static_cast<DType>(frame.meta().dtype());
    const bool in_place = frame.meta().in_place();
    const std::string placed =
        in_place ? options_.placed(frame.meta(), slice.index) : "";
    const absl::string_view bytes =
        in_place ? absl::string_view(placed)
                 : payload.substr(0, PayloadBytes(dtype, slice.num_elements));
    if (in_place && slice.shard == shard) {
      row_[slice.index] = Widen(bytes, frame.meta().dtype());
      continue;
    }
    payload.remove_prefix(bytes.size());
    if (slice.shard != shard || Crc32c(bytes) != frame.meta().crc32c(i)) {
      return false;  // never acknowledged: the test hangs and fails
    }
    row_[slice.index] = Widen(bytes, frame.meta().dtype());
  }
  for (uint32_t index : frame.meta().absent_slices()) {
    row_[index].assign(plan_.slices[index].num_elements, 0);
  }
  for (int32_t index : plan_.slices_of_shard[shard]) {
    if (row_.count(index) == 0) return false;
  }
  return true;
}

void FakeJob::Publish(const v1::CommitRequest& request) {
  if (request.kind() == v1::GRADIENT &&
      request.round() + 1 < versions_.size()) {
    return;  // it was, by another copy of the commit
  }
  std::map<int, std::vector<float>> next = row_;
  if (request.kind() == v1::GRADIENT) {
    next = versions_.back();
    for (auto& slice : next) {
      for (size_t i = 0; i < slice.second.size(); ++i) {
        slice.second[i] -= row_[slice.first][i];
      }
    }
  }
  versions_.push_back(std::move(next));
  row_.clear();
  changed_.notify_all();
}

v1::RoundOutcome FakeJob::OutcomeOf(const v1::CommitRequest& request) const {
  v1::RoundOutcome outcome;
  outcome.set_round(request.round());
  outcome.set_version(request.kind() == v1::SEED ? 0 : request.round() + 1);
  outcome.set_kind(request.kind() == v1::SEED ? v1::RoundOutcome::SEEDED
                                              : v1::RoundOutcome::APPLIED);
  outcome.set_included(true);
  outcome.add_ranks(0);
  outcome.set_learning_rate(1);
  outcome.set_loss(request.loss());
  outcome.mutable_combination()->set_rule("mean");
  outcome.mutable_combination()->set_scope("global");
  outcome.mutable_combination()->set_step_scale("none");
  return outcome;
}

std::string FakeJob::Payload(uint64_t version, int slice,
                             v1::DType dtype) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return Narrow(versions_[version].at(slice), dtype);
}

void FakeJob::Send(v1::JobEvent::Kind kind, std::string message) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return attends_ > 0; });
  events_.emplace_back();
  events_.back().set_kind(kind);
  events_.back().set_message(std::move(message));
  changed_.notify_all();
  changed_.wait(lock, [this] { return events_.empty(); });
}

void FakeJob::AwaitTurn(int sent, grpc::ServerContext* context) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (pull_frames_ >= 0 && sent >= pull_frames_ && !stopping_ &&
         !context->IsCancelled()) {
    changed_.wait_for(lock, std::chrono::milliseconds(10));
  }
}

std::vector<int32_t> FakeJob::PullOrder(const v1::PullRequest& request,
                                        int shard) const {
  std::vector<int32_t> order(request.first_slices().begin(),
                             request.first_slices().end());
  for (const int32_t slice : plan_.slices_of_shard[shard]) {
    if (std::find(order.begin(), order.end(), slice) == order.end()) {
      order.push_back(slice);
    }
  }
  return order;
}

void FakeJob::AwaitFrames(int count) {
  Await([&] {
    int frames = 0;
    for (const ShardState& shard : shards_) frames += shard.frames;
    return frames >= count;
  });
}

void FakeJob::Stop(int shard) {
  servers_[shard]->Shutdown(std::chrono::system_clock::now());
  servers_[shard]->Wait();
}

}  // namespace agg
