#include "tests/worker_client/fake_job.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <utility>

#include "proto/byte_buffer_frame.h"
#include "proto/crc32c.h"
#include "proto/manifest_message.h"
#include "tests/worker_client/fake_payload.h"

namespace agg {
namespace {

constexpr uint64_t kEpoch = 1234567890123;
constexpr uint64_t kSession = 0x8877665544332211u;

}  // namespace

class FakeJob::ShardService : public v1::Shard::Service {
 public:
  ShardService(FakeJob* job, int shard) : job_(job), shard_(shard) {}

  grpc::Status Push(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::PushAck, v1::PushFrame>* stream) override {
    v1::PushFrame frame;
    while (stream->Read(&frame)) {
      v1::PushAck ack;
      {
        std::unique_lock<std::mutex> lock(job_->mutex_);
        ShardState& state = job_->shards_[shard_];
        const int count = state.frames++;
        job_->changed_.notify_all();
        while (state.stalls && !job_->stopping_ && !context->IsCancelled()) {
          job_->changed_.wait_for(lock, std::chrono::milliseconds(10));
        }
        if (state.push_fault) {
          grpc::Status status = state.push_fault(count);
          if (!status.ok()) return status;
        }
        const v1::FrameMeta& meta = frame.meta();
        if (meta.epoch() != kEpoch || meta.session() != kSession) {
          return grpc::Status(grpc::StatusCode::ABORTED, "stale");
        }
        if (!job_->Land(shard_, frame)) continue;
        ack.set_epoch(meta.epoch());
        ack.set_round(meta.round());
        ack.set_kind(meta.kind());
        ack.set_attempt(meta.attempt());
      }
      stream->Write(ack);
    }
    return grpc::Status::OK;
  }

  grpc::Status Pull(grpc::ServerContext* context,
                    const v1::PullRequest* request,
                    grpc::ServerWriter<v1::PullFrame>* writer) override {
    bool corrupts;
    {
      std::unique_lock<std::mutex> lock(job_->mutex_);
      ShardState& state = job_->shards_[shard_];
      const int count = state.pulls++;
      if (state.pull_fault) {
        grpc::Status status = state.pull_fault(count);
        if (!status.ok()) return status;
      }
      corrupts = state.corrupts && state.corrupts(count);
      ++job_->waiting_pulls_;
      job_->changed_.notify_all();
      while (request->version() >= job_->versions_.size()) {
        if (job_->stopping_ || context->IsCancelled()) {
          return grpc::Status::CANCELLED;
        }
        job_->changed_.wait_for(lock, std::chrono::milliseconds(10));
      }
      --job_->waiting_pulls_;
    }
    for (int32_t index : job_->plan_.slices_of_shard[shard_]) {
      v1::PullFrame frame;
      std::string payload =
          job_->Payload(request->version(), index, request->dtype());
      frame.mutable_meta()->set_epoch(kEpoch);
      frame.mutable_meta()->set_round(request->version());
      frame.mutable_meta()->set_dtype(request->dtype());
      frame.mutable_meta()->add_slices(index);
      frame.mutable_meta()->add_crc32c(Crc32c(payload));
      if (corrupts) payload[0] = static_cast<char>(payload[0] ^ 1);
      frame.set_payload(std::move(payload));
      writer->Write(frame);
    }
    return grpc::Status::OK;
  }

 private:
  FakeJob* const job_;
  const int shard_;
};

class FakeJob::CoordinatorService : public v1::Coordinator::Service {
 public:
  explicit CoordinatorService(FakeJob* job) : job_(job) {}

  grpc::Status Join(grpc::ServerContext*, const v1::JoinRequest*,
                    v1::JoinReply* reply) override {
    std::lock_guard<std::mutex> lock(job_->mutex_);
    *reply = job_->Describe();
    reply->set_session(kSession);
    reply->set_seed_role(job_->options_.seed_role);
    return grpc::Status::OK;
  }

  grpc::Status Observe(grpc::ServerContext*, const v1::ObserveRequest*,
                       v1::JoinReply* reply) override {
    std::lock_guard<std::mutex> lock(job_->mutex_);
    *reply = job_->Describe();
    return grpc::Status::OK;
  }

  grpc::Status Attend(grpc::ServerContext* context,
                      grpc::ServerReaderWriter<v1::JobEvent, v1::LeaseRenewal>*
                          stream) override {
    v1::LeaseRenewal renewal;
    if (!stream->Read(&renewal)) return grpc::Status::OK;
    v1::JobEvent renewed;
    renewed.set_kind(v1::JobEvent::RENEWED);
    stream->Write(renewed);
    std::unique_lock<std::mutex> lock(job_->mutex_);
    ++job_->attends_;
    job_->changed_.notify_all();
    while (!job_->stopping_ && !context->IsCancelled()) {
      while (!job_->events_.empty()) {
        stream->Write(job_->events_.front());
        job_->events_.pop_front();
        job_->changed_.notify_all();
      }
      job_->changed_.wait_for(lock, std::chrono::milliseconds(5));
    }
    return grpc::Status::OK;
  }

