// A shard that cannot be asked, or whose answer does not fit, is one that
// shares nothing: rows and versions go over sockets then.
#include "worker_client/shard_regions.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/protocol_version.h"
#include "proto/region.pb.h"
#include "worker_client/client_token.h"
#include "worker_client/device_row.h"
#include "worker_client/region_call.h"

namespace agg {
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
  const absl::StatusOr<RegionAnswer> answer =
      AskForRegions(view.reply().region_sockets(shard), request);
  if (!answer.ok()) return answer.status();
  const v1::RegionReply& reply = answer->reply;
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
        answer->descriptors[next++], copies_);
    if (row.ok()) mapped->row = *std::move(row);
  }
  const auto of_versions = absl::MakeConstSpan(answer->descriptors)
                               .subspan(next, reply.versions_size());
  const absl::Status versions =
      MapVersions(reply, of_versions, *entry, mapped.get());
  if (!versions.ok()) return versions;
  next += of_versions.size();
  MapDevices(reply, absl::MakeConstSpan(answer->descriptors).subspan(next),
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
    absl::StatusOr<std::unique_ptr<VersionRegion>> region =
        VersionRegion::Map(version, descriptors[static_cast<size_t>(i)]);
    if (!region.ok()) return region.status();
    mapped->versions[version.number()] = *std::move(region);
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
