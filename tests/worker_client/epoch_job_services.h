// The two services of EpochJob. Apart because its state is read without them.
#ifndef AGG_TESTS_WORKER_CLIENT_EPOCH_JOB_SERVICES_H_
#define AGG_TESTS_WORKER_CLIENT_EPOCH_JOB_SERVICES_H_

#include <chrono>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "proto/crc32c.h"
#include "tests/worker_client/epoch_job.h"
#include "tests/worker_client/fake_payload.h"

namespace agg {

// How often a call that waits looks whether its caller has gone.
inline constexpr std::chrono::milliseconds kLook(5);

class EpochJob::ShardService : public v1::Shard::Service {
 public:
  ShardService(EpochJob* job, int shard) : job_(job), shard_(shard) {}

  grpc::Status Push(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::PushAck, v1::PushFrame>* stream) override {
    v1::PushFrame frame;
    Trip trip;
    {
      const auto& metadata = context->client_metadata();
      const auto found = metadata.find("authorization");
      std::lock_guard<std::mutex> lock(job_->mutex_);
      job_->shards_[shard_].authorizations.push_back(
          found == metadata.end()
              ? ""
              : std::string(found->second.data(), found->second.size()));
    }
    while (stream->Read(&frame)) {
      v1::PushAck ack;
      bool acknowledged = false;
      {
        std::unique_lock<std::mutex> lock(job_->mutex_);
        ShardState& state = job_->shards_[shard_];
        const int count = ++state.frames;
        job_->changed_.notify_all();
        const uint64_t epoch = frame.meta().epoch();
        while (count > state.reads && job_->CheckCall(epoch).ok() &&
               !context->IsCancelled()) {
          job_->changed_.wait_for(lock, kLook);
        }
        grpc::Status status = job_->Land(shard_, frame, &ack, &acknowledged);
        if (!status.ok()) return status;
        if (job_->pipelined_ && frame.has_pull()) trip = {frame, {}};
        if (ack.closed() && trip.asked.has_pull()) {
          stream->Write(ack);  // what was asked for comes all the same
          status = End(&trip, context, &lock, stream);
          if (!status.ok()) return status;
          continue;
        }
        if (job_->pipelined_ && frame.meta().report() && !ack.closed()) {
          frame.clear_payload();
          state.trips.push_back(frame);
          status = Answer(frame, acknowledged, &trip, context, &lock, stream);
          if (!status.ok()) return status;
          continue;
        }
      }
      if (acknowledged) stream->Write(ack);
    }
    return grpc::Status::OK;
  }

  grpc::Status Pull(grpc::ServerContext* context,
                    const v1::PullRequest* request,
                    grpc::ServerWriter<v1::PullFrame>* writer) override {
    Version version;
    {
      std::unique_lock<std::mutex> lock(job_->mutex_);
      ++job_->pulls_;
      while (true) {
        const grpc::Status status = job_->CheckCall(request->epoch());
        if (!status.ok()) return status;
        if (request->version() < job_->versions_.size()) break;
        if (request->version() > job_->versions_.size()) {
          return {grpc::StatusCode::OUT_OF_RANGE, "above the next version"};
        }
        if (context->IsCancelled()) return grpc::Status::CANCELLED;
        job_->changed_.wait_for(lock, kLook);
      }
      if (request->version() + 1 < job_->newest()) {
        return {grpc::StatusCode::OUT_OF_RANGE, "no longer kept"};
      }
      version = job_->versions_[request->version()];
    }
    for (int32_t index : job_->plan_.slices_of_shard[shard_]) {
      v1::PullFrame frame;
      const std::string payload =
          Narrow(version.slices.at(index), request->dtype());
      frame.mutable_meta()->set_epoch(request->epoch());
      frame.mutable_meta()->set_round(request->version());
      frame.mutable_meta()->set_dtype(request->dtype());
      frame.mutable_meta()->add_slices(index);
      frame.mutable_meta()->add_crc32c(Crc32c(payload));
      frame.set_payload(payload);
      writer->Write(frame);
    }
    return grpc::Status::OK;
  }

 private:
  using PushStream = grpc::ServerReaderWriter<v1::PushAck, v1::PushFrame>;

  // A pipelined round on one stream (P43).
  struct Trip {
    v1::PushFrame asked;     // the frame that asked for it
    std::set<int32_t> sent;  // slices of the version
  };

