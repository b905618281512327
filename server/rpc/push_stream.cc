#include "server/rpc/push_stream.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/byte_buffer_frame.h"

namespace agg {
namespace {

grpc::ByteBuffer AckOf(const FrameHeader& header, const FrameResult& result) {
  v1::PushAck ack;
  ack.set_epoch(header.epoch);
  ack.set_round(header.round);
  ack.set_kind(static_cast<v1::PushKind>(header.kind));
  ack.set_closed(result.closed);
  const std::string bytes = ack.SerializeAsString();
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// Copies or skips the payload as the landing says.
void LandPayload(FrameReader* reader, FrameLanding* landing) {
  for (SliceLanding& slice : landing->slices) {
    // BeginFrame has compared the sums; never read beyond the frame.
    if (slice.num_bytes > reader->remaining_bytes()) return;
    if (slice.destination == nullptr) {
      reader->Skip(slice.num_bytes);
    } else {
      slice.landed =
          reader->Read(slice.destination, slice.num_bytes) == slice.crc32c;
    }
  }
}

}  // namespace

absl::StatusOr<FrameHeader> FrameHeaderOf(const v1::FrameMeta& meta,
                                          int64_t payload_bytes) {
  if (meta.kind() != v1::GRADIENT && meta.kind() != v1::SEED) {
    return absl::InvalidArgumentError(absl::StrCat(
        "meta.kind: ", meta.kind(), "; allowed: GRADIENT (0), SEED (1)"));
  }
  if (meta.dtype() < v1::F32 || meta.dtype() > v1::F16) {
    return absl::InvalidArgumentError(absl::StrCat(
        "meta.dtype: ", meta.dtype(), "; allowed: F32 (1), BF16 (2), F16 (3)"));
  }
  FrameHeader header;
  header.epoch = meta.epoch();
  header.session = meta.session();
  header.round = meta.round();
  header.kind = static_cast<PushKind>(meta.kind());
  header.dtype = static_cast<DType>(meta.dtype());
  header.slices.assign(meta.slices().begin(), meta.slices().end());
  header.crc32c.assign(meta.crc32c().begin(), meta.crc32c().end());
  header.absent_slices.assign(meta.absent_slices().begin(),
                              meta.absent_slices().end());
  header.payload_bytes = payload_bytes;
  return header;
}

PushStream* PushStream::Start(ShardEngine* engine, OpenStreams* open) {
  std::shared_ptr<PushStream> stream(new PushStream(engine, open));
  stream->Own();
  stream->StartRead(&stream->frame_);
  return stream.get();
}

void PushStream::OnReadDone(bool ok) {
  if (!ok) {
    End(absl::OkStatus());
    return;
  }
  const absl::Status status = HandleFrame();
  frame_.Clear();
  if (!status.ok()) {
    End(status);
  } else if (!ended()) {
    StartRead(&frame_);
  }
}

absl::Status PushStream::HandleFrame() {
  FrameReader reader;
  absl::Status status = reader.Init(frame_);
  if (!status.ok()) return status;
  absl::StatusOr<FrameHeader> header =
      FrameHeaderOf(reader.meta(), reader.remaining_bytes());
  if (!header.ok()) return header.status();
  absl::StatusOr<FrameLanding> landing =
      engine_->BeginFrame(*std::move(header));
  if (!landing.ok()) return landing.status();
  LandPayload(&reader, &*landing);
  const absl::StatusOr<FrameResult> result = engine_->EndFrame(*landing);
  if (!result.ok()) return result.status();
  if (result->acknowledge) Send(AckOf(landing->header, *result));
  return absl::OkStatus();
}

}  // namespace agg