  grpc::Status Commit(grpc::ServerContext* context,
                      const v1::CommitRequest* request,
                      v1::RoundOutcome* outcome) override {
    std::unique_lock<std::mutex> lock(job_->mutex_);
    job_->commit_ = *request;
    job_->commit_traceparents_.clear();
    const auto sent = context->client_metadata().equal_range("traceparent");
    for (auto it = sent.first; it != sent.second; ++it) {
      job_->commit_traceparents_.emplace_back(it->second.data(),
                                              it->second.size());
    }
    ++job_->commits_;
    job_->changed_.notify_all();
    while (job_->hold_commits_) {
      if (job_->stopping_ || context->IsCancelled()) {
        return grpc::Status::CANCELLED;
      }
      job_->changed_.wait_for(lock, std::chrono::milliseconds(10));
    }
    if (!job_->commit_failure_.ok()) return job_->commit_failure_;
    job_->Publish(*request);
    outcome->set_round(request->round());
    outcome->set_version(job_->versions_.size() - 1);
    outcome->set_kind(request->kind() == v1::SEED ? v1::RoundOutcome::SEEDED
                                                  : v1::RoundOutcome::APPLIED);
    outcome->set_included(true);
    outcome->add_ranks(0);
    outcome->set_learning_rate(1);
    outcome->set_loss(request->loss());
    return grpc::Status::OK;
  }

  grpc::Status WaitRound(grpc::ServerContext*, const v1::WaitRequest* request,
                         v1::RoundOutcome* outcome) override {
    std::lock_guard<std::mutex> lock(job_->mutex_);
    if (job_->finished_ && request->round() + 1 >= job_->versions_.size()) {
      return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                          "the job has finished");
    }
    outcome->set_round(request->round());
    outcome->set_version(request->round() + 1);
    return grpc::Status::OK;
  }

  grpc::Status Leave(grpc::ServerContext*, const v1::LeaveRequest*,
                     v1::LeaveReply*) override {
    std::lock_guard<std::mutex> lock(job_->mutex_);
    ++job_->leaves_;
    return grpc::Status::OK;
  }

 private:
  FakeJob* const job_;
};

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
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.RegisterService(shard.get());
    if (i == 0) builder.RegisterService(coordinator.get());
    servers_.push_back(builder.BuildAndStart());
    addresses_.push_back("127.0.0.1:" + std::to_string(port));
    services_.push_back(std::move(shard));
  }
  services_.push_back(std::move(coordinator));
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
  reply.set_epoch(kEpoch);
  reply.set_seeded(!versions_.empty());
  reply.set_finished(finished_);
  if (!versions_.empty()) reply.set_version(versions_.size() - 1);
  for (const std::string& address : addresses_) reply.add_shards(address);
  *reply.mutable_manifest() = ToProto(manifest_);
  reply.set_push_dtype(static_cast<v1::DType>(options_.push_dtype));
  reply.set_pull_dtype(static_cast<v1::DType>(options_.pull_dtype));
  reply.set_lease_ms(options_.lease_ms);
  reply.set_rule("mean");
  return reply;
}

bool FakeJob::Land(int shard, const v1::PushFrame& frame) {
  absl::string_view payload = frame.payload();
  for (int i = 0; i < frame.meta().slices_size(); ++i) {
    const Slice& slice = plan_.slices.at(frame.meta().slices(i));
    const auto dtype = static_cast<DType>(frame.meta().dtype());
    const absl::string_view bytes =
        payload.substr(0, slice.num_elements * DTypeBytes(dtype));
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

std::string FakeJob::Payload(uint64_t version, int slice,
                             v1::DType dtype) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return Narrow(versions_[version].at(slice), dtype);
}

void FakeJob::set_push_fault(int shard, Fault fault) {
  std::lock_guard<std::mutex> lock(mutex_);
  shards_[shard].push_fault = std::move(fault);
}

void FakeJob::set_pull_fault(int shard, Fault fault) {
  std::lock_guard<std::mutex> lock(mutex_);
  shards_[shard].pull_fault = std::move(fault);
}

void FakeJob::set_pull_corruption(int shard,
                                  std::function<bool(int)> corrupts) {
  std::lock_guard<std::mutex> lock(mutex_);
  shards_[shard].corrupts = std::move(corrupts);
}

void FakeJob::StallPushes(int shard) {
  std::lock_guard<std::mutex> lock(mutex_);
  shards_[shard].stalls = true;
}

void FakeJob::HoldCommits() {
  std::lock_guard<std::mutex> lock(mutex_);
  hold_commits_ = true;
}

void FakeJob::FailCommits(grpc::Status status) {
  std::lock_guard<std::mutex> lock(mutex_);
  commit_failure_ = std::move(status);
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

void FakeJob::AwaitCommit() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return commits_ > 0; });
}

void FakeJob::AwaitWaitingPull() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return waiting_pulls_ > 0; });
}

void FakeJob::Stop(int shard) {
  servers_[shard]->Shutdown(std::chrono::system_clock::now());
  servers_[shard]->Wait();
}

void FakeJob::Finish() {
  std::lock_guard<std::mutex> lock(mutex_);
  finished_ = true;
}

int FakeJob::frames(int shard) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return shards_[shard].frames;
}

int FakeJob::pulls(int shard) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return shards_[shard].pulls;
}

int FakeJob::leaves() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return leaves_;
}

v1::CommitRequest FakeJob::commit() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return commit_;
}

std::vector<std::string> FakeJob::commit_traceparents() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return commit_traceparents_;
}

}  // namespace agg