  static void SendSlice(int32_t index, const std::vector<float>& values,
                        bool last, Trip* trip, PushStream* stream) {
    if (!trip->sent.insert(index).second) return;
    const v1::PullRequest& pull = trip->asked.pull();
    v1::PushAck ack;
    const std::string payload = Narrow(values, pull.dtype());
    ack.mutable_meta()->set_epoch(trip->asked.meta().epoch());
    ack.mutable_meta()->set_round(pull.version());
    ack.mutable_meta()->set_dtype(pull.dtype());
    ack.mutable_meta()->add_slices(static_cast<uint32_t>(index));
    ack.mutable_meta()->add_crc32c(Crc32c(payload));
    ack.set_last(last);
    ack.set_payload(payload);
    stream->Write(ack);
  }

  grpc::Status Await(uint64_t epoch, grpc::ServerContext* context,
                     std::unique_lock<std::mutex>* lock,
                     const std::function<bool()>& there) {
    while (!there()) {
      const grpc::Status status = job_->CheckCall(epoch);
      if (!status.ok()) return status;
      if (context->IsCancelled()) return grpc::Status::CANCELLED;
      job_->changed_.wait_for(*lock, kLook);
    }
    return grpc::Status::OK;
  }

  // What a frame gets: the version's slices that it makes, but for the shard's
  // last one; when the row is complete, the rest.
  grpc::Status Answer(const v1::PushFrame& frame, bool complete, Trip* trip,
                      grpc::ServerContext* context,
                      std::unique_lock<std::mutex>* lock, PushStream* stream) {
    const std::vector<int32_t>& slices = job_->plan_.slices_of_shard[shard_];
    for (const uint32_t slice : frame.meta().slices()) {
      const auto index = static_cast<int32_t>(slice);
      if (index == slices.back()) break;
      std::vector<float> values = job_->versions_.back().slices[index];
      const std::vector<float>& row = job_->shards_[shard_].row.slices[index];
      for (size_t i = 0; i < values.size(); ++i) values[i] -= row[i];
      SendSlice(index, values, false, trip, stream);
    }
    return complete ? End(trip, context, lock, stream) : grpc::Status::OK;
  }

  // The shard has the row.
  grpc::Status End(Trip* trip, grpc::ServerContext* context,
                   std::unique_lock<std::mutex>* lock, PushStream* stream) {
    const v1::FrameMeta& meta = trip->asked.meta();
    const v1::CommitRequest& commit = trip->asked.commit();
    const uint64_t version = trip->asked.pull().version();
    grpc::Status status;
    if (trip->asked.has_commit() && version == job_->versions_.size()) {
      ++job_->commits_;
      job_->changed_.notify_all();
      status = Await(meta.epoch(), context, lock,
                     [&] { return !job_->holds_ && job_->HasRow(commit); });
      if (!status.ok()) return status;
      job_->Publish(&commit);
      v1::PushAck ack;
      ack.set_epoch(meta.epoch());
      ack.set_round(meta.round());
      ack.set_attempt(meta.attempt());
      job_->FillOutcome(meta.round(), meta.session(), meta.attempt(),
                        ack.mutable_outcome());
      stream->Write(ack);
    }
    status = Await(meta.epoch(), context, lock,
                   [&] { return version < job_->versions_.size(); });
    if (!status.ok()) return status;
    const std::vector<int32_t>& slices = job_->plan_.slices_of_shard[shard_];
    for (const int32_t slice : slices) {
      SendSlice(slice, job_->versions_[version].slices[slice],
                slice == slices.back(), trip, stream);
    }
    return grpc::Status::OK;
  }

  EpochJob* const job_;
  const int shard_;
};

class EpochJob::CoordinatorService : public v1::Coordinator::Service {
 public:
  explicit CoordinatorService(EpochJob* job) : job_(job) {}

  grpc::Status Join(grpc::ServerContext* context,
                    const v1::JoinRequest* request,
                    v1::JoinReply* reply) override {
    std::unique_lock<std::mutex> lock(job_->mutex_);
    job_->joins_.push_back(*request);
    job_->changed_.notify_all();
    while (job_->silent_ && !context->IsCancelled()) {
      job_->changed_.wait_for(lock, kLook);
    }
    if (!job_->refusal_.ok()) return job_->refusal_;
    const grpc::Status status = job_->CheckCall(0);
    if (!status.ok()) return status;
    if (job_->finished_) {
      return {grpc::StatusCode::FAILED_PRECONDITION, "the job has finished"};
    }
    const bool resumed =
        job_->session_ != 0 && request->resume_session() == job_->session_;
    if (!resumed) {
      job_->session_ = ++job_->last_session_;
      job_->first_round_ = job_->versions_.empty()
                               ? 0
                               : job_->newest() + (job_->admits_later_ ? 1 : 0);
    }
    *reply = job_->Describe();
    reply->set_session(job_->session_);
    reply->set_first_round(job_->first_round_);
    const uint64_t version = request->resume_version();
    reply->set_rewound(version != 0 && (version >= job_->versions_.size() ||
                                        (request->resume_made() != 0 &&
                                         request->resume_made() !=
                                             job_->versions_[version].made)));
    return grpc::Status::OK;
  }

