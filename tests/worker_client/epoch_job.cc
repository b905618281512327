#include "tests/worker_client/epoch_job.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/row_format.h"
#include "proto/byte_buffer_frame.h"
#include "proto/manifest_message.h"
#include "tests/worker_client/epoch_job_services.h"

namespace agg {

EpochJob::EpochJob(Manifest manifest, int num_shards)
    : manifest_(std::move(manifest)),
      plan_(MakeShardPlan(manifest_, num_shards).value()),
      addresses_(num_shards),
      shards_(num_shards),
      servers_(num_shards) {
  for (int i = 0; i < num_shards; ++i) {
    shards_[i].life = ++last_life_;
    Serve(i);
  }
}

EpochJob::~EpochJob() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    open_ = false;
    changed_.notify_all();
  }
  for (auto& server : servers_) {
    server->Shutdown(std::chrono::system_clock::now());
    server->Wait();
  }
}

void EpochJob::Serve(int shard) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  services_.push_back(std::make_unique<ShardService>(this, shard));
  builder.RegisterService(services_.back().get());
  if (shard == 0) {
    services_.push_back(std::make_unique<CoordinatorService>(this));
    builder.RegisterService(services_.back().get());
  }
  servers_[shard] = builder.BuildAndStart();
  std::lock_guard<std::mutex> lock(mutex_);
  addresses_[shard] = "127.0.0.1:" + std::to_string(port);
}

grpc::Status EpochJob::CheckCall(uint64_t epoch) const {
  if (!open_) return {grpc::StatusCode::UNAVAILABLE, reason_};
  if (epoch == 0 || epoch == epoch_) return grpc::Status::OK;
  return {grpc::StatusCode::ABORTED, "stale epoch " + std::to_string(epoch) +
                                         "; current epoch " +
                                         std::to_string(epoch_)};
}

v1::JoinReply EpochJob::Describe() const {
  v1::JoinReply reply;
  reply.set_epoch(epoch_);
  reply.set_seeded(!versions_.empty());
  reply.set_finished(finished_);
  if (!versions_.empty()) {
    reply.set_version(newest());
    reply.set_made(versions_.back().made);
  }
  for (size_t i = 0; i < shards_.size(); ++i) {
    reply.add_shards(addresses_[i]);
    reply.add_shard_lives(shards_[i].life);
  }
  *reply.mutable_manifest() = ToProto(manifest_);
  reply.set_push_dtype(push_dtype_);
  reply.set_pull_dtype(v1::F32);
  reply.set_lease_ms(30000);
  reply.set_seed_role(versions_.empty());
  reply.set_pipelined(pipelined_);
  return reply;
}

bool EpochJob::Complete(int shard) const {
  for (int32_t index : plan_.slices_of_shard[shard]) {
    if (shards_[shard].row.slices.count(index) == 0) return false;
  }
  return true;
}

grpc::Status EpochJob::Land(int shard, const v1::PushFrame& frame,
                            v1::PushAck* ack, bool* acknowledged) {
  const v1::FrameMeta& meta = frame.meta();
  const grpc::Status status = CheckCall(meta.epoch());
  if (!status.ok()) return status;
  if (meta.session() != session_) {
    return {grpc::StatusCode::NOT_FOUND, "unknown session"};
  }
  const bool seed = meta.kind() == v1::SEED;
  const bool closed =
      seed ? !versions_.empty() : !versions_.empty() && meta.round() < newest();
  Row& row = shards_[shard].row;
  const bool same = row.any && row.kind == meta.kind() &&
                    row.round == meta.round() && row.session == meta.session();
  if (same && meta.attempt() < row.attempt) {
    return {grpc::StatusCode::ABORTED, "replaced"};
  }
  if (!closed && (!same || meta.attempt() > row.attempt)) {
    row = Row{true,           meta.kind(),    meta.round(),
              meta.session(), meta.attempt(), {}};
  }
  absl::string_view payload = frame.payload();
  for (int i = 0; !closed && i < meta.slices_size(); ++i) {
    const Slice& slice = plan_.slices.at(meta.slices(i));
    const absl::string_view bytes = payload.substr(
        0, PayloadBytes(static_cast<DType>(meta.dtype()), slice.num_elements));
    payload.remove_prefix(bytes.size());
    row.slices[slice.index] = Widen(bytes, meta.dtype());
  }
  *acknowledged = closed || Complete(shard);
  ack->set_epoch(meta.epoch());
  ack->set_round(meta.round());
  ack->set_kind(meta.kind());
  ack->set_attempt(meta.attempt());
  ack->set_closed(closed);
  return grpc::Status::OK;
}

bool EpochJob::HasRow(const v1::CommitRequest& commit) const {
  for (size_t i = 0; i < shards_.size(); ++i) {
    const Row& row = shards_[i].row;
    if (plan_.slices_of_shard[i].empty()) continue;
    if (!row.any || row.kind != commit.kind() || row.round != commit.round() ||
        row.session != commit.session() || row.attempt != commit.attempt() ||
        !Complete(static_cast<int>(i))) {
      return false;
    }
  }
  return true;
}

