// The services of FakeJob: for fake_job.cc alone.
#ifndef AGG_TESTS_WORKER_CLIENT_FAKE_JOB_SERVICES_H_
#define AGG_TESTS_WORKER_CLIENT_FAKE_JOB_SERVICES_H_

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "proto/crc32c.h"
#include "tests/worker_client/fake_job.h"

namespace agg {

inline constexpr uint64_t kFakeEpoch = 1234567890123;
inline constexpr uint64_t kFakeSession = 0x8877665544332211u;

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
        if (meta.epoch() != kFakeEpoch || meta.session() != kFakeSession) {
          return grpc::Status(grpc::StatusCode::ABORTED, "stale");
        }
        if (meta.kind() == v1::GRADIENT &&
            meta.round() + 1 < job_->versions_.size()) {
          ack.set_closed(true);
        }
        const bool trip = meta.report() || frame.has_commit();
        if (trip) ++state.trips;
        const bool landed = ack.closed() || job_->Land(shard_, frame);
        if (trip && !ack.closed()) {
          const grpc::Status status = Answer(frame, context, &lock, stream);
          if (!status.ok()) return status;
          continue;
        }
        if (!landed) continue;
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
    v1::PullFrame placed;
    if (request->in_place() && job_->options_.place != nullptr &&
        job_->options_.place(
            *request,
            [&](int slice) {
              return job_->Payload(request->version(), slice, request->dtype());
            },
            &placed)) {
      placed.mutable_meta()->set_epoch(kFakeEpoch);
      placed.mutable_meta()->set_round(request->version());
      placed.mutable_meta()->set_dtype(request->dtype());
      writer->Write(placed);
      return grpc::Status::OK;
    }
    int sent = 0;
    for (int32_t index : job_->PullOrder(*request, shard_)) {
      job_->AwaitTurn(sent++, context);
      v1::PullFrame frame;
      std::string payload =
          job_->Payload(request->version(), index, request->dtype());
      frame.mutable_meta()->set_epoch(kFakeEpoch);
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
  using PushStream = grpc::ServerReaderWriter<v1::PushAck, v1::PushFrame>;

  // Waits for what the job does not have yet.
  grpc::Status Await(grpc::ServerContext* context,
                     std::unique_lock<std::mutex>* lock,
                     const std::function<bool()>& there) {
    while (!there()) {
      if (job_->stopping_ || context->IsCancelled()) {
        return grpc::Status::CANCELLED;
      }
      job_->changed_.wait_for(*lock, std::chrono::milliseconds(10));
    }
    return grpc::Status::OK;
  }

  grpc::Status Answer(const v1::PushFrame& frame, grpc::ServerContext* context,
                      std::unique_lock<std::mutex>* lock, PushStream* stream) {
    if (frame.has_commit()) {
      job_->commit_ = frame.commit();
      ++job_->commits_;
      job_->changed_.notify_all();
      const grpc::Status status = Await(context, lock, [this] {
        return !job_->hold_commits_ &&
               job_->row_.size() == job_->plan_.slices.size();
      });
      if (!status.ok()) return status;
      if (!job_->commit_failure_.ok()) return job_->commit_failure_;
      if (context->IsCancelled()) return grpc::Status::CANCELLED;
      job_->Publish(frame.commit());
      v1::PushAck ack;
      ack.set_epoch(kFakeEpoch);
      ack.set_round(frame.meta().round());
      ack.set_attempt(frame.meta().attempt());
      *ack.mutable_outcome() = job_->OutcomeOf(frame.commit());
      stream->Write(ack);
    }
    const uint64_t version = frame.pull().version();
    grpc::Status status =
        Await(context, lock, [&] { return job_->versions_.size() > version; });
    ShardState& state = job_->shards_[shard_];
    if (status.ok() && state.trip_fault) {
      status = state.trip_fault(state.trips - 1);
    }
    if (!status.ok()) return status;
    bool corrupts = state.trip_corrupts && state.trip_corrupts(state.trips - 1);
    const std::vector<int32_t>& slices = job_->plan_.slices_of_shard[shard_];
    for (const int32_t slice : slices) {
      v1::PushAck ack;
      lock->unlock();
      std::string payload = job_->Payload(version, slice, frame.pull().dtype());
      lock->lock();
      ack.mutable_meta()->set_epoch(kFakeEpoch);
      ack.mutable_meta()->set_round(version);
      ack.mutable_meta()->set_dtype(frame.pull().dtype());
      ack.mutable_meta()->add_slices(slice);
      ack.mutable_meta()->add_crc32c(Crc32c(payload));
      if (corrupts) payload[0] = static_cast<char>(payload[0] ^ 1);
      corrupts = false;
      ack.set_last(slice == slices.back());
      ack.set_payload(payload);
      stream->Write(ack);
    }
    return grpc::Status::OK;
  }

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
    reply->set_session(kFakeSession);
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
    while (true) {
      // Also of one that is not held any more: its client has gone.
      if (job_->stopping_ || context->IsCancelled()) {
        return grpc::Status::CANCELLED;
      }
      if (!job_->hold_commits_) break;
      job_->changed_.wait_for(lock, std::chrono::milliseconds(10));
    }
    if (!job_->commit_failure_.ok()) return job_->commit_failure_;
    job_->Publish(*request);
    *outcome = job_->OutcomeOf(*request);
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

}  // namespace agg

#endif  // AGG_TESTS_WORKER_CLIENT_FAKE_JOB_SERVICES_H_
