// trip_worker: one worker whose rounds go in one trip (proto/README.md, P41),
// with nothing around the wire: what a server makes of such rounds, without a
// client's own costs. It speaks as transport_worker does.
//
//   trip_worker --coordinator=ADDRESS --rank=R --workers=P --barrier=FILE
//               [--elements=N] [--tensors=N]
//
// Of a pipelined job (P43) commit and pull come with the first frame instead of
// the last one. "pushed" is when the first answer came. The gradient is the
// same in each round, so that its checksums are made once; payloads are not
// checked.
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/sync_stream.h>

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "proto/agg.grpc.pb.h"
#include "proto/byte_buffer_frame.h"
#include "proto/crc32c.h"
#include "proto/manifest_message.h"
#include "proto/protocol_version.h"
#include "proto/shard_plan.h"
#include "tests/bench/process_barrier.h"

ABSL_FLAG(std::string, coordinator, "127.0.0.1:50051", "address of shard 0");
ABSL_FLAG(int, rank, 0, "this worker's rank");
ABSL_FLAG(int, workers, 1, "how many meet at the barrier");
ABSL_FLAG(std::string, barrier, "", "file of zeros that the workers share");
ABSL_FLAG(int64_t, elements, 1000, "float32 parameters");
ABSL_FLAG(int, tensors, 2, "tensors that they are cut into");

namespace agg {
namespace {

using PushCall = grpc::ClientReaderWriter<v1::PushFrame, v1::PushAck>;

int64_t Nanoseconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{1000000000} * now.tv_sec + now.tv_nsec;
}

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

void Must(const grpc::Status& status) {
  if (!status.ok()) Fail(status.error_message());
}

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

// A shard as the worker sees it: its part of a row, in full frames.
struct Part {
  std::unique_ptr<v1::Shard::Stub> stub;
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<PushCall> push;
  std::vector<v1::PushFrame> frames;
  v1::PushAck ack;
};

class Worker {
 public:
  Worker()
      : channel_(ChannelTo(absl::GetFlag(FLAGS_coordinator))),
        stub_(v1::Coordinator::NewStub(channel_)) {}

  void Join() {
    const int64_t n = absl::GetFlag(FLAGS_elements);
    const int64_t num_tensors = absl::GetFlag(FLAGS_tensors);
    Manifest manifest;
    for (int64_t t = 0; t < num_tensors; ++t) {
      const int64_t size = n * (t + 1) / num_tensors - n * t / num_tensors;
      manifest.tensors.push_back({std::to_string(t), {size}, "", false});
    }
    v1::JoinRequest request;
    request.set_protocol_version(kProtocolVersion);
    request.set_rank(absl::GetFlag(FLAGS_rank));
    *request.mutable_manifest() = ToProto(manifest);
    grpc::Status status;
    do {  // until the shards are attached
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      status = stub_->Join(&context, request, &job_);
    } while (status.error_code() == grpc::StatusCode::UNAVAILABLE);
    Must(status);
    const auto plan = MakeShardPlan(manifest, job_.shards_size());
    for (int shard = 0; shard < job_.shards_size(); ++shard) {
      parts_.push_back(MakePart(*plan, shard));
    }
  }

  // Holds the lease; then the seed, or what another one has seeded.
  void Begin() {
    attend_ = stub_->Attend(&attend_context_);
    v1::LeaseRenewal renewal;
    renewal.set_epoch(job_.epoch());
    renewal.set_session(job_.session());
    attend_->Write(renewal);
    if (job_.seed_role()) {
      Push(v1::SEED, 0);
      for (Part& part : parts_) part.push->Read(&part.ack);
      v1::CommitRequest commit = CommitOf(0);
      commit.set_kind(v1::SEED);
      grpc::ClientContext context;
      v1::RoundOutcome outcome;
      Must(stub_->Commit(&context, commit, &outcome));
    } else {
      for (const Part& part : parts_) Pull(part);
    }
  }

  // Pushes, commits and pulls in one trip to each shard; when the first answer
  // came. What is more than a frame is written while answers are read.
  int64_t Round(uint64_t round) {
    std::thread pushing;
    if (parts_[0].frames.size() == 1) {
      Push(v1::GRADIENT, round);
    } else {
      pushing = std::thread([this, round] { Push(v1::GRADIENT, round); });
    }
    int64_t pushed = 0;
    for (Part& part : parts_) {
      bool last = false;
      bool outcome = &part != &parts_[0];
      while (!last || !outcome) {
        if (!part.push->Read(&part.ack)) Must(part.push->Finish());
        if (pushed == 0) pushed = Nanoseconds();
        last |= part.ack.last();
        outcome |= part.ack.has_outcome();
        if (part.ack.has_outcome() && !part.ack.outcome().included()) {
          Fail(part.ack.outcome().message());
        }
      }
    }
    if (pushing.joinable()) pushing.join();
    return pushed;
  }

