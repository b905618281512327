// Loads, stores and asynchronous copies: 9.7.9.8 to 9.7.9.12, 9.7.9.25.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/kernels/cuda/ptx/elementwise.h"
#include "tests/kernels/cuda/ptx/lanes.h"
#include "tests/kernels/cuda/ptx/opcode_table.h"
#include "tests/kernels/cuda/ptx/program.h"

namespace agg::ptx {
namespace {

void FailAt(int lane, uint64_t address, const char* wrong, Lanes* lanes) {
  lanes->Fail(lane, absl::StrCat(wrong, ", at 0x", absl::Hex(address)));
}

struct Place {
  Space space = Space::kGlobal;
  uint64_t address = 0;  // within the space
};

Place PlaceOf(Space space, uint64_t address) {
  if (space == Space::kShared) return {space, address & 0xffffffffu};
  if (space != Space::kGeneric) return {space, address};
  if (address - kSharedWindow < kWindowBytes) {
    return {Space::kShared, address - kSharedWindow};
  }
  if (address - kParameterWindow < kWindowBytes) {
    return {Space::kParameters, address - kParameterWindow};
  }
  return {Space::kGlobal, address};
}

const char* LoadParameter(const BlockMemory& memory, uint64_t address,
                          int num_bytes, void* to) {
  if (address < kParameterBase ||
      address + num_bytes > kParameterBase + memory.parameters.size()) {
    return "outside of the parameters";
  }
  std::memcpy(to, &memory.parameters[address - kParameterBase], num_bytes);
  return nullptr;
}

const char* LoadBytes(const Place& place, int num_bytes, const Thread& thread,
                      BlockMemory* memory, void* to) {
  switch (place.space) {
    case Space::kShared:
      return memory->shared->Load(thread.actor, place.address, num_bytes, to);
    case Space::kParameters:
      return LoadParameter(*memory, place.address, num_bytes, to);
    default:
      return memory->global->Load(thread.number, place.address, num_bytes, to);
  }
}

const char* StoreBytes(const Place& place, int num_bytes, const Thread& thread,
                       BlockMemory* memory, const void* from) {
  switch (place.space) {
    case Space::kShared:
      return memory->shared->Store(thread.actor, place.address, num_bytes,
                                   from);
    case Space::kParameters:
      return "writes parameters";
    default:
      return memory->global->Store(thread.number, place.address, num_bytes,
                                   from);
  }
}

constexpr int kMostBytes = 32;  // of an access

void Load(const Instruction& instruction, Lanes* lanes) {
  const Opcode& opcode = instruction.opcode;
  const uint64_t* const addresses = lanes->Source(instruction, 0);
  const int num_bytes = opcode.element_bytes * instruction.num_results;
  lanes->ForEach([&](int lane) {
    const Place place =
        PlaceOf(opcode.space, addresses[lane] + instruction.offsets[0]);
    char data[kMostBytes];
    const char* const wrong =
        place.address % num_bytes != 0
            ? "reads at an address that is not aligned"
            : LoadBytes(place, num_bytes, lanes->threads[lane], lanes->memory,
                        data);
    if (wrong != nullptr) return FailAt(lane, place.address, wrong, lanes);
    for (int i = 0; i < instruction.num_results; ++i) {
      uint64_t bits = 0;
      std::memcpy(&bits, data + i * opcode.element_bytes, opcode.element_bytes);
      const int above = 64 - 8 * opcode.element_bytes;
      if (opcode.is_signed) {
        bits =
            static_cast<uint64_t>(static_cast<int64_t>(bits << above) >> above);
      }
      lanes->Result(instruction, i)[lane] = bits;
    }
  });
}

// [address], values
void Store(const Instruction& instruction, Lanes* lanes) {
  const Opcode& opcode = instruction.opcode;
  const uint64_t* const addresses = lanes->Source(instruction, 0);
  const int num_values = instruction.num_sources - 1;
  const int num_bytes = opcode.element_bytes * num_values;
  lanes->ForEach([&](int lane) {
    const Place place =
        PlaceOf(opcode.space, addresses[lane] + instruction.offsets[0]);
    char data[kMostBytes];
    for (int i = 0; i < num_values; ++i) {
      std::memcpy(data + i * opcode.element_bytes,
                  &lanes->Source(instruction, 1 + i)[lane],
                  opcode.element_bytes);
    }
    const char* const wrong =
        place.address % num_bytes != 0
            ? "writes at an address that is not aligned"
            : StoreBytes(place, num_bytes, lanes->threads[lane], lanes->memory,
                         data);
    if (wrong != nullptr) FailAt(lane, place.address, wrong, lanes);
  });
}

// Reads what the copy is to read; false, with the fault, if it may not.
bool ReadSource(int lane, Copy* copy, Lanes* lanes) {
  if (copy->num_read == 0) return true;
  const char* const wrong = lanes->memory->global->Load(
      lanes->threads[lane].number, copy->from, copy->num_read, copy->data);
  if (wrong != nullptr) FailAt(lane, copy->from, wrong, lanes);
  return wrong == nullptr;
}

bool IsCopySize(int num_bytes, int least) {
  return num_bytes >= least && num_bytes <= 16 &&
         (num_bytes & (num_bytes - 1)) == 0;
}

// [shared], [global], size and perhaps how much of it is read. Sizes are powers
// of two from the opcode's element_bytes to 16.
void BeginCopy(const Instruction& instruction, Lanes* lanes) {
  const uint64_t* const to = lanes->Source(instruction, 0);
  const uint64_t* const from = lanes->Source(instruction, 1);
  const uint64_t* const sizes = lanes->Source(instruction, 2);
  const uint64_t* const read =
      lanes->Source(instruction, instruction.num_sources > 3 ? 3 : 2);
  lanes->ForEach([&](int lane) {
    Thread& thread = lanes->threads[lane];
    Copy copy;
    copy.to = (to[lane] + instruction.offsets[0]) & 0xffffffffu;
    copy.from = from[lane] + instruction.offsets[1];
    copy.num_bytes = static_cast<int>(sizes[lane]);
    copy.num_read = static_cast<int>(read[lane]);
    copy.group = thread.num_groups;
    if (!IsCopySize(copy.num_bytes, instruction.opcode.element_bytes) ||
        copy.num_read < 0 || copy.num_read > copy.num_bytes) {
      return lanes->Fail(lane, "copies a size that it does not have");
    }
    const auto alignment = static_cast<uint64_t>(copy.num_bytes);
    if (copy.to % alignment != 0 || copy.from % alignment != 0) {
      return FailAt(lane, copy.to % alignment != 0 ? copy.to : copy.from,
                    "copies at an address that is not aligned", lanes);
    }
    const char* const wrong =
        lanes->memory->shared->BeginCopy(thread.actor, copy.to, copy.num_bytes);
    if (wrong != nullptr) return FailAt(lane, copy.to, wrong, lanes);
    if (ReadSource(lane, &copy, lanes)) thread.copies.push_back(copy);
  });
}

// Makes the thread's copies of groups before `end`.
void EndCopies(int lane, int64_t end, Lanes* lanes) {
  Thread& thread = lanes->threads[lane];
  const auto first_left =
      std::find_if(thread.copies.begin(), thread.copies.end(),
                   [end](const Copy& copy) { return copy.group >= end; });
  for (auto copy = thread.copies.begin(); copy != first_left; ++copy) {
    if (lanes->memory->late_copies) ReadSource(lane, &*copy, lanes);
    lanes->memory->shared->EndCopy(thread.actor, copy->to, copy->num_bytes,
                                   copy->data);
  }
  thread.copies.erase(thread.copies.begin(), first_left);
}

void CommitGroup(const Instruction& /*instruction*/, Lanes* lanes) {
  lanes->ForEach([=](int lane) { ++lanes->threads[lane].num_groups; });
}

void WaitGroup(const Instruction& instruction, Lanes* lanes) {
  const uint64_t* const num_left = lanes->Source(instruction, 0);
  lanes->ForEach([=](int lane) {
    EndCopies(
        lane,
        lanes->threads[lane].num_groups - static_cast<int64_t>(num_left[lane]),
        lanes);
  });
}

void WaitAll(const Instruction& /*instruction*/, Lanes* lanes) {
  lanes->ForEach([=](int lane) {
    const int64_t end = ++lanes->threads[lane].num_groups;
    EndCopies(lane, end, lanes);
  });
}

struct Type {
  const char* name;
  uint8_t num_bytes;
  bool is_signed;
};
constexpr Type kTypes[] = {
    {".b8", 1, false},  {".u8", 1, false},  {".s8", 1, true},
    {".b16", 2, false}, {".u16", 2, false}, {".s16", 2, true},
    {".b32", 4, false}, {".u32", 4, false}, {".s32", 4, true},
    {".b64", 8, false}, {".u64", 8, false}, {".s64", 8, true},
    {".f32", 4, false}, {".f64", 8, false},
};

// `name` with every type, alone and in vectors.
void AddAccess(const std::string& name, Space space, Handler handler,
               OpcodeTable* table) {
  for (const Type& type : kTypes) {
    Opcode opcode = Plain(handler, -1);
    opcode.num_results = handler == &Load ? 1 : 0;
    opcode.is_vector = true;
    opcode.space = space;
    opcode.element_bytes = type.num_bytes;
    opcode.is_signed = type.is_signed;
    for (const char* vector : {"", ".v2", ".v4"}) {
      (*table)[absl::StrCat(name, vector, type.name)] = opcode;
    }
  }
}

}  // namespace

void AddMemory(OpcodeTable* table) {
  AddAccess("ld", Space::kGeneric, &Load, table);
  AddAccess("ld.global", Space::kGlobal, &Load, table);
  AddAccess("ld.global.nc", Space::kGlobal, &Load, table);
  AddAccess("ld.shared", Space::kShared, &Load, table);
  AddAccess("ld.param", Space::kParameters, &Load, table);
  AddAccess("st", Space::kGeneric, &Store, table);
  AddAccess("st.global", Space::kGlobal, &Store, table);
  AddAccess("st.shared", Space::kShared, &Store, table);
  Opcode copy = Plain(&BeginCopy, -1);
  copy.num_results = 0;
  copy.element_bytes = 16;
  (*table)["cp.async.cg.shared.global"] = copy;
  copy.element_bytes = 4;
  (*table)["cp.async.ca.shared.global"] = copy;
  copy.handler = &CommitGroup;
  copy.num_sources = 0;
  (*table)["cp.async.commit_group"] = copy;
  copy.handler = &WaitGroup;
  copy.num_sources = 1;
  (*table)["cp.async.wait_group"] = copy;
  copy.handler = &WaitAll;
  copy.num_sources = 0;
  (*table)["cp.async.wait_all"] = copy;
}

}  // namespace agg::ptx
