// A frame is valid protobuf, whose last field, the payload, is written by hand:
// its bytes are handed to gRPC where they lie.
#include "server/rpc/copy_frame.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "proto/byte_buffer_frame.h"
#include "proto/crc32c.h"
#include "proto/shard_plan.h"
#include "server/base/field_error.h"

namespace agg {
namespace {

// As in a pull: the names of the slices stay smaller than their bytes.
constexpr int kMaxSlicesPerFrame = 1024;
constexpr uint32_t kPayloadTag = (15 << 3) | 2;
constexpr size_t kMaxFetchRequestBytes = 1024;

absl::string_view Bytes(const CopySlice& slice) {
  return absl::string_view(reinterpret_cast<const char*>(slice.values.data()),
                           slice.values.size() * sizeof(float));
}

v1::CopyFrame::Array ToProto(CopyArray array) {
  switch (array) {
    case CopyArray::kCombined:
      return v1::CopyFrame::COMBINED;
    case CopyArray::kParameters:
      return v1::CopyFrame::PARAMETERS;
    case CopyArray::kState0:
      return v1::CopyFrame::STATE0;
    case CopyArray::kState1:
      return v1::CopyFrame::STATE1;
  }
  return v1::CopyFrame::COMBINED;
}

absl::Status ReadArray(v1::CopyFrame::Array array, CopyArray* out) {
  switch (array) {
    case v1::CopyFrame::COMBINED:
      *out = CopyArray::kCombined;
      return absl::OkStatus();
    case v1::CopyFrame::PARAMETERS:
      *out = CopyArray::kParameters;
      return absl::OkStatus();
    case v1::CopyFrame::STATE0:
      *out = CopyArray::kState0;
      return absl::OkStatus();
    case v1::CopyFrame::STATE1:
      *out = CopyArray::kState1;
      return absl::OkStatus();
    default:
      break;
  }
  return FieldError("array", absl::StrCat(static_cast<int>(array)),
                    "COMBINED (0), PARAMETERS (1), STATE0 (2), STATE1 (3)");
}

// Each slice has its checksum and its size, and together they are the payload.
absl::Status CheckCounts(const v1::CopyFrame& frame) {
  const int count = frame.slices_size();
  if (frame.crc32c_size() != count || frame.elements_size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("a frame has ", count, " slices, ", frame.crc32c_size(),
                     " checksums and ", frame.elements_size(),
                     " sizes; allowed: as many of each"));
  }
  int64_t num_bytes = 0;
  for (const uint32_t elements : frame.elements()) {
    num_bytes += int64_t{elements} * static_cast<int64_t>(sizeof(float));
  }
  if (num_bytes == static_cast<int64_t>(frame.payload().size())) {
    return absl::OkStatus();
  }
  return FieldError("payload", absl::StrCat(frame.payload().size(), " bytes"),
                    absl::StrCat(num_bytes, " bytes, by its slices' sizes"));
}

}  // namespace

CopyFrameBuilder::CopyFrameBuilder(const CopyHeader& header) {
  meta_.set_epoch(header.epoch);
  meta_.set_part(static_cast<uint32_t>(header.part));
  meta_.set_made(header.id.made);
  meta_.set_version(header.id.version);
}

bool CopyFrameBuilder::empty() const {
  return meta_.slices_size() == 0 && meta_.record().empty();
}

bool CopyFrameBuilder::Fits(const CopySlice& slice) const {
  if (empty()) return true;
  return meta_.record().empty() && meta_.array() == ToProto(slice.array) &&
         meta_.slices_size() < kMaxSlicesPerFrame &&
         static_cast<int64_t>(payload_->size() + Bytes(slice).size()) <=
             kMaxFramePayloadBytes;
}

void CopyFrameBuilder::Add(const CopySlice& slice) {
  const absl::string_view bytes = Bytes(slice);
  if (payload_ == nullptr) payload_ = std::make_shared<std::string>();
  payload_->append(bytes.data(), bytes.size());
  meta_.set_array(ToProto(slice.array));
  meta_.add_slices(static_cast<uint32_t>(slice.slice));
  meta_.add_crc32c(Crc32c(bytes));
  meta_.add_elements(static_cast<uint32_t>(slice.values.size()));
}

void CopyFrameBuilder::SetRecord(absl::string_view piece) {
  meta_.set_record(piece.data(), piece.size());
}

grpc::ByteBuffer CopyFrameBuilder::Take(bool last) {
  meta_.set_last(last);
  std::string head = meta_.SerializeAsString();
  std::vector<grpc::Slice> slices;
  if (payload_ != nullptr) {
    google::protobuf::io::StringOutputStream stream(&head);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.WriteTag(kPayloadTag);
    coded.WriteVarint32(static_cast<uint32_t>(payload_->size()));
  }
  slices.emplace_back(head);
  if (payload_ != nullptr) slices.push_back(AliasSlice(*payload_, payload_));
  meta_.Clear();
  payload_ = nullptr;
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::Status ReadHeader(const v1::CopyFrame& frame, CopyHeader* header) {
  if (frame.part() > std::numeric_limits<int32_t>::max()) {
    return FieldError("part", absl::StrCat(frame.part()), "a shard's ordinal");
  }
  header->epoch = frame.epoch();
  header->part = static_cast<int32_t>(frame.part());
  header->id = {frame.made(), frame.version()};
  return absl::OkStatus();
}

absl::Status ForEachSlice(
    const v1::CopyFrame& frame,
    const std::function<absl::Status(const CopySlice&)>& sink) {
  CopySlice slice;
  absl::Status status = CheckCounts(frame);
  if (status.ok()) status = ReadArray(frame.array(), &slice.array);
  // A string's bytes are aligned as any memory is, and a slice has a multiple
  // of four.
  const char* bytes = frame.payload().data();
  for (int i = 0; status.ok() && i < frame.slices_size(); ++i) {
    const size_t num_elements = frame.elements(i);
    const size_t num_bytes = num_elements * sizeof(float);
    if (frame.slices(i) > std::numeric_limits<int32_t>::max()) {
      return FieldError("slices", absl::StrCat(frame.slices(i)),
                        "slices of the plan");
    }
    if (Crc32c(absl::string_view(bytes, num_bytes)) != frame.crc32c(i)) {
      return absl::DataLossError(absl::StrCat(
          "slice ", frame.slices(i),
          " arrived damaged: ", "its bytes do not have the sender's CRC32C"));
    }
    slice.slice = static_cast<int32_t>(frame.slices(i));
    slice.values = absl::MakeConstSpan(reinterpret_cast<const float*>(bytes),
                                       num_elements);
    status = sink(slice);
    bytes += num_bytes;
  }
  return status;
}

absl::Status ParseCopyFrame(grpc::ByteBuffer* buffer, v1::CopyFrame* frame) {
  const grpc::Status status =
      grpc::SerializationTraits<v1::CopyFrame>::Deserialize(buffer, frame);
  return status.ok() ? absl::OkStatus()
                     : absl::InvalidArgumentError("malformed CopyFrame");
}

absl::Status ParseFetchRequest(const grpc::ByteBuffer& buffer,
                               v1::FetchRequest* request) {
  grpc::Slice slice;
  if (buffer.Length() <= kMaxFetchRequestBytes &&
      buffer.DumpToSingleSlice(&slice).ok() &&
      request->ParseFromArray(slice.begin(), static_cast<int>(slice.size()))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("malformed FetchRequest");
}

grpc::ByteBuffer Serialize(const v1::FetchRequest& request) {
  const grpc::Slice slice(request.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace agg