void EpochJob::Publish(const v1::CommitRequest* commit) {
  Version next;
  if (!versions_.empty()) next = versions_.back();
  next.made = epoch_;
  for (const ShardState& shard : shards_) {
    if (commit == nullptr) break;
    for (const auto& slice : shard.row.slices) {
      std::vector<float>& values = next.slices[slice.first];
      if (commit->kind() == v1::SEED) {
        values = slice.second;
        continue;
      }
      for (size_t i = 0; i < values.size(); ++i) values[i] -= slice.second[i];
    }
  }
  if (!versions_.empty()) {
    const Used used{newest(), commit == nullptr ? 0 : commit->session(),
                    commit == nullptr ? 0 : commit->attempt()};
    outcomes_[used.round] = used;
    used_.push_back(used);
  }
  versions_.push_back(std::move(next));
  for (ShardState& shard : shards_) shard.row = Row();
  changed_.notify_all();
}

void EpochJob::FillOutcome(uint64_t round, uint64_t session, uint32_t attempt,
                           v1::RoundOutcome* outcome) const {
  outcome->set_epoch(versions_.at(round + 1).made);
  outcome->set_round(round);
  outcome->set_version(round + 1);
  outcome->set_kind(v1::RoundOutcome::APPLIED);
  outcome->set_finished(finished_);
  const auto used = outcomes_.find(round);
  outcome->set_included(used != outcomes_.end() &&
                        used->second == Used{round, session, attempt});
}

void EpochJob::CloseSilently() {
  std::lock_guard<std::mutex> lock(mutex_);
  Publish(&commit_);
}

void EpochJob::CloseWithout() {
  std::lock_guard<std::mutex> lock(mutex_);
  Publish(nullptr);
}

void EpochJob::StallPushesAfter(int shard, int frames) {
  std::lock_guard<std::mutex> lock(mutex_);
  shards_[shard].reads = shards_[shard].frames + frames;
}

void EpochJob::End(const std::string& reason, bool said) {
  std::lock_guard<std::mutex> lock(mutex_);
  open_ = false;
  reason_ = reason;
  if (said) said_[epoch_] = reason;
  changed_.notify_all();
}

void EpochJob::Lose(int shard) {
  std::lock_guard<std::mutex> lock(mutex_);
  shards_[shard].life = ++last_life_;
  shards_[shard].row = Row();
}

void EpochJob::Move(int shard) {
  servers_[shard]->Shutdown(std::chrono::system_clock::now());
  servers_[shard]->Wait();
  Lose(shard);
  Serve(shard);
}

void EpochJob::Rewind(uint64_t version) {
  std::lock_guard<std::mutex> lock(mutex_);
  versions_.resize(version + 1);
  versions_.back().made = ++epoch_;  // one that ends before it is open
  outcomes_.clear();
  used_.erase(
      std::remove_if(used_.begin(), used_.end(),
                     [&](const Used& used) { return used.round >= version; }),
      used_.end());
  for (ShardState& shard : shards_) shard.row = Row();
}

void EpochJob::LoseAll() {
  std::lock_guard<std::mutex> lock(mutex_);
  versions_.clear();
  outcomes_.clear();
  for (ShardState& shard : shards_) {
    shard.life = ++last_life_;
    shard.row = Row();
  }
}

void EpochJob::SeedByAnother() {
  std::lock_guard<std::mutex> lock(mutex_);
  Version first;
  first.made = epoch_;
  for (const Slice& slice : plan_.slices) {
    first.slices[slice.index].assign(slice.num_elements, 0.5f);
  }
  versions_ = {std::move(first)};
  changed_.notify_all();
}

void EpochJob::Expire() {
  std::lock_guard<std::mutex> lock(mutex_);
  session_ = ++last_session_;  // nobody's
  for (ShardState& shard : shards_) shard.row = Row();
  changed_.notify_all();
}

void EpochJob::Open() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++epoch_;
  open_ = true;
  // Shards whose memory was not lost forget, too: all begin anew.
  for (ShardState& shard : shards_) {
    if (versions_.empty()) shard.row = Row();
  }
  changed_.notify_all();
}

uint64_t EpochJob::version() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return newest();
}

std::vector<std::vector<float>> EpochJob::parameters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::vector<float>> tensors;
  for (const TensorSpec& spec : manifest_.tensors) {
    tensors.emplace_back(NumElements(spec));
  }
  for (const auto& values : versions_.back().slices) {
    const Slice& slice = plan_.slices.at(values.first);
    std::copy(values.second.begin(), values.second.end(),
              tensors[slice.tensor].begin() + slice.begin);
  }
  return tensors;
}

}  // namespace agg
