// Field by field, so that a field which is added to one side is missed here
// in one place only.
#include "proto/manifest_message.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <utility>

#include "absl/status/status.h"

namespace agg {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Fields of Tensor, and Manifest.tensors.
constexpr int kName = 1;
constexpr int kShape = 2;
constexpr int kGroup = 3;
constexpr uint32_t kTensorsTag = (1 << 3) | 2;

// The fields up to the input's limit.
bool MeasureTensor(CodedInputStream* in, ManifestSize* size) {
  while (const uint32_t tag = in->ReadTag()) {
    const int field = WireFormatLite::GetTagFieldNumber(tag);
    const int before = in->CurrentPosition();
    if (!WireFormatLite::SkipField(in, tag)) return false;
    const int num_bytes = in->CurrentPosition() - before;
    if (field == kName || field == kGroup) size->text_bytes += num_bytes;
    // Packed, a dimension has one byte or more.
    if (field == kShape) size->dimensions += num_bytes;
  }
  return in->ConsumedEntireMessage();
}

}  // namespace

absl::StatusOr<ManifestSize> SizeOfMessage(absl::string_view message) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(message.data()),
                      static_cast<int>(message.size()));
  ManifestSize size;
  bool good = true;
  while (good) {
    const uint32_t tag = in.ReadTag();
    if (tag == 0) break;
    if (tag != kTensorsTag) {
      good = WireFormatLite::SkipField(&in, tag);
      continue;
    }
    uint32_t length = 0;
    good = in.ReadVarint32(&length) && length <= message.size();
    if (!good) break;
    const auto limit = in.PushLimit(static_cast<int>(length));
    ++size.tensors;
    good = MeasureTensor(&in, &size) && in.BytesUntilLimit() == 0;
    in.PopLimit(limit);
  }
  if (good && in.ConsumedEntireMessage()) return size;
  return absl::InvalidArgumentError("malformed manifest");
}

v1::Manifest ToProto(const Manifest& manifest) {
  v1::Manifest message;
  for (const TensorSpec& tensor : manifest.tensors) {
    v1::Tensor* to = message.add_tensors();
    to->set_name(tensor.name);
    to->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    to->set_group(tensor.group);
    to->set_optional(tensor.optional);
  }
  return message;
}

Manifest FromProto(const v1::Manifest& message) {
  Manifest manifest;
  manifest.tensors.reserve(message.tensors_size());
  for (const v1::Tensor& from : message.tensors()) {
    TensorSpec tensor;
    tensor.name = from.name();
    tensor.shape.assign(from.shape().begin(), from.shape().end());
    tensor.group = from.group();
    tensor.optional = from.optional();
    manifest.tensors.push_back(std::move(tensor));
  }
  return manifest;
}

}  // namespace agg
