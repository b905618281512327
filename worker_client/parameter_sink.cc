// A slice's place and size are checked before its bytes are written, its
// checksum after: then the pull fails, or begins again.
#include "worker_client/parameter_sink.h"

#include "absl/strings/str_cat.h"
#include "worker_client/float_narrowing.h"

namespace agg {
namespace {

absl::Status Unexpected(absl::string_view what) {
  return absl::InternalError(absl::StrCat(
      "unexpected frame: ", what, "; check that client and server are of the ",
      "same version"));
}

absl::Status CheckMeta(const v1::FrameMeta& meta, const PullTarget& target) {
  if (meta.epoch() != target.epoch || meta.round() != target.version) {
    return Unexpected(absl::StrCat(
        "it is of epoch ", meta.epoch(), " and version ", meta.round(),
        ", not of epoch ", target.epoch, " and version ", target.version));
  }
  if (static_cast<int>(meta.dtype()) != static_cast<int>(target.dtype)) {
    return Unexpected(absl::StrCat("its dtype is ", meta.dtype(), ", not ",
                                   DTypeName(target.dtype)));
  }
  if (meta.slices_size() != meta.crc32c_size()) {
    return Unexpected(absl::StrCat(meta.slices_size(), " slices with ",
                                   meta.crc32c_size(), " checksums"));
  }
  return absl::OkStatus();
}

}  // namespace

ParameterSink::ParameterSink(const ShardRouter* router,
                             absl::Span<const MutableTensorView> bound,
                             const PullTarget& target)
    : router_(router),
      bound_(bound),
      target_(target),
      landed_(router->plan().slices.size()) {}

absl::Status ParameterSink::LandSlice(int shard, int i, FrameReader* reader) {
  const std::vector<Slice>& slices = router_->plan().slices;
  const uint32_t index = reader->meta().slices(i);
  if (index >= slices.size() || slices[index].shard != shard ||
      landed_[index]) {
    return Unexpected(
        absl::StrCat("slice ", index, " is of another shard or came twice"));
  }
  const Slice& slice = slices[index];
  const int64_t bytes = slice.num_elements * DTypeBytes(target_.dtype);
  if (bytes > reader->remaining_bytes()) {
    return Unexpected(absl::StrCat("slice ", index, " is cut"));
  }
  float* const to = bound_[slice.tensor].data + slice.begin;
  uint32_t crc32c;
  if (target_.dtype == DType::kF32) {
    crc32c = reader->Read(reinterpret_cast<char*>(to), bytes);
  } else {
    scratch_.resize(slice.num_elements);
    crc32c = reader->Read(reinterpret_cast<char*>(scratch_.data()), bytes);
    WidenFloats(scratch_, target_.dtype,
                absl::MakeSpan(to, slice.num_elements));
  }
  if (crc32c != reader->meta().crc32c(i)) {
    return absl::DataLossError(
        absl::StrCat("the checksum of slice ", index, " differs"));
  }
  landed_[index] = true;
  return absl::OkStatus();
}

absl::Status ParameterSink::Land(int shard, const grpc::ByteBuffer& frame) {
  FrameReader reader;
  absl::Status status = reader.Init(frame);
  if (!status.ok()) return Unexpected(status.message());
  status = CheckMeta(reader.meta(), target_);
  for (int i = 0; status.ok() && i < reader.meta().slices_size(); ++i) {
    status = LandSlice(shard, i, &reader);
  }
  if (status.ok() && reader.remaining_bytes() != 0) {
    return Unexpected("its payload is longer than its slices");
  }
  return status;
}

absl::Status ParameterSink::CheckComplete(int shard) const {
  for (int32_t index : router_->plan().slices_of_shard[shard]) {
    if (!landed_[index]) {
      return Unexpected(absl::StrCat("the pull ended without slice ", index));
    }
  }
  return absl::OkStatus();
}

void ParameterSink::Restart(int shard) {
  for (int32_t index : router_->plan().slices_of_shard[shard]) {
    landed_[index] = false;
  }
}

}  // namespace agg
