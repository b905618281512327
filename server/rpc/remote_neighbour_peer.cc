// Frames are raw bytes, as those of Push: the generated stub would copy a
// payload once more.
#include "server/rpc/remote_neighbour_peer.h"

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/control.pb.h"
#include "proto/status_conversion.h"
#include "server/base/status_macros.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/rpc/shard_link.h"

namespace agg {

// One operation at a time on a queue of the call's own: the thread that waits
// for it looks at the clock in between.

namespace {

// Between two looks at the clock.
constexpr absl::Duration kPause = absl::Milliseconds(100);

}  // namespace

WatchedCall::WatchedCall(grpc::GenericStub* stub, const std::string& method,
                         const Clock* clock, absl::Duration stall)
    : clock_(clock), stall_(stall) {
  // The other side may just have been started again.
  context_.set_wait_for_ready(true);
  stream_ = stub->PrepareCall(&context_, method, &queue_);
  pending_ = true;
  stream_->StartCall(this);
}

WatchedCall::~WatchedCall() {
  if (!finished_) {
    Cancel();
    // gRPC wants a stream read to its end before Finish.
    grpc::ByteBuffer rest;
    while (Read(&rest)) {
    }
    Finish();
  }
  queue_.Shutdown();
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
  }
}

bool WatchedCall::Await() {
  if (!pending_) return true;
  const absl::Time since = clock_->Now();
  const absl::Duration limit =
      connected_ ? stall_ : std::min(stall_, kResumeTime);
  void* tag;
  bool ok = false;
  while (
      queue_.AsyncNext(&tag, &ok, absl::ToChronoTime(absl::Now() + kPause)) ==
      grpc::CompletionQueue::TIMEOUT) {
    if (stalled_for_ == absl::ZeroDuration() &&
        clock_->Now() - since >= limit) {
      stalled_for_ = limit;
      Cancel();  // ends the operation
    }
  }
  pending_ = false;
  connected_ |= ok;
  return ok;
}

bool WatchedCall::Write(const grpc::ByteBuffer& message) {
  if (!Await()) return false;
  pending_ = true;
  stream_->Write(message, this);
  return true;
}

bool WatchedCall::WritesDone() {
  if (!Await()) return false;
  pending_ = true;
  stream_->WritesDone(this);
  return Await();
}

bool WatchedCall::Read(grpc::ByteBuffer* message) {
  if (!Await()) return false;
  pending_ = true;
  stream_->Read(message, this);
  return Await();
}

grpc::Status WatchedCall::Finish() {
  Await();
  grpc::Status status;
  pending_ = true;
  stream_->Finish(&status, this);
  Await();
  finished_ = true;
  return status;
}

bool WatchedCall::answered() const { return IsAnswered(context_); }

namespace {

constexpr char kReplicate[] = "/agg.v1.ShardControl/Replicate";
constexpr char kFetch[] = "/agg.v1.ShardControl/Fetch";

bool IsSame(const CopyHeader& a, const CopyHeader& b) {
  return a.epoch == b.epoch && a.part == b.part && a.id == b.id;
}

}  // namespace

RemoteNeighbourPeer::RemoteNeighbourPeer(const RemoteNeighbourOptions& options)
    : options_(options) {
  SetAddress(options.address);
}

RemoteNeighbourPeer::~RemoteNeighbourPeer() = default;

void RemoteNeighbourPeer::SetAddress(const std::string& address) {
  MutexLock lock(&address_mutex_);
  if (stub_ != nullptr && address == address_) return;
  address_ = address;
  stub_ = std::make_shared<grpc::GenericStub>(
      MakePeerChannel(address, options_.tls, options_.token));
}

std::string RemoteNeighbourPeer::name() const {
  MutexLock lock(&address_mutex_);
  return absl::StrCat("shard ", options_.ordinal, " (", address_, ")");
}

std::unique_ptr<WatchedCall> RemoteNeighbourPeer::NewCall(const char* method) {
  std::shared_ptr<grpc::GenericStub> stub;
  {
    MutexLock lock(&address_mutex_);
    stub = stub_;
  }
  return std::make_unique<WatchedCall>(stub.get(), method, options_.clock,
                                       options_.stall_timeout);
}

