// A frame is landed on gRPC's thread that read it: a copy and a checksum, then
// the acknowledgement, the report or the commit, and the pull.
#include "server/rpc/push_stream.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/byte_buffer_frame.h"
#include "proto/crc32c.h"
#include "server/base/status_macros.h"
#include "server/coordinator/outcome_waiters.h"
#include "server/ingest/frame.h"
#include "server/round/shard_peer.h"
#include "server/rpc/job_conversion.h"
#include "server/rpc/long_poll.h"
#include "server/rpc/stream_pulls.h"

namespace agg {
namespace {

grpc::ByteBuffer Serialize(const v1::PushAck& ack) {
  const std::string bytes = ack.SerializeAsString();
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// Copies a slice's bytes, of int8 in two pieces, and returns their CRC32C.
uint32_t Land(const SliceLanding& slice, FrameReader* reader) {
  const uint32_t of_scales =
      reader->ReadOn(slice.scale_destination, slice.scale_bytes, kCrc32cInit);
  return FinishCrc32c(reader->ReadOn(
      slice.destination, slice.num_bytes - slice.scale_bytes, of_scales));
}

// Copies or skips each slice's bytes, as the landing says.
void LandPayload(FrameReader* reader, FrameLanding* landing) {
  for (SliceLanding& slice : landing->slices) {
    if (landing->header.in_place) {
      slice.landed = true;  // its worker has written it
      continue;
    }
    // The engine has compared the sums; never read beyond the frame.
    if (slice.num_bytes > reader->remaining_bytes()) return;
    if (slice.destination == nullptr) {
      reader->Skip(slice.num_bytes);
    } else {
      slice.landed = Land(slice, reader) == slice.crc32c;
    }
  }
}

}  // namespace

PushStream* PushStream::Start(grpc::CallbackServerContext* context,
                              const Caller& caller,
                              const PushTargets* targets) {
  std::shared_ptr<PushStream> stream(new PushStream(caller, targets));
  const std::weak_ptr<BidiStream> weak = stream;
  StreamPulls::Stream ends;
  ends.wake = [weak] {
    if (auto stream = weak.lock()) stream->Wake();
  };
  // End alone is not enough if the client has stopped reading (pull_stream.cc).
  ends.end = [weak, canceller = std::make_shared<CallCanceller>(context)](
                 const absl::Status& reason) {
    if (auto stream = weak.lock()) stream->End(reason);
    if (absl::IsAborted(reason)) canceller->Cancel(reason);
  };
  // It may be called later than the stream lives.
  ends.overtaken = [weak, engine = targets->engine,
                    overtaken = targets->overtaken,
                    peer = context->peer()](uint64_t version, bool cut) {
    engine->CountOvertakenPull();
    if (overtaken == nullptr) return;
    const auto stream = weak.lock();
    const std::string who = stream == nullptr
                                ? "a Push stream"
                                : static_cast<PushStream*>(stream.get())->who();
    overtaken->Note({who, peer, version, cut});
  };
  stream->pulls_ = std::make_shared<StreamPulls>(
      targets->engine, targets->cache, std::move(ends));
  stream->Own();
  stream->StartRead(&stream->frame_);
  return stream.get();
}

void PushStream::OnReadDone(bool ok) {
  if (!ok) return End(absl::OkStatus());
  const absl::Status status = TakeFrame();
  frame_.Clear();  // at once: its memory is the transport's window
  if (!status.ok()) return End(status);
  if (!ended()) StartRead(&frame_);
}

std::string PushStream::who() const {
  return absl::StrCat("rank ", rank_.load(), " (session ", row_session_.load(),
                      ")");
}

absl::Status PushStream::CheckSession(const FrameHeader& header) {
  if (!caller_.known ||
      (header.session == session_ && header.epoch == epoch_)) {
    return absl::OkStatus();
  }
  AGG_RETURN_IF_ERROR(targets_->gate->CheckSession(
      caller_, targets_->engine->OwnerOf(header.epoch, header.session),
      kPushMethod, header.session));
  epoch_ = header.epoch;
  session_ = header.session;
  return absl::OkStatus();
}

absl::Status PushStream::TakeFrame() {
  FrameReader frame;
  AGG_RETURN_IF_ERROR(frame.Init(frame_));
  AGG_RETURN_IF_ERROR(CheckRequests(frame));
  absl::StatusOr<FrameHeader> header =
      FromProto(frame.meta(), frame.remaining_bytes());
  if (!header.ok()) return header.status();
  absl::Status status = CheckSession(*header);
  if (!status.ok()) return status;
  AGG_ASSIGN_OR_RETURN(FrameLanding landing,
                       targets_->engine->BeginFrame(*std::move(header)));
  rank_ = landing.rank;
  row_session_ = landing.header.session;
  LandPayload(&frame, &landing);
  AGG_ASSIGN_OR_RETURN(const FrameResult result,
                       targets_->engine->EndFrame(landing));
  Acknowledge(frame, landing, result);
  // Shard 0 tells its coordinator itself.
  if (result.waves > 0 && targets_->coordinator == nullptr) {
    const FrameHeader& header = landing.header;
    targets_->reports->Add(
        header.epoch, landing.rank,
        {header.session, header.round, header.attempt, result.waves});
  }
  if (frame.commit().has_value()) status = Commit(frame);
  if (status.ok() && frame.pull().has_value()) {
    const absl::StatusOr<PullQuery> query = QueryOf(*frame.pull());
    status = query.ok() ? pulls_->Ask(*query) : query.status();
  }
  return status;
}

void PushStream::Acknowledge(const FrameReader& frame,
                             const FrameLanding& landing,
                             const FrameResult& result) {
  if (!result.acknowledge) return;
  const bool is_coordinator = targets_->coordinator != nullptr;
  const bool reports =
      frame.meta().report() && (!is_coordinator || result.waves > 0);
  if (result.closed || (!reports && !frame.commit().has_value())) {
    Send(Serialize(MakePushAck(landing.header, result)));
  } else if (reports && result.waves == 0) {
    const FrameHeader& header = landing.header;
    targets_->reports->Add(header.epoch, landing.rank,
                           {header.session, header.round, header.attempt},
                           result.more);
    return;
  }
  // Others' reports may wait for this row.
  if (result.round_complete) {
    targets_->reports->Flush(landing.header.epoch, landing.header.round);
  }
}

absl::Status PushStream::Commit(const FrameReader& frame) {
  Coordinator* const coordinator = targets_->coordinator;
  if (coordinator == nullptr) return targets_->not_the_coordinator;
  AGG_ASSIGN_OR_RETURN(CommitCall call, FromProto(*frame.commit()));
  call.with_frame = true;
  v1::PushAck ack = MakeOutcomeAck(*frame.commit());
  const std::weak_ptr<BidiStream> weak = weak_from_this();
  const uint64_t number = coordinator->Commit(
      std::move(call), [weak, ack](const absl::StatusOr<RoundResult>& outcome) {
        const auto stream = weak.lock();
        if (stream == nullptr) return;
        if (!outcome.ok()) return stream->End(outcome.status());
        v1::PushAck answer = ack;
        *answer.mutable_outcome() = ToProto(*outcome);
        stream->Send(Serialize(answer));
      });
  if (number == 0) return absl::OkStatus();
  if (waits_.size() == OutcomeWaiters::kMaxPerSession) waits_.pop_front();
  waits_.push_back(number);
  return absl::OkStatus();
}

std::optional<grpc::ByteBuffer> PushStream::MakeMessage() {
  return pulls_->Next();
}

// What was committed stands, as with a Commit whose caller has gone.
void PushStream::OnEnded() {
  for (const uint64_t number : waits_) {
    targets_->coordinator->CancelWait(number);
  }
}

}  // namespace agg