  void Leave() {
    v1::LeaveRequest request;
    request.set_epoch(job_.epoch());
    request.set_session(job_.session());
    grpc::ClientContext context;
    v1::LeaveReply reply;
    Must(stub_->Leave(&context, request, &reply));
    attend_context_.TryCancel();
    for (Part& part : parts_) part.context->TryCancel();
  }

 private:
  Part MakePart(const ShardPlan& plan, int shard) {
    Part part;
    part.stub = v1::Shard::NewStub(shard == 0 ? channel_
                                              : ChannelTo(job_.shards(shard)));
    part.context = std::make_unique<grpc::ClientContext>();
    part.push = part.stub->Push(part.context.get());
    for (const int32_t slice : plan.slices_of_shard[shard]) {
      std::vector<float> values(
          static_cast<size_t>(plan.slices[slice].num_elements));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] =
            static_cast<float>((i * 7 + absl::GetFlag(FLAGS_rank) * 31) % 97) /
                97 -
            0.5f;
      }
      const std::string bytes(reinterpret_cast<const char*>(values.data()),
                              values.size() * sizeof(float));
      if (part.frames.empty() ||
          part.frames.back().payload().size() + bytes.size() >
              static_cast<size_t>(kMaxFramePayloadBytes)) {
        part.frames.emplace_back();
      }
      v1::PushFrame& frame = part.frames.back();
      frame.mutable_meta()->set_epoch(job_.epoch());
      frame.mutable_meta()->set_session(job_.session());
      frame.mutable_meta()->set_dtype(v1::F32);
      frame.mutable_meta()->add_slices(static_cast<uint32_t>(slice));
      frame.mutable_meta()->add_crc32c(Crc32c(bytes));
      *frame.mutable_payload() += bytes;
    }
    return part;
  }

  v1::CommitRequest CommitOf(uint64_t round) const {
    v1::CommitRequest commit;
    commit.set_epoch(job_.epoch());
    commit.set_session(job_.session());
    commit.set_round(round);
    return commit;
  }

  void Push(v1::PushKind kind, uint64_t round) {
    for (Part& part : parts_) {
      for (v1::PushFrame& frame : part.frames) {
        frame.mutable_meta()->set_kind(kind);
        frame.mutable_meta()->set_round(round);
        if (kind == v1::GRADIENT) AddRequests(&part, &frame, round);
        if (!part.push->Write(frame)) Fail("a stream has ended");
      }
    }
  }

  void AddRequests(Part* part, v1::PushFrame* frame, uint64_t round) const {
    const bool first_shard = part == &parts_[0];
    frame->mutable_meta()->set_report(!first_shard);
    if (frame !=
        &(job_.pipelined() ? part->frames.front() : part->frames.back())) {
      return;
    }
    if (first_shard) *frame->mutable_commit() = CommitOf(round);
    frame->mutable_pull()->set_version(round + 1);
    frame->mutable_pull()->set_dtype(v1::F32);
  }

  void Pull(const Part& part) {
    v1::PullRequest request;
    request.set_dtype(v1::F32);
    grpc::ClientContext context;
    const auto call = part.stub->Pull(&context, request);
    v1::PullFrame frame;
    while (call->Read(&frame)) {
    }
    Must(call->Finish());
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Coordinator::Stub> stub_;
  v1::JoinReply job_;
  grpc::ClientContext attend_context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::LeaseRenewal, v1::JobEvent>>
      attend_;
  std::vector<Part> parts_;
};

int Run() {
  const auto barrier = MapBarrier(absl::GetFlag(FLAGS_barrier));
  if (!barrier.ok()) Fail(std::string(barrier.status().message()));
  Worker worker;
  worker.Join();
  worker.Begin();
  std::puts("{\"ready\": true}");
  std::fflush(stdout);
  uint64_t round = 0;
  int num_rounds = 0;
  while (std::cin >> num_rounds) {
    for (int i = 0; i < num_rounds; ++i, ++round) {
      WaitAtBarrier(*barrier, absl::GetFlag(FLAGS_workers));
      const int64_t begin = Nanoseconds();
      const int64_t pushed = worker.Round(round);
      const int64_t end = Nanoseconds();
      std::printf("{\"begin\": %lld, \"end\": %lld, \"pushed\": %lld}\n",
                  static_cast<long long>(begin), static_cast<long long>(end),
                  static_cast<long long>(pushed));
      std::fflush(stdout);
    }
  }
  worker.Leave();
  return 0;
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return agg::Run();
}
