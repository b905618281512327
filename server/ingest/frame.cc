// Order matters: the lists of slices are checked first, since what follows
// looks them up in the layout.
#include "server/ingest/frame.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/row_format.h"
#include "server/base/status_macros.h"

namespace agg {
namespace {

absl::Status CheckSliceList(const std::vector<uint32_t>& slices,
                            const char* field, const ShardLayout& layout) {
  for (size_t i = 0; i < slices.size(); ++i) {
    const uint32_t slice = slices[i];
    if (slice >= layout.plan.slices.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("meta.", field, " names slice ", slice,
                       "; allowed: below ", layout.plan.slices.size()));
    }
    if (layout.local_slice[slice] < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "meta.", field, " names slice ", slice, ", which is on shard ",
          layout.plan.slices[slice].shard, "; this is shard ", layout.ordinal));
    }
    if (i > 0 && slice <= slices[i - 1]) {
      return absl::InvalidArgumentError(
          absl::StrCat("meta.", field, " has slice ", slice, " after ",
                       slices[i - 1], "; allowed: ascending, once each"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAbsent(const FrameHeader& header, const ShardLayout& layout) {
  if (!header.absent_slices.empty() && header.kind == PushKind::kSeed) {
    return absl::InvalidArgumentError(
        "meta.absent_slices is set in a seed; allowed: in gradients only");
  }
  for (uint32_t slice : header.absent_slices) {
    if (std::binary_search(header.slices.begin(), header.slices.end(), slice)) {
      return absl::InvalidArgumentError(
          absl::StrCat("meta.absent_slices names slice ", slice,
                       ", which meta.slices brings; allowed: one of the two"));
    }
    const TensorSpec& tensor =
        layout.manifest.tensors[layout.plan.slices[slice].tensor];
    if (tensor.optional) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("meta.absent_slices leaves out tensor \"", tensor.name,
                     "\"; allowed: tensors that the manifest marks optional"));
  }
  return absl::OkStatus();
}

absl::Status CheckInPlace(const FrameHeader& header) {
  if (header.kind == PushKind::kSeed) {
    return absl::InvalidArgumentError(
        "meta.in_place is set in a seed; allowed: in gradients only");
  }
  if (header.payload_bytes == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "payload has ", header.payload_bytes,
      " bytes in a frame with meta.in_place; allowed: no payload"));
}

absl::Status CheckPayload(const FrameHeader& header,
                          const ShardLayout& layout) {
  int64_t expected = 0;
  for (uint32_t slice : header.slices) {
    expected +=
        PayloadBytes(header.dtype, layout.plan.slices[slice].num_elements);
  }
  if (expected > kMaxFramePayloadBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("meta.slices make a payload of ", expected,
                     " bytes; allowed: at most ", kMaxFramePayloadBytes));
  }
  if (header.payload_bytes != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload has ", header.payload_bytes,
                     " bytes; its slices have ", expected));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFrame(const FrameHeader& header, const ShardLayout& layout,
                        DType push_dtype) {
  if (header.slices.empty() && header.absent_slices.empty()) {
    return absl::InvalidArgumentError(
        "meta.slices is empty; allowed: at least one slice");
  }
  if (header.on_device && !header.in_place) {
    return absl::InvalidArgumentError(
        "meta.on_device is set without meta.in_place; allowed: with it");
  }
  const size_t num_checksums = header.in_place ? 0 : header.slices.size();
  if (header.crc32c.size() != num_checksums) {
    return absl::InvalidArgumentError(absl::StrCat(
        "meta.crc32c has ", header.crc32c.size(), " entries; allowed: ",
        header.in_place ? "none with meta.in_place, " : "one per slice, ",
        num_checksums));
  }
  const DType dtype = header.kind == PushKind::kSeed ? DType::kF32 : push_dtype;
  if (header.dtype != dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat("meta.dtype is ", DTypeName(header.dtype),
                     "; allowed here: ", DTypeName(dtype)));
  }
  AGG_RETURN_IF_ERROR(CheckSliceList(header.slices, "slices", layout));
  AGG_RETURN_IF_ERROR(
      CheckSliceList(header.absent_slices, "absent_slices", layout));
  AGG_RETURN_IF_ERROR(CheckAbsent(header, layout));
  return header.in_place ? CheckInPlace(header) : CheckPayload(header, layout);
}

}  // namespace agg
