#include "tests/worker_client/device_shard.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/device_memory/cuda_driver.h"
#include "kernels/row_format.h"
#include "tests/kernels/device_memory/fake_cuda.h"

namespace agg {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr uint32_t kRow = 1, kVersion = 2, kRowDevice = 3, kParameters = 4;

// One slice behind the other, at multiples of 256 elements, as int8 wants it.
int64_t Lay(const ShardPlan& plan, int64_t element_bytes,
            std::vector<uint64_t>* offsets) {
  int64_t elements = 0;
  for (const Slice& slice : plan.slices) {
    offsets->push_back(static_cast<uint64_t>(elements * element_bytes));
    elements += (slice.num_elements + 255) / 256 * 256;
  }
  return elements;
}

FileDescriptor Copied(int fd) { return FileDescriptor(dup(fd)); }

}  // namespace

DeviceShard::DeviceShard(const Manifest& manifest, DType push_dtype, Tell tell)
    : plan_(MakeShardPlan(manifest, 1).value()),
      dtype_(push_dtype),
      tell_(std::move(tell)) {
  const int64_t elements = Lay(plan_, DTypeBytes(dtype_), &offsets_);
  row_bytes_ = PayloadBytes(dtype_, elements);
  parameter_bytes_ = Lay(plan_, sizeof(float), &parameter_offsets_) * 4;
  context_ = *DeviceContext::Retain(*CudaDriver::Load(kFakeCudaPath), 0);
  row_ = *SharedMemory::Create(row_bytes_, SharedMemory::Others::kWrite);
  version_ = *SharedMemory::Create(
      (parameter_bytes_ + kPageBytes - 1) / kPageBytes * kPageBytes +
          kPageBytes,
      SharedMemory::Others::kRead);
  page_ = *SharedMemory::Create(kPageBytes, SharedMemory::Others::kRead);
  row_device_ = *SharedDeviceMemory::Create(context_, row_bytes_);
  parameters_ = *SharedDeviceMemory::Create(context_, parameter_bytes_);
  giver_ = std::make_unique<RegionGiver>(
      [this](const v1::RegionRequest& request) { return Give(request); });
}

FakeJob::Options DeviceShard::Options() {
  FakeJob::Options options;
  options.push_dtype = dtype_;
  options.region_sockets = {giver_->name()};
  options.placed = [this](const v1::FrameMeta& meta, int slice) {
    return Read(meta, slice);
  };
  options.place = [this](const v1::PullRequest& request,
                         const std::function<std::string(int)>& bytes,
                         v1::PullFrame* frame) {
    return Place(request, bytes, frame);
  };
  return options;
}

DeviceShard::Counts DeviceShard::counts() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counts_;
}

const char* DeviceShard::OnDevice(int slice) const {
  return row_device_->data() + offsets_[slice];
}

void DeviceShard::PlaceVersions() {
  const std::lock_guard<std::mutex> lock(mutex_);
  places_versions_ = true;
}

void DeviceShard::OverwriteNext() {
  const std::lock_guard<std::mutex> lock(mutex_);
  overwrites_ = true;
}

RegionGift DeviceShard::Give(const v1::RegionRequest& request) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++counts_.requests;
  RegionGift gift;
  v1::Region* const row = gift.reply.mutable_row();
  row->set_number(kRow);
  row->set_bytes(static_cast<uint64_t>(row_bytes_));
  row->set_dtype(static_cast<v1::DType>(dtype_));
  for (const uint64_t offset : offsets_) gift.reply.add_row_offsets(offset);
  gift.descriptors.push_back(Copied(row_->fd()));
  v1::Region* const version = gift.reply.add_versions();
  version->set_number(kVersion);
  version->set_bytes(static_cast<uint64_t>(parameter_bytes_));
  version->set_dtype(v1::F32);
  gift.descriptors.push_back(Copied(version_->fd()));
  if (!request.takes_device()) return gift;
  ++counts_.takes_device;
  const DeviceUuid uuid = *context_->driver().UuidOf(0);
  const auto fill = [&](uint32_t number, const SharedDeviceMemory& memory,
                        DType dtype, v1::DeviceRegion* region) {
    region->set_number(number);
    region->set_bytes(static_cast<uint64_t>(memory.num_bytes()));
    region->set_mapped_bytes(static_cast<uint64_t>(memory.mapped_bytes()));
    region->set_dtype(static_cast<v1::DType>(dtype));
    region->set_uuid(std::string(uuid.begin(), uuid.end()));
    gift.descriptors.push_back(Copied(memory.fd()));
  };
  fill(kRowDevice, *row_device_, dtype_, gift.reply.mutable_row_device());
  fill(kParameters, *parameters_, DType::kF32,
       gift.reply.mutable_parameters_device());
  gift.descriptors.push_back(Copied(page_->fd()));
  if (tell_ != nullptr) tell_(&gift);
  return gift;
}

std::string DeviceShard::Read(const v1::FrameMeta& meta, int slice) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++counts_.frames;
  counts_.frames_on_device += meta.on_device() ? 1 : 0;
  const char* const row = meta.on_device() ? row_device_->data() : row_->data();
  const int64_t elements = plan_.slices[slice].num_elements;
  const auto offset = static_cast<int64_t>(offsets_[slice]);
  const std::string values(row + offset, elements * DTypeBytes(dtype_));
  if (dtype_ != DType::kI8) return values;
  return std::string(row + ScaleOffset(row_bytes_, offset),
                     ScaleBytes(dtype_, elements)) +
         values;
}

bool DeviceShard::Place(const v1::PullRequest& request,
                        const std::function<std::string(int)>& bytes,
                        v1::PullFrame* frame) {
  // Outside the lock: the job has one of its own.
  std::vector<std::string> values;
  for (const Slice& slice : plan_.slices) values.push_back(bytes(slice.index));
  const std::lock_guard<std::mutex> lock(mutex_);
  ++counts_.pulls;
  counts_.pulls_on_device += request.on_device() ? 1 : 0;
  if (!request.on_device() && !places_versions_) return false;
  char* const to = request.on_device() ? parameters_->data() : version_->data();
  char* const head = request.on_device()
                         ? page_->data()
                         : to + version_->num_bytes() - kPageBytes;
  frame->mutable_place()->set_region(request.on_device() ? kParameters
                                                         : kVersion);
  frame->mutable_place()->set_generation(++generation_);
  for (const Slice& slice : plan_.slices) {
    const std::string& of_slice = values[slice.index];
    const uint64_t offset = parameter_offsets_[slice.index];
    std::copy(of_slice.begin(), of_slice.end(), to + offset);
    frame->mutable_meta()->add_slices(slice.index);
    frame->mutable_place()->add_offsets(offset);
  }
  if (std::exchange(overwrites_, false)) {
    ++generation_;
    std::memset(to, 0x5a, parameter_bytes_);
  }
  std::memcpy(head, &generation_, sizeof(generation_));
  return true;
}

}  // namespace agg
