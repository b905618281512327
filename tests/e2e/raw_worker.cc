// Blocking calls and streams of the generated stubs.
#include "tests/e2e/raw_worker.h"

#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/byte_buffer_frame.h"
#include "proto/crc32c.h"
#include "proto/manifest_message.h"
#include "proto/protocol_version.h"

namespace agg {
namespace {

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

void SetDeadline(grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::minutes(1));
}

void Must(const grpc::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.error_message().c_str());
  std::abort();
}

}  // namespace

RawWorker::RawWorker(const std::string& coordinator, int rank,
                     const Manifest& manifest)
    : coordinator_(v1::Coordinator::NewStub(ChannelTo(coordinator))) {
  v1::JoinRequest request;
  request.set_protocol_version(kProtocolVersion);
  request.set_rank(rank);
  *request.mutable_manifest() = ToProto(manifest);
  grpc::Status status;
  const absl::Time until = absl::Now() + absl::Minutes(1);
  do {  // until the shards are attached
    grpc::ClientContext context;
    SetDeadline(&context);
    context.set_wait_for_ready(true);
    status = coordinator_->Join(&context, request, &job_);
    // On a busy machine the server may still count Joins that it has answered,
    // until their bytes in flight are too many.
  } while ((status.error_code() == grpc::StatusCode::UNAVAILABLE ||
            status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) &&
           absl::Now() < until);
  Must(status);
  plan_ = *MakeShardPlan(manifest, num_shards());
  for (const std::string& address : job_.shards()) {
    shards_.push_back(v1::Shard::NewStub(ChannelTo(address)));
  }
  streams_.resize(shards_.size());
  if (job_.seed_role()) Seed();
}

RawWorker::~RawWorker() {
  for (const auto& stream : streams_) {
    if (stream == nullptr) continue;
    stream->context.TryCancel();
    v1::PushAck ack;
    while (stream->call->Read(&ack)) {
    }
    stream->call->Finish();
  }
}

void RawWorker::Seed() {
  for (int shard = 0; shard < num_shards(); ++shard) {
    for (const v1::PushFrame& frame : SplitBySlice(Row(shard, v1::SEED))) {
      Send(shard, frame);
    }
    Receive(shard);
  }
  v1::CommitRequest commit;
  commit.set_epoch(job_.epoch());
  commit.set_session(job_.session());
  commit.set_kind(v1::SEED);
  grpc::ClientContext context;
  SetDeadline(&context);
  Must(coordinator_->Commit(&context, commit, &last_outcome_));
}

v1::PushFrame RawWorker::Row(int shard, v1::PushKind kind) const {
  v1::PushFrame frame;
  v1::FrameMeta* meta = frame.mutable_meta();
  meta->set_epoch(job_.epoch());
  meta->set_session(job_.session());
  meta->set_kind(kind);
  meta->set_dtype(v1::F32);
  for (const int32_t index : plan_.slices_of_shard[shard]) {
    const std::vector<float> values(
        static_cast<size_t>(plan_.slices[index].num_elements), 1.0f);
    const std::string bytes(reinterpret_cast<const char*>(values.data()),
                            values.size() * sizeof(float));
    meta->add_slices(static_cast<uint32_t>(index));
    meta->add_crc32c(Crc32c(bytes));
    *frame.mutable_payload() += bytes;
  }
  return frame;
}

v1::PushFrame RawWorker::Frame(int shard, uint64_t round,
                               uint32_t attempt) const {
  v1::PushFrame frame = Row(shard, v1::GRADIENT);
  frame.mutable_meta()->set_round(round);
  frame.mutable_meta()->set_attempt(attempt);
  frame.mutable_meta()->set_report(shard != 0);
  if (shard == 0) {
    v1::CommitRequest* commit = frame.mutable_commit();
    commit->set_epoch(job_.epoch());
    commit->set_session(job_.session());
    commit->set_round(round);
    commit->set_attempt(attempt);
  }
  frame.mutable_pull()->set_version(round + 1);
  frame.mutable_pull()->set_dtype(v1::F32);
  return frame;
}

std::vector<v1::PushFrame> RawWorker::SplitBySlice(
    const v1::PushFrame& row) const {
  std::vector<v1::PushFrame> frames;
  size_t begin = 0;
  for (int i = 0; i < row.meta().slices_size(); ++i) {
    const uint32_t slice = row.meta().slices(i);
    v1::PushFrame frame;
    *frame.mutable_meta() = row.meta();
    frame.mutable_meta()->clear_slices();
    frame.mutable_meta()->clear_crc32c();
    frame.mutable_meta()->add_slices(slice);
    frame.mutable_meta()->add_crc32c(row.meta().crc32c(i));
    const size_t bytes =
        static_cast<size_t>(plan_.slices[slice].num_elements) * sizeof(float);
    frame.set_payload(row.payload().substr(begin, bytes));
    begin += bytes;
    if (i == 0 && row.has_commit()) *frame.mutable_commit() = row.commit();
    if (i == 0 && row.has_pull()) *frame.mutable_pull() = row.pull();
    frames.push_back(std::move(frame));
  }
  return frames;
}

void RawWorker::Send(int shard, const v1::PushFrame& frame) {
  std::unique_ptr<Stream>& stream = streams_[shard];
  if (stream == nullptr) {
    stream = std::make_unique<Stream>();
    SetDeadline(&stream->context);
    stream->call = shards_[shard]->Push(&stream->context);
  }
  stream->call->Write(frame);  // what goes wrong is said at the end
}

v1::PushAck RawWorker::Receive(int shard) {
  v1::PushAck ack;
  if (!streams_[shard]->call->Read(&ack)) {
    Must(streams_[shard]->call->Finish());
    std::abort();
  }
  if (ack.has_outcome()) last_outcome_ = ack.outcome();
  return ack;
}

std::vector<std::string> RawWorker::ReceiveAll(int shard, size_t count) {
  std::vector<std::string> all;
  while (all.size() < count) {
    const v1::PushAck ack = Receive(shard);
    if (ack.has_outcome()) {
      all.push_back("outcome " + std::to_string(ack.round()) + "." +
                    std::to_string(ack.attempt()) +
                    (ack.outcome().included() ? " in" : " out"));
    } else if (ack.has_meta()) {
      if (ack.last()) {
        all.push_back("version " + std::to_string(ack.meta().round()));
      }
    } else {
      all.push_back((ack.closed() ? "closed " : "ack ") +
                    std::to_string(ack.round()) + "." +
                    std::to_string(ack.attempt()));
    }
  }
  return all;
}

grpc::Status RawWorker::End(int shard) {
  const std::unique_ptr<Stream> stream = std::move(streams_[shard]);
  v1::PushAck ack;
  while (stream->call->Read(&ack)) {
  }
  return stream->call->Finish();
}

v1::StatusReply RawWorker::Status() {
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::StatusReply reply;
  Must(coordinator_->GetStatus(&context, v1::StatusRequest(), &reply));
  return reply;
}

bool RawWorker::Committed(int rank) {
  const v1::StatusReply status = Status();
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.rank() == rank) return worker.committed();
  }
  return false;
}

void RawWorker::AwaitCommitted(int rank) {
  while (!Committed(rank)) std::this_thread::yield();
}

grpc::Status RawWorker::Leave() {
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::LeaveRequest request;
  request.set_epoch(job_.epoch());
  request.set_session(job_.session());
  v1::LeaveReply reply;
  return coordinator_->Leave(&context, request, &reply);
}

}  // namespace agg
