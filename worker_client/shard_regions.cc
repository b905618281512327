// A shard that cannot be asked, or whose answer does not fit, is one that
// shares nothing: rows and versions go over sockets then.
#include "worker_client/shard_regions.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/row_format.h"
#include "proto/protocol_version.h"
#include "proto/region.pb.h"
#include "proto/stream_copy.h"
#include "server/base/dcheck.h"
#include "server/base/local_socket.h"
#include "server/base/status_macros.h"
#include "worker_client/channel.h"
#include "worker_client/device_row.h"
#include "worker_client/row_encoding.h"
#include "worker_client/tensor_devices.h"
#include "worker_client/tensor_view.h"

namespace agg {

// One request, one reply, one connection.

namespace {

constexpr size_t kMaxReplyBytes = size_t{8} << 20;
// Longer than a shard waits for those before this one.
constexpr absl::Duration kPatience = absl::Seconds(5);

}  // namespace

absl::StatusOr<RegionAnswer> AskForRegions(const std::string& name,
                                           const v1::RegionRequest& request) {
  AGG_ASSIGN_OR_RETURN(const FileDescriptor socket, ConnectLocally(name));
  AGG_RETURN_IF_ERROR(
      SendMessage(socket.get(), request.SerializeAsString(), {}, kPatience));
  AGG_ASSIGN_OR_RETURN(DescriptorMessage message,
                       ReceiveMessage(socket.get(), kMaxReplyBytes, kPatience));
  RegionAnswer answer;
  answer.descriptors = std::move(message.descriptors);
  if (!answer.reply.ParseFromString(message.bytes)) {
    return absl::InternalError("the shard's RegionReply does not parse");
  }
  if (answer.reply.code() != 0) {
    return absl::Status(static_cast<absl::StatusCode>(answer.reply.code()),
                        answer.reply.message());
  }
  const size_t num_regions = (answer.reply.has_row() ? 1 : 0) +
                             static_cast<size_t>(answer.reply.versions_size()) +
                             (answer.reply.has_row_device() ? 1 : 0) +
                             (answer.reply.has_parameters_device() ? 2 : 0);
  if (num_regions != answer.descriptors.size()) {
    return absl::InternalError(
        "the shard's RegionReply has another number of descriptors");
  }
  return answer;
}

// What the shard says of its memory is checked before anything is written.

absl::StatusOr<std::unique_ptr<RowRegion>> RowRegion::Map(
    const ShardRouter* router, int shard, DType dtype,
    const v1::RegionReply& reply, const FileDescriptor& fd,
    CopyThreads* copies) {
  AGG_DCHECK(reply.has_row());
  const v1::Region& said = reply.row();
  const std::vector<int32_t>& slices = router->plan().slices_of_shard[shard];
  if (static_cast<int>(said.dtype()) != static_cast<int>(dtype) ||
      static_cast<size_t>(reply.row_offsets_size()) != slices.size()) {
    return absl::InternalError(
        absl::StrCat("the shard's row is of dtype ", said.dtype(), " with ",
                     reply.row_offsets_size(), " slices"));
  }
  AGG_ASSIGN_OR_RETURN(std::unique_ptr<SharedMemory> memory,
                       SharedMemory::Map(fd, static_cast<int64_t>(said.bytes()),
                                         SharedMemory::Others::kWrite));
  auto region =
      absl::WrapUnique(new RowRegion(router, dtype, copies, std::move(memory)));
  region->addresses_.resize(router->plan().slices.size());
  if (dtype == DType::kI8) region->scales_.resize(region->addresses_.size());
  for (size_t i = 0; i < slices.size(); ++i) {
    AGG_RETURN_IF_ERROR(
        region->Place(slices[i], reply.row_offsets(static_cast<int>(i))));
  }
  return region;
}

absl::Status RowRegion::Place(int32_t slice, uint64_t offset) {
  const int64_t row_bytes = memory_->num_bytes();
  const int64_t num_elements = router_->plan().slices[slice].num_elements;
  // All elements of a row of int8 come before all scales.
  const auto end = static_cast<uint64_t>(RowElements(dtype_, row_bytes) *
                                         DTypeBytes(dtype_));
  const auto bytes = static_cast<uint64_t>(num_elements * DTypeBytes(dtype_));
  const uint64_t alignment =
      dtype_ == DType::kI8 ? kScaleBlockElements : alignof(float);
  if (offset % alignment != 0 || offset > end || bytes > end - offset) {
    return absl::InternalError(absl::StrCat("slice ", slice, " is at ", offset,
                                            " in a row of ", row_bytes,
                                            " bytes"));
  }
  addresses_[slice] = memory_->data() + offset;
  if (dtype_ == DType::kI8) {
    scales_[slice] =
        memory_->data() + ScaleOffset(row_bytes, static_cast<int64_t>(offset));
  }
  return absl::OkStatus();
}

bool RowRegion::Begin(const RowName& row, bool leaves_out,
                      const std::set<int>& devices) {
  const bool in_place = placement_.Begin(row, leaves_out);
  if (in_place && !(row == row_)) {
    row_ = row;
    written_.assign(addresses_.size(), false);
    devices_.Begin(devices);
  }
  return in_place;
}

absl::StatusOr<RowDevices::Copies> RowRegion::WriteOnDevice(
    absl::Span<const int32_t> slices, const BoundRow& row,
    ErrorFeedback* feedback) {
  std::set<DeviceRow*> used;
  for (const int32_t index : slices) {
    if (written_[index]) continue;
    const Slice& slice = router_->plan().slices[index];
    const TensorView& view = row.views[slice.tensor];
    const int device = row.device(slice.tensor);
    const bool of_host = device == TensorDevices::kHost;
    DeviceRow* by =
        view.dtype == dtype_ && !of_host ? devices_.Find(device) : nullptr;
    const char* from = addresses_[index];
    absl::Status status;
    if (by != nullptr || (view.dtype == dtype_ && of_host)) {
      from = ElementsFrom(view, slice.begin);
    } else {
      status = Write(index, row, feedback);
    }
    if (by == nullptr) by = devices_.any();
    // Pieces of a tensor may be of several allocations.
    const int64_t owner = view.pieces.empty() ? slice.tensor : -1 - index;
    if (status.ok()) {
      status = by->Copy(owner, from, addresses_[index] - memory_->data(),
                        slice.num_elements * DTypeBytes(dtype_));
    }
    if (!status.ok()) return status;
    written_[index] = true;
    used.insert(by);
  }
  return RowDevices::Mark(used);
}

void RowRegion::GiveUpDevice() {
  if (!on_device()) return;
  devices_.GiveUp();
  written_.assign(addresses_.size(), false);
}

absl::Status RowRegion::Write(int32_t index, const BoundRow& row,
                              ErrorFeedback* feedback) {
  AGG_DCHECK(addresses_[index] != nullptr);
  if (written_[index]) return absl::OkStatus();
  const Slice& slice = router_->plan().slices[index];
  const TensorView& view = row.views[slice.tensor];
  const int device = row.device(slice.tensor);
  const int64_t bytes = slice.num_elements * DTypeBytes(view.dtype);
  char* const to = addresses_[index];
  const char* from = ElementsFrom(view, slice.begin);
  if (view.dtype != dtype_) {
    PinnedCopy copy(row.devices);
    if (device != TensorDevices::kHost) {
      AGG_ASSIGN_OR_RETURN(const char* copied, copy.Take(device, from, bytes));
      from = copied;
    }
    Encode(index, reinterpret_cast<const float*>(from), feedback, row.tally);
  } else if (device != TensorDevices::kHost) {
    // Else the copy takes longer.
    registration_.IsRegistered(device, row.devices);
    AGG_RETURN_IF_ERROR(row.devices->CopyToHost(device, to, from, bytes));
  } else if (from != to) {
    Share(slice.num_elements, [&](int64_t begin, int64_t end) {
      const int64_t size = DTypeBytes(dtype_);
      CopyBytes(to + begin * size, from + begin * size,
                static_cast<size_t>((end - begin) * size));
    });
  }
  written_[index] = true;
  return absl::OkStatus();
}

void RowRegion::Encode(int32_t index, const float* from,
                       ErrorFeedback* feedback, EncodingTally* tally) {
  const Slice& slice = router_->plan().slices[index];
  const Residual residual =
      feedback == nullptr
          ? Residual()
          : feedback->ResidualOf(slice.tensor, slice.begin, slice.num_elements);
  // Threads share a slice.
  std::atomic<int64_t> num_infinite{0}, num_vanished{0};
  Share(slice.num_elements, [&](int64_t begin, int64_t end) {
    const auto first = static_cast<size_t>(begin);
    const auto count = static_cast<size_t>(end - begin);
    const bool kept = !residual.after.empty();
    const EncodingLoss loss = EncodeFloats(
        absl::MakeConstSpan(from + begin, count), dtype_,
        kept ? Residual{residual.before.subspan(first, count),
                        residual.after.subspan(first, count)}
             : Residual(),
        scales_.empty() ? nullptr : scales_[index] + ScaleBytes(dtype_, begin),
        addresses_[index] + begin * DTypeBytes(dtype_));
    num_infinite.fetch_add(loss.num_infinite, std::memory_order_relaxed);
    num_vanished.fetch_add(loss.num_vanished, std::memory_order_relaxed);
  });
  if (tally != nullptr) {
    tally->Set(index, slice.tensor, {num_infinite.load(), num_vanished.load()});
  }
}

void RowRegion::Share(int64_t count,
                      const std::function<void(int64_t, int64_t)>& copy) {
  if (copies_ == nullptr) return copy(0, count);
  copies_->Run(count, copy);
}

// The reader's half of the lock that server/params/shared_buffer.cc describes.

namespace {

// As proto/region.proto says.
constexpr int64_t kHeadAlignment = 4096;
constexpr int64_t kMaxBytes = int64_t{1} << 46;

int64_t HeadOffset(int64_t num_bytes) {
  return (num_bytes + kHeadAlignment - 1) / kHeadAlignment * kHeadAlignment;
}

}  // namespace

absl::StatusOr<std::unique_ptr<VersionRegion>> VersionRegion::Map(
    const v1::Region& said, const FileDescriptor& fd) {
  if (said.bytes() == 0 || said.bytes() > static_cast<uint64_t>(kMaxBytes)) {
    return absl::InternalError(
        absl::StrCat("the shard's region has ", said.bytes(), " bytes"));
  }
  const auto num_bytes = static_cast<int64_t>(said.bytes());
  AGG_ASSIGN_OR_RETURN(
      std::unique_ptr<SharedMemory> memory,
      SharedMemory::Map(fd, HeadOffset(num_bytes) + kHeadAlignment,
                        SharedMemory::Others::kRead));
  return absl::WrapUnique(new VersionRegion(num_bytes, std::move(memory)));
}

const char* VersionRegion::At(uint64_t offset, int64_t num_bytes) const {
  const auto all = static_cast<uint64_t>(num_bytes_);
  const bool inside = offset % alignof(float) == 0 && offset <= all &&
                      static_cast<uint64_t>(num_bytes) <= all - offset;
  return inside ? memory_->data() + offset : nullptr;
}

bool VersionRegion::Holds(uint64_t generation) const {
  // What was read before stays before.
  std::atomic_thread_fence(std::memory_order_acquire);
  const auto* const head = reinterpret_cast<const std::atomic<uint64_t>*>(
      memory_->data() + HeadOffset(num_bytes_));
  return head->load(std::memory_order_relaxed) == generation;
}

namespace {

bool HasSocket(const JobView& view, int shard) {
  return shard < view.reply().region_sockets_size() &&
         !view.reply().region_sockets(shard).empty();
}

void NoteShared(const JobView& view, size_t shard,
                const MappedRegions& regions) {
  view.NoteShared(shard, regions.any(),
                  regions.row != nullptr && regions.row->devices()->has_any());
}

}  // namespace

const DeviceParameters* MappedRegions::ParametersOn(int device) const {
  const auto found = parameters.find(device);
  const bool works = found != parameters.end() && !found->second->failed();
  return works ? found->second.get() : nullptr;
}

std::shared_ptr<const MappedRegions> ShardRegions::Get(const JobView& view,
                                                       int shard) {
  const ShardLives lives = view.lives();
  const size_t i = static_cast<size_t>(shard);
  const uint64_t life = i < lives.lives.size() ? lives.lives[i] : 0;
  // Let go of when the lock is: the driver may take its time for what it has
  // registered.
  std::shared_ptr<const MappedRegions> former;
  MutexLock lock(&mutex_);
  Entry& entry = entries_[i];
  former = entry.regions;
  const bool same = entry.session == view.session() && entry.life == life;
  const int num_devices =
      takes_devices_ ? static_cast<int>(devices_->met().size()) : 0;
  const bool current =
      entry.epoch == view.epoch() && entry.num_devices == num_devices;
  if (current && same && !entry.row_later) {
    NoteShared(view, i, *entry.regions);
    return entry.regions;
  }
  if (!same || entry.regions == nullptr) {
    entry = Entry();
    entry.session = view.session();
    entry.life = life;
    entry.regions = std::make_shared<MappedRegions>();
  }
  const bool asks = allowed_ && life != 0 && HasSocket(view, shard);
  const absl::Status asked = asks ? Ask(view, shard, &entry) : absl::OkStatus();
  // Who shares nothing is not asked for each row; who did is, until it says
  // whether it still does.
  if (asked.ok() || !entry.regions->any()) {
    entry.epoch = view.epoch();
    entry.num_devices = num_devices;
  }
  NoteShared(view, i, *entry.regions);
  return entry.regions;
}

bool ShardRegions::HasOptional(const Manifest& manifest) {
  return std::any_of(manifest.tensors.begin(), manifest.tensors.end(),
                     [](const TensorSpec& tensor) { return tensor.optional; });
}

ShardRegions::Placed ShardRegions::Begin(const JobView& view,
                                         const RowName& row,
                                         const std::vector<int>& shards,
                                         const std::set<int>& devices) {
  Placed placed;
  for (const int shard : shards) {
    placed.owners.push_back(Get(view, shard));
    RowRegion* const region = placed.owners.back()->row.get();
    const bool in_place =
        region != nullptr && region->Begin(row, leaves_out_, devices);
    placed.regions.push_back(in_place ? region : nullptr);
  }
  return placed;
}

void ShardRegions::Land(const JobView& view, const RowName& row, int shard) {
  RowRegion* const region = Get(view, shard)->row.get();
  if (region != nullptr) region->Land(row);
}

absl::Status ShardRegions::Ask(const JobView& view, int shard,
                               Entry* entry) const {
  v1::RegionRequest request;
  request.set_protocol_version(kProtocolVersion);
  request.set_session(entry->session);
  request.set_epoch(view.epoch());
  request.set_life(entry->life);
  request.set_takes_int8(true);
  request.set_takes_device(takes_devices_ && !devices_->met().empty());
  request.set_token(LocalToken(token_file_));
  AGG_ASSIGN_OR_RETURN(
      const RegionAnswer answer,
      AskForRegions(view.reply().region_sockets(shard), request));
  const v1::RegionReply& reply = answer.reply;
  auto mapped = std::make_shared<MappedRegions>();
  size_t next = 0;
  const bool same_row = reply.has_row() && entry->regions->row != nullptr &&
                        entry->row_number == reply.row().number();
  if (same_row) {
    mapped->row = entry->regions->row;  // and what is known of its bytes
    ++next;
  } else if (reply.has_row()) {
    absl::StatusOr<std::unique_ptr<RowRegion>> row = RowRegion::Map(
        router_, shard, static_cast<DType>(view.reply().push_dtype()), reply,
        answer.descriptors[next++], copies_);
    if (row.ok()) mapped->row = *std::move(row);
  }
  const auto of_versions = absl::MakeConstSpan(answer.descriptors)
                               .subspan(next, reply.versions_size());
  AGG_RETURN_IF_ERROR(MapVersions(reply, of_versions, *entry, mapped.get()));
  next += of_versions.size();
  MapDevices(reply, absl::MakeConstSpan(answer.descriptors).subspan(next),
             *entry, mapped.get());
  entry->row_number = reply.row().number();
  entry->row_later = reply.row_later();
  entry->regions = std::move(mapped);
  return absl::OkStatus();
}

absl::Status ShardRegions::MapVersions(
    const v1::RegionReply& reply, absl::Span<const FileDescriptor> descriptors,
    const Entry& entry, MappedRegions* mapped) {
  for (int i = 0; i < reply.versions_size(); ++i) {
    const v1::Region& version = reply.versions(i);
    const auto former = entry.regions->versions.find(version.number());
    if (former != entry.regions->versions.end()) {
      mapped->versions.insert(*former);  // and what a device knows of it
      continue;
    }
    AGG_ASSIGN_OR_RETURN(
        std::unique_ptr<VersionRegion> region,
        VersionRegion::Map(version, descriptors[static_cast<size_t>(i)]));
    mapped->versions[version.number()] = std::move(region);
  }
  return absl::OkStatus();
}

void ShardRegions::MapDevices(const v1::RegionReply& reply,
                              absl::Span<const FileDescriptor> descriptors,
                              const Entry& entry, MappedRegions* mapped) const {
  const std::vector<int> met = devices_->met();
  RowRegion* const row = mapped->row.get();
  for (const int device : met) {
    if (!reply.has_row_device() || row == nullptr ||
        row->devices()->has(device)) {
      continue;
    }
    auto mine =
        DeviceRow::Map(reply.row_device(), row->dtype(), row->num_bytes(),
                       descriptors[0], device, devices_);
    if (mine.ok()) row->devices()->Add(*std::move(mine));
  }
  if (!reply.has_parameters_device()) return;
  if (reply.has_row_device()) descriptors.remove_prefix(1);
  for (const int device : met) {
    const auto former = entry.regions->parameters.find(device);
    if (former != entry.regions->parameters.end() &&
        former->second->number() == reply.parameters_device().number()) {
      mapped->parameters[device] = former->second;
      continue;
    }
    auto mine = DeviceParameters::Map(reply.parameters_device(), descriptors[0],
                                      descriptors[1], device, devices_);
    if (mine.ok()) mapped->parameters[device] = *std::move(mine);
  }
}

}  // namespace agg