  grpc::Status Observe(grpc::ServerContext*, const v1::ObserveRequest*,
                       v1::JoinReply* reply) override {
    std::lock_guard<std::mutex> lock(job_->mutex_);
    const grpc::Status status = job_->CheckCall(0);
    if (status.ok()) *reply = job_->Describe();
    reply->set_seed_role(false);
    return status;
  }

  grpc::Status Attend(grpc::ServerContext* context,
                      grpc::ServerReaderWriter<v1::JobEvent, v1::LeaseRenewal>*
                          stream) override {
    v1::LeaseRenewal renewal;
    if (!stream->Read(&renewal)) return grpc::Status::OK;
    std::unique_lock<std::mutex> lock(job_->mutex_);
    grpc::Status status = job_->CheckCall(renewal.epoch());
    if (!status.ok()) return status;
    v1::JobEvent event;
    event.set_kind(v1::JobEvent::RENEWED);
    stream->Write(event);
    bool said = false;
    while (!job_->stopping_ && !context->IsCancelled()) {
      status = job_->CheckCall(renewal.epoch());
      const auto why = job_->said_.find(renewal.epoch());
      if (why != job_->said_.end() && !said) {
        event.set_kind(v1::JobEvent::SHARD_LOST);
        event.set_message(why->second);
        stream->Write(event);
        said = true;
      }
      if (status.ok() && renewal.session() != job_->session_) {
        event.set_kind(v1::JobEvent::EXPIRED);
        stream->Write(event);
        return grpc::Status::OK;
      }
      job_->changed_.wait_for(lock, kLook);
    }
    return grpc::Status::OK;
  }

  grpc::Status Commit(grpc::ServerContext* context,
                      const v1::CommitRequest* request,
                      v1::RoundOutcome* outcome) override {
    std::unique_lock<std::mutex> lock(job_->mutex_);
    const auto check = [&] {
      const grpc::Status status = job_->CheckCall(request->epoch());
      if (!status.ok() || request->session() == job_->session_) return status;
      return grpc::Status(grpc::StatusCode::NOT_FOUND, "unknown session");
    };
    grpc::Status status = check();
    if (!status.ok()) return status;
    const bool seed = request->kind() == v1::SEED;
    const auto is_open = [&] {
      if (seed) return job_->versions_.empty();
      return !job_->versions_.empty() && request->round() == job_->newest();
    };
    const bool open = is_open();
    if (open && !seed && request->round() < job_->first_round_) {
      return {grpc::StatusCode::FAILED_PRECONDITION, "not its round"};
    }
    if (open && !job_->HasRow(*request)) {
      return {grpc::StatusCode::FAILED_PRECONDITION, "incomplete"};
    }
    job_->commit_ = *request;
    ++job_->commits_;
    job_->changed_.notify_all();
    while (open && job_->holds_) {
      status = check();
      if (!status.ok()) return status;
      if (context->IsCancelled()) return grpc::Status::CANCELLED;
      job_->changed_.wait_for(lock, kLook);
    }
    status = check();
    if (!status.ok()) return status;
    // One commit may have come twice.
    if (is_open()) job_->Publish(request);
    if (seed) {
      outcome->set_epoch(job_->versions_[0].made);
      outcome->set_kind(v1::RoundOutcome::SEEDED);
      return grpc::Status::OK;
    }
    job_->FillOutcome(request->round(), request->session(), request->attempt(),
                      outcome);
    return grpc::Status::OK;
  }

  grpc::Status WaitRound(grpc::ServerContext* context,
                         const v1::WaitRequest* request,
                         v1::RoundOutcome* outcome) override {
    std::unique_lock<std::mutex> lock(job_->mutex_);
    while (true) {
      const grpc::Status status = job_->CheckCall(request->epoch());
      if (!status.ok()) return status;
      if (request->round() + 1 < job_->versions_.size() ||
          request->round() + 1 == job_->versions_.size()) {
        break;
      }
      if (context->IsCancelled()) return grpc::Status::CANCELLED;
      job_->changed_.wait_for(lock, kLook);
    }
    job_->FillOutcome(request->round(), request->session(), request->attempt(),
                      outcome);
    return grpc::Status::OK;
  }

  grpc::Status Leave(grpc::ServerContext*, const v1::LeaveRequest*,
                     v1::LeaveReply*) override {
    return grpc::Status::OK;
  }

 private:
  EpochJob* const job_;
};

}  // namespace agg

#endif  // AGG_TESTS_WORKER_CLIENT_EPOCH_JOB_SERVICES_H_
