// A frame is landed on gRPC's thread that read it: a copy and a checksum,
// then the acknowledgement.
#include "server/rpc/push_stream.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/byte_buffer_frame.h"
#include "server/ingest/frame.h"
#include "server/rpc/frame_conversion.h"

namespace agg {
namespace {

grpc::ByteBuffer Serialize(const v1::PushAck& ack) {
  const std::string bytes = ack.SerializeAsString();
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// Copies or skips each slice's bytes, as the landing says.
void LandPayload(FrameReader* reader, FrameLanding* landing) {
  for (SliceLanding& slice : landing->slices) {
    // The engine has compared the sums; never read beyond the frame.
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

PushStream* PushStream::Start(ShardEngine* engine, OpenStreams* open) {
  std::shared_ptr<PushStream> stream(new PushStream(engine, open));
  stream->Own();
  stream->StartRead(&stream->frame_);
  return stream.get();
}

void PushStream::OnReadDone(bool ok) {
  if (!ok) return End(absl::OkStatus());
  const absl::Status status = LandFrame();
  frame_.Clear();  // at once: its memory is the transport's window
  if (!status.ok()) return End(status);
  if (!ended()) StartRead(&frame_);
}

absl::Status PushStream::LandFrame() {
  FrameReader reader;
  const absl::Status status = reader.Init(frame_);
  if (!status.ok()) return status;
  absl::StatusOr<FrameHeader> header =
      FromProto(reader.meta(), reader.remaining_bytes());
  if (!header.ok()) return header.status();
  absl::StatusOr<FrameLanding> landing =
      engine_->BeginFrame(*std::move(header));
  if (!landing.ok()) return landing.status();
  LandPayload(&reader, &*landing);
  const absl::StatusOr<FrameResult> result = engine_->EndFrame(*landing);
  if (!result.ok()) return result.status();
  if (result->acknowledge) {
    Send(Serialize(MakePushAck(landing->header, *result)));
  }
  return absl::OkStatus();
}

}  // namespace agg
