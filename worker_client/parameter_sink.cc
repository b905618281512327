// A slice's place and size are checked before its bytes are written, its
// checksum after: then the pull fails, or begins again.
#include "worker_client/parameter_sink.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/crc32c.h"
#include "proto/stream_copy.h"
#include "server/base/status_macros.h"
#include "worker_client/float_narrowing.h"
#include "worker_client/tensor_devices.h"

namespace agg {

absl::Status UnexpectedFrame(absl::string_view what) {
  return absl::InternalError(absl::StrCat(
      "unexpected frame: ", what, "; check that client and server are of the ",
      "same version"));
}

namespace {

absl::Status CheckMeta(const v1::FrameMeta& meta, const PullTarget& target) {
  if (meta.epoch() != target.epoch || meta.round() != target.version) {
    return UnexpectedFrame(absl::StrCat(
        "it is of epoch ", meta.epoch(), " and version ", meta.round(),
        ", not of epoch ", target.epoch, " and version ", target.version));
  }
  if (static_cast<int>(meta.dtype()) != static_cast<int>(target.dtype)) {
    return UnexpectedFrame(absl::StrCat("its dtype is ", meta.dtype(), ", not ",
                                        DTypeName(target.dtype)));
  }
  return absl::OkStatus();
}

}  // namespace

ParameterSink::ParameterSink(const ShardRouter* router,
                             const BoundTargets& bound,
                             const PullTarget& target, PullArrivals* arrivals,
                             CopyThreads* copies)
    : router_(router),
      bound_(bound),
      target_(target),
      arrivals_(arrivals),
      copies_(copies),
      landed_(router->plan().slices.size()) {}

ParameterSink::~ParameterSink() {
  if (pinned_ != nullptr) bound_.devices->GiveBack(std::move(pinned_));
}

absl::StatusOr<float*> ParameterSink::PlaceOf(const Slice& slice) {
  const int device = bound_.device(slice.tensor);
  if (device == TensorDevices::kHost) {
    return bound_.views[slice.tensor].data + slice.begin;
  }
  if (pinned_ == nullptr) {
    AGG_ASSIGN_OR_RETURN(pinned_, bound_.devices->TakePinned(device));
  }
  return reinterpret_cast<float*>(pinned_->data());
}

absl::Status ParameterSink::Deliver(const Slice& slice, const float* from) {
  const int device = bound_.device(slice.tensor);
  if (device == TensorDevices::kHost) return absl::OkStatus();
  return bound_.devices->CopyToDevice(
      device, bound_.views[slice.tensor].data + slice.begin, from,
      slice.num_elements * static_cast<int64_t>(sizeof(float)));
}

uint32_t ParameterSink::ReadWidened(absl::Span<float> to, FrameReader* reader) {
  // What is read stays in the L1 cache until it is widened.
  constexpr size_t kChunk = 8192;
  scratch_.resize(kChunk);
  uint32_t crc = kCrc32cInit;
  for (size_t done = 0; done < to.size(); done += kChunk) {
    const absl::Span<float> some = to.subspan(done, kChunk);
    crc = reader->ReadOn(reinterpret_cast<char*>(scratch_.data()),
                         static_cast<int64_t>(some.size() * sizeof(uint16_t)),
                         crc);
    WidenFloats(absl::MakeConstSpan(scratch_).first(some.size()), target_.dtype,
                some);
  }
  return FinishCrc32c(crc);
}

absl::Status ParameterSink::CheckSlice(int shard, uint32_t index) const {
  const std::vector<Slice>& slices = router_->plan().slices;
  if (index < slices.size() && slices[index].shard == shard &&
      !landed_[index]) {
    return absl::OkStatus();
  }
  return UnexpectedFrame(
      absl::StrCat("slice ", index, " is of another shard or came twice"));
}

absl::Status ParameterSink::LandSlice(int shard, int i, FrameReader* reader) {
  const uint32_t index = reader->meta().slices(i);
  AGG_RETURN_IF_ERROR(CheckSlice(shard, index));
  const Slice& slice = router_->plan().slices[index];
  const int64_t bytes = slice.num_elements * DTypeBytes(target_.dtype);
  if (bytes > reader->remaining_bytes()) {
    return UnexpectedFrame(absl::StrCat("slice ", index, " is cut"));
  }
  if (arrivals_->landed(static_cast<int32_t>(index))) {
    reader->Skip(bytes);
    landed_[index] = true;
    return absl::OkStatus();
  }
  AGG_ASSIGN_OR_RETURN(float* to, PlaceOf(slice));
  const uint32_t crc32c =
      target_.dtype == DType::kF32
          ? reader->Read(reinterpret_cast<char*>(to), bytes)
          : ReadWidened(absl::MakeSpan(to, slice.num_elements), reader);
  if (crc32c != reader->meta().crc32c(i)) {
    return absl::DataLossError(
        absl::StrCat("the checksum of slice ", index, " differs"));
  }
  AGG_RETURN_IF_ERROR(Deliver(slice, to));
  landed_[index] = true;
  arrivals_->Land(static_cast<int32_t>(index));
  return absl::OkStatus();
}

void ParameterSink::CopyElements(const Slice& slice, const char* from,
                                 float* to) {
  const auto copy = [&](int64_t begin, int64_t end) {
    const int64_t bytes = DTypeBytes(target_.dtype);
    const auto count = static_cast<size_t>(end - begin);
    if (target_.dtype == DType::kF32) {
      CopyBytes(reinterpret_cast<char*>(to + begin), from + begin * bytes,
                count * sizeof(float));
    } else {
      WidenFloats(
          absl::MakeConstSpan(
              reinterpret_cast<const uint16_t*>(from + begin * bytes), count),
          target_.dtype, absl::MakeSpan(to + begin, count));
    }
  };
  if (copies_ == nullptr) return copy(0, slice.num_elements);
  copies_->Run(slice.num_elements, copy);
}

bool ParameterSink::IsDirect(const Slice& slice,
                             const VersionRegion& region) const {
  const int device = bound_.device(slice.tensor);
  return target_.dtype == DType::kF32 && device != TensorDevices::kHost &&
         region.IsRegistered(device, bound_.devices);
}

absl::Status ParameterSink::CopySlice(uint32_t index, uint64_t offset,
                                      uint64_t generation,
                                      const VersionRegion& region) {
  const Slice& slice = router_->plan().slices[index];
  const int64_t bytes = slice.num_elements * DTypeBytes(target_.dtype);
  const char* const from = region.At(offset, bytes);
  if (from == nullptr) {
    return UnexpectedFrame(absl::StrCat("slice ", index, " of ", bytes,
                                        " bytes is not at ", offset,
                                        " in shared memory"));
  }
  if (arrivals_->landed(static_cast<int32_t>(index))) {
    landed_[index] = true;
    return absl::OkStatus();
  }
  const bool is_direct = IsDirect(slice, region);
  float* to = nullptr;
  if (is_direct) {
    AGG_RETURN_IF_ERROR(Deliver(slice, reinterpret_cast<const float*>(from)));
  } else {
    AGG_ASSIGN_OR_RETURN(to, PlaceOf(slice));
    CopyElements(slice, from, to);
  }
  // Who waits for the slice's tensor may read it from here on.
  if (!region.Holds(generation)) {
    return absl::AbortedError(
        absl::StrCat("version ", target_.version,
                     " was replaced while it was being copied"));
  }
  if (!is_direct) AGG_RETURN_IF_ERROR(Deliver(slice, to));
  landed_[index] = true;
  arrivals_->Land(static_cast<int32_t>(index));
  return absl::OkStatus();
}

absl::Status ParameterSink::CheckPlaced(int shard,
                                        const v1::PullFrame& frame) const {
  const v1::FrameMeta& meta = frame.meta();
  AGG_RETURN_IF_ERROR(CheckMeta(meta, target_));
  if (meta.slices_size() != frame.place().offsets_size()) {
    return UnexpectedFrame(absl::StrCat(meta.slices_size(), " slices at ",
                                        frame.place().offsets_size(),
                                        " places"));
  }
  for (const uint32_t index : meta.slices()) {
    AGG_RETURN_IF_ERROR(CheckSlice(shard, index));
  }
  return absl::OkStatus();
}

absl::Status ParameterSink::LandPlaced(int shard, const v1::PullFrame& frame,
                                       const VersionRegion& region) {
  const v1::SnapshotPlace& place = frame.place();
  AGG_RETURN_IF_ERROR(CheckPlaced(shard, frame));
  for (int i = 0; i < place.offsets_size(); ++i) {
    const uint32_t index = frame.meta().slices(i);
    AGG_RETURN_IF_ERROR(CheckSlice(shard, index));  // it may come twice in it
    AGG_RETURN_IF_ERROR(
        CopySlice(index, place.offsets(i), place.generation(), region));
  }
  return absl::OkStatus();
}

absl::Status ParameterSink::LandPlaced(int shard, const v1::PullFrame& frame,
                                       const ParametersByDevice& parameters) {
  const v1::SnapshotPlace& place = frame.place();
  AGG_RETURN_IF_ERROR(CheckPlaced(shard, frame));
  std::map<int, std::vector<DeviceParameters::Place>> copies;  // by device
  for (int i = 0; i < place.offsets_size(); ++i) {
    const uint32_t index = frame.meta().slices(i);
    const Slice& slice = router_->plan().slices[index];
    const int64_t bytes = slice.num_elements * DTypeBytes(DType::kF32);
    const int device = bound_.device(slice.tensor);
    const auto from = parameters.find(device);
    if (target_.dtype != DType::kF32 || from == parameters.end() ||
        !from->second->Has(place.offsets(i), bytes)) {
      return UnexpectedFrame(absl::StrCat("slice ", index, " of ", bytes,
                                          " bytes is not at ", place.offsets(i),
                                          " on its device"));
    }
    if (arrivals_->landed(static_cast<int32_t>(index))) continue;
    copies[device].push_back({slice.tensor, place.offsets(i),
                              bound_.views[slice.tensor].data + slice.begin,
                              bytes});
  }
  absl::Status status;
  for (const auto& [device, places] : copies) {  // all at once
    status.Update(parameters.at(device)->Begin(places));
  }
  for (const auto& [device, places] : copies) {
    status.Update(parameters.at(device)->Finish(place.generation()));
  }
  if (!status.ok()) return status;
  // Who waits for a slice's tensor may read it from here on.
  for (const uint32_t index : frame.meta().slices()) {
    landed_[index] = true;
    arrivals_->Land(static_cast<int32_t>(index));
  }
  return status;
}

absl::Status ParameterSink::Land(int shard, const grpc::ByteBuffer& frame) {
  FrameReader reader;
  const absl::Status status = reader.Init(frame);
  if (!status.ok()) return UnexpectedFrame(status.message());
  return Land(shard, &reader);
}

absl::Status ParameterSink::Land(int shard, FrameReader* reader) {
  const v1::FrameMeta& meta = reader->meta();
  AGG_RETURN_IF_ERROR(CheckMeta(meta, target_));
  if (meta.slices_size() != meta.crc32c_size()) {
    return UnexpectedFrame(absl::StrCat(meta.slices_size(), " slices with ",
                                        meta.crc32c_size(), " checksums"));
  }
  for (int i = 0; i < meta.slices_size(); ++i) {
    AGG_RETURN_IF_ERROR(LandSlice(shard, i, reader));
  }
  if (reader->remaining_bytes() == 0) return absl::OkStatus();
  return UnexpectedFrame("its payload is longer than its slices");
}

absl::Status ParameterSink::CheckComplete(int shard) const {
  for (int32_t index : router_->plan().slices_of_shard[shard]) {
    if (!landed_[index]) {
      return UnexpectedFrame(
          absl::StrCat("the pull ended without slice ", index));
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