absl::Status RemoteNeighbourPeer::End(WatchedCall* call) const {
  const grpc::Status answer = call->Finish();
  if (answer.ok()) return absl::OkStatus();
  if (call->answered()) {
    return NamedAnswer(name(), absl::StrCat("shard ", options_.self),
                       FromGrpcStatus(answer));
  }
  const absl::Duration stalled = call->stalled_for();
  return absl::UnavailableError(absl::StrCat(
      "the link from shard ", options_.self, " to ", name(), " is broken: ",
      stalled > absl::ZeroDuration()
          ? absl::StrCat("no progress for ", absl::FormatDuration(stalled))
          : answer.error_message()));
}

// --- The combined gradient ---------------------------------------------------

void RemoteNeighbourPeer::BeginRound(const CopyHeader& header) {
  if (round_ != nullptr && IsSame(round_->header, header)) return;
  round_ = nullptr;  // cancels the former round's call
  round_ = std::make_unique<Replication>(header);
  round_->call = NewCall(kReplicate);
}

absl::Status RemoteNeighbourPeer::SendFrame(bool last) {
  if (round_->call->Write(round_->frames.Take(last))) return absl::OkStatus();
  absl::Status status = End(round_->call.get());
  round_ = nullptr;
  if (!status.ok()) return status;
  return absl::InternalError(
      absl::StrCat(name(), " has ended a round before its last slice"));
}

absl::Status RemoteNeighbourPeer::SendCombined(const CopyHeader& header,
                                               const CopySlice& slice) {
  MutexLock lock(&send_mutex_);
  BeginRound(header);
  if (!round_->frames.Fits(slice)) {
    AGG_RETURN_IF_ERROR(SendFrame(/*last=*/false));
  }
  round_->frames.Add(slice);
  return absl::OkStatus();
}

absl::Status RemoteNeighbourPeer::FinishCombined(const CopyHeader& header) {
  MutexLock lock(&send_mutex_);
  BeginRound(header);
  AGG_RETURN_IF_ERROR(SendFrame(/*last=*/true));
  const std::unique_ptr<Replication> round = std::move(round_);
  grpc::ByteBuffer reply;
  round->call->WritesDone();
  round->call->Read(&reply);
  return End(round->call.get());
}

// --- Fetch -------------------------------------------------------------------

absl::Status RemoteNeighbourPeer::Fetch(const CopyHeader& header,
                                        const CopySink& sink) {
  v1::FetchRequest request;
  request.set_epoch(header.epoch);
  request.set_part(static_cast<uint32_t>(header.part));
  request.set_made(header.id.made);
  request.set_version(header.id.version);
  const std::unique_ptr<WatchedCall> call = NewCall(kFetch);
  if (call->Write(Serialize(request)) && call->WritesDone()) {
    return ReadAll(header, sink, call.get());
  }
  return End(call.get());
}

absl::Status RemoteNeighbourPeer::ReadAll(const CopyHeader& header,
                                          const CopySink& sink,
                                          WatchedCall* call) {
  std::string record;
  grpc::ByteBuffer buffer;
  v1::CopyFrame frame;
  for (bool first = true; call->Read(&buffer); first = false) {
    absl::Status status = ParseCopyFrame(&buffer, &frame);
    CopyHeader theirs = header;
    if (first && status.ok()) status = ReadHeader(frame, &theirs);
    if (status.ok() && !IsSame(theirs, header)) {
      status = absl::InternalError("it sends another copy than was asked for");
    }
    if (status.ok()) status = ForEachSlice(frame, sink.slice);
    record += frame.record();
    if (status.ok() &&
        static_cast<int64_t>(record.size()) > kMaxJobRecordBytes) {
      status = absl::ResourceExhaustedError(absl::StrCat(
          "the record has more than ", kMaxJobRecordBytes, " bytes"));
    }
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat(name(), ": ", status.message()));
    }
  }
  // All frames are there only if the call ends well.
  absl::Status status = End(call);
  if (status.ok() && header.part == 0) status = sink.record(std::move(record));
  return status;
}

}  // namespace agg
