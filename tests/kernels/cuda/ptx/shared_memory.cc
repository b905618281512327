#include "tests/kernels/cuda/ptx/shared_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace agg::ptx {
namespace {

constexpr int kWarpLanes = 32;
constexpr uint32_t kWordBytes = 4;

}  // namespace

SharedMemory::SharedMemory(const std::vector<Range>& variables) {
  uint32_t size = 0;
  for (const Range& range : variables) {
    size = std::max(size, range.begin + range.num_bytes - kBase);
  }
  fresh_.assign(size, kOutside);
  for (const Range& range : variables) {
    std::fill_n(fresh_.begin() + (range.begin - kBase), range.num_bytes,
                kUnwritten);
  }
  Reset();
}

void SharedMemory::Reset() {
  data_.assign(fresh_.size(), 0);
  bytes_ = fresh_;
  words_.assign(fresh_.size() / kWordBytes + 1, Word());
}

bool SharedMemory::Covers(uint64_t address, int num_bytes) const {
  return address >= kBase && address + num_bytes <= kBase + bytes_.size();
}

bool SharedMemory::AfterWrite(const Word& word, const Actor& actor) {
  if (word.writer == kNobody || word.writer == actor.thread) return true;
  return word.writer / kWarpLanes == actor.thread / kWarpLanes
             ? word.write_warp_barriers < actor.warp_barriers
             : word.write_block_barriers < actor.block_barriers;
}

bool SharedMemory::AfterReads(const Word& word, const Actor& actor) {
  if (word.reader_warp == kNobody ||
      word.read_block_barriers < actor.block_barriers) {
    return true;
  }
  if (word.reader_warp != actor.thread / kWarpLanes) return false;
  return word.read_warp_barriers < actor.warp_barriers ||
         word.reader == actor.thread;
}

void SharedMemory::NoteRead(const Actor& actor, Word* word) {
  const auto thread = static_cast<int16_t>(actor.thread);
  const auto warp = static_cast<int16_t>(thread / kWarpLanes);
  if (word->reader_warp == kNobody ||
      word->read_block_barriers != actor.block_barriers) {
    word->reader_warp = warp;
    word->reader = thread;
  } else if (word->reader_warp != warp) {
    word->reader_warp = kSeveral;
  } else if (word->read_warp_barriers != actor.warp_barriers) {
    word->reader = thread;
  } else if (word->reader != thread) {
    word->reader = kSeveral;
  }
  word->read_warp_barriers = actor.warp_barriers;
  word->read_block_barriers = actor.block_barriers;
}

void SharedMemory::NoteWrite(const Actor& actor, Word* word) {
  word->writer = static_cast<int16_t>(actor.thread);
  word->write_warp_barriers = actor.warp_barriers;
  word->write_block_barriers = actor.block_barriers;
}

const char* SharedMemory::Load(const Actor& actor, uint64_t address,
                               int num_bytes, void* to) {
  if (!Covers(address, num_bytes)) return "outside of shared memory";
  const auto at = static_cast<uint32_t>(address - kBase);
  for (int i = 0; i < num_bytes; ++i) {
    switch (bytes_[at + i]) {
      case kWritten:
        continue;
      case kOutside:
        return "outside of the shared variables";
      case kUnwritten:
        return "reads shared memory that nobody has written";
      case kOnTheWay:
        return "reads what an asynchronous copy has not brought yet";
    }
  }
  for (uint32_t w = at / kWordBytes; w * kWordBytes < at + num_bytes; ++w) {
    if (!AfterWrite(words_[w], actor)) {
      return "race: reads what another thread has written, without a barrier";
    }
    NoteRead(actor, &words_[w]);
  }
  std::memcpy(to, &data_[at], num_bytes);
  return nullptr;
}

const char* SharedMemory::CheckWrite(const Actor& actor, uint64_t address,
                                     int num_bytes) const {
  if (!Covers(address, num_bytes)) return "outside of shared memory";
  const auto at = static_cast<uint32_t>(address - kBase);
  for (int i = 0; i < num_bytes; ++i) {
    if (bytes_[at + i] == kOutside) return "outside of the shared variables";
    if (bytes_[at + i] == kOnTheWay) {
      return "writes where an asynchronous copy is under way";
    }
  }
  for (uint32_t w = at / kWordBytes; w * kWordBytes < at + num_bytes; ++w) {
    if (!AfterWrite(words_[w], actor)) {
      return "race: overwrites what another thread has written, without a "
             "barrier";
    }
    if (!AfterReads(words_[w], actor)) {
      return "race: overwrites what another thread has read, without a barrier";
    }
  }
  return nullptr;
}

void SharedMemory::Write(const Actor& actor, uint64_t address, int num_bytes,
                         const void* from) {
  const auto at = static_cast<uint32_t>(address - kBase);
  std::memcpy(&data_[at], from, num_bytes);
  std::fill_n(bytes_.begin() + at, num_bytes, kWritten);
  for (uint32_t w = at / kWordBytes; w * kWordBytes < at + num_bytes; ++w) {
    NoteWrite(actor, &words_[w]);
  }
}

const char* SharedMemory::Store(const Actor& actor, uint64_t address,
                                int num_bytes, const void* from) {
  const char* const wrong = CheckWrite(actor, address, num_bytes);
  if (wrong == nullptr) Write(actor, address, num_bytes, from);
  return wrong;
}

const char* SharedMemory::BeginCopy(const Actor& actor, uint64_t address,
                                    int num_bytes) {
  const char* const wrong = CheckWrite(actor, address, num_bytes);
  if (wrong != nullptr) return wrong;
  const auto at = static_cast<uint32_t>(address - kBase);
  std::fill_n(bytes_.begin() + at, num_bytes, kOnTheWay);
  return nullptr;
}

void SharedMemory::EndCopy(const Actor& actor, uint64_t address, int num_bytes,
                           const void* from) {
  Write(actor, address, num_bytes, from);
}

}  // namespace agg::ptx
