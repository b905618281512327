#include "tests/kernels/cuda/ptx/global_memory.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace agg::ptx {
namespace {

constexpr uint64_t kGranule = 2;

// The granules that an access touches, counted from its first one.
uint64_t NumGranules(uint64_t address, int num_bytes) {
  return (address + num_bytes - 1) / kGranule - address / kGranule + 1;
}

}  // namespace

void GlobalMemory::Add(const void* begin, int64_t num_bytes, bool writable) {
  Region region;
  region.begin = reinterpret_cast<uint64_t>(begin);
  region.num_bytes = static_cast<uint64_t>(num_bytes);
  region.writable = writable;
  regions_.push_back(std::move(region));
}

GlobalMemory::Region* GlobalMemory::Find(uint64_t address, int num_bytes) {
  for (size_t i = 0; i < regions_.size(); ++i) {
    const size_t index = (last_ + i) % regions_.size();
    Region& region = regions_[index];
    if (address < region.begin ||
        address + num_bytes > region.begin + region.num_bytes) {
      continue;
    }
    last_ = index;
    return &region;
  }
  return nullptr;
}

GlobalMemory::Touch* GlobalMemory::TouchesAt(Region* region, uint64_t address) {
  if (region->touches == nullptr) {
    // Zeros that take no memory until they are used.
    region->touches.reset(static_cast<Touch*>(
        std::calloc(region->num_bytes / kGranule + 2, sizeof(Touch))));
  }
  return &region->touches[address / kGranule - region->begin / kGranule];
}

const char* GlobalMemory::NoteRead(uint32_t thread, Touch* touch) {
  if (touch->writer != 0 && touch->writer != thread) {
    return "race: reads global memory that another thread has written";
  }
  touch->reader =
      touch->reader == 0 || touch->reader == thread ? thread : kSeveral;
  return nullptr;
}

const char* GlobalMemory::NoteWrite(uint32_t thread, bool same, Touch* touch) {
  if (touch->reader != 0 && touch->reader != thread) {
    return "race: writes global memory that another thread has read";
  }
  if (touch->writer != 0 && touch->writer != thread && !same) {
    return "race: writes global memory that another thread has written";
  }
  touch->writer =
      touch->writer == 0 || touch->writer == thread ? thread : kSeveral;
  return nullptr;
}

const char* GlobalMemory::Load(int64_t thread, uint64_t address, int num_bytes,
                               void* to) {
  Region* const region = Find(address, num_bytes);
  if (region == nullptr) return "reads outside of all memory";
  Touch* const touches = TouchesAt(region, address);
  for (uint64_t i = 0; i < NumGranules(address, num_bytes); ++i) {
    const char* const wrong =
        NoteRead(static_cast<uint32_t>(thread + 1), &touches[i]);
    if (wrong != nullptr) return wrong;
  }
  std::memcpy(to, reinterpret_cast<const void*>(address), num_bytes);
  return nullptr;
}

const char* GlobalMemory::Store(int64_t thread, uint64_t address, int num_bytes,
                                const void* from) {
  Region* const region = Find(address, num_bytes);
  if (region == nullptr) return "writes outside of all memory";
  if (!region->writable) return "writes memory that is to be read only";
  void* const to = reinterpret_cast<void*>(address);
  const bool same = std::memcmp(to, from, num_bytes) == 0;
  Touch* const touches = TouchesAt(region, address);
  for (uint64_t i = 0; i < NumGranules(address, num_bytes); ++i) {
    const char* const wrong =
        NoteWrite(static_cast<uint32_t>(thread + 1), same, &touches[i]);
    if (wrong != nullptr) return wrong;
  }
  std::memcpy(to, from, num_bytes);
  return nullptr;
}

}  // namespace agg::ptx
