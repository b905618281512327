// Bits, shifts and moves: 9.7.8, 9.7.9 and, of one instruction each, 9.7.1.
#include <algorithm>
#include <cstdint>
#include <string>

#include "tests/kernels/cuda/ptx/elementwise.h"
#include "tests/kernels/cuda/ptx/lanes.h"
#include "tests/kernels/cuda/ptx/opcode_table.h"

namespace agg::ptx {
namespace {

struct And {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
  bool operator()(bool a) const { return !a; }
};

// Shifts by more than the width count as shifts by the width.
struct ShiftLeft {
  template <class T>
  T operator()(T a, uint32_t by) const {
    return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << by);
  }
};
struct ShiftRight {
  template <class T>
  T operator()(T a, uint32_t by) const {
    if (by >= 8 * sizeof(T)) return static_cast<T>(a < 0 ? -1 : 0);
    return static_cast<T>(a >> by);
  }
};

// Bits of b over bits of a, shifted together; the upper or the lower half.
template <bool kLeft, bool kWrap>
struct Funnel {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t by) const {
    by = kWrap ? by % 32 : std::min(by, 32u);
    const uint64_t both = uint64_t{b} << 32 | a;
    return static_cast<uint32_t>(kLeft ? (both << by) >> 32 : both >> by);
  }
};

// Each of four bytes is one of the eight of b over a, or that one's sign.
struct Permute {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t selector) const {
    const uint64_t both = uint64_t{b} << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
      const uint32_t which = selector >> (4 * i) & 0xf;
      uint32_t byte = both >> (8 * (which & 7)) & 0xff;
      if ((which & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
      result |= byte << (8 * i);
    }
    return result;
  }
};

struct CountOnes {
  uint32_t operator()(uint32_t a) const { return __builtin_popcount(a); }
};

// a, b, c and a table of truth.
void LogicOfThree(const Instruction& instruction, Lanes* lanes) {
  const uint64_t* source[4];
  for (int i = 0; i < 4; ++i) source[i] = lanes->Source(instruction, i);
  uint64_t* const to = lanes->Result(instruction, 0);
  lanes->ForEach([=](int lane) {
    uint32_t result = 0;
    for (int bit = 0; bit < 32; ++bit) {
      const uint64_t row = (source[0][lane] >> bit & 1) << 2 |
                           (source[1][lane] >> bit & 1) << 1 |
                           (source[2][lane] >> bit & 1);
      result |= static_cast<uint32_t>(source[3][lane] >> row & 1) << bit;
    }
    to[lane] = result;
  });
}

template <class T>
struct Choose {
  T operator()(T a, T b, bool first) const { return first ? a : b; }
};

template <class Unsigned, class Signed>
void AddWidth(const std::string& bits, OpcodeTable* table) {
  (*table)["and.b" + bits] = BinaryOf<Unsigned, Unsigned, And>();
  (*table)["or.b" + bits] = BinaryOf<Unsigned, Unsigned, Or>();
  (*table)["xor.b" + bits] = BinaryOf<Unsigned, Unsigned, Xor>();
  (*table)["not.b" + bits] = UnaryOf<Unsigned, Not>();
  (*table)["shl.b" + bits] = BinaryOf<Unsigned, uint32_t, ShiftLeft>();
  (*table)["shr.b" + bits] = (*table)["shr.u" + bits] =
      BinaryOf<Unsigned, uint32_t, ShiftRight>();
  (*table)["shr.s" + bits] = BinaryOf<Signed, uint32_t, ShiftRight>();
  for (const char* type : {".b", ".u", ".s", ".f"}) {
    (*table)["selp" + (type + bits)] =
        TernaryOf<Unsigned, Unsigned, bool, Choose<Unsigned>>();
  }
}

}  // namespace

void Move(const Instruction& instruction, Lanes* lanes) {
  const uint64_t* const from = lanes->Source(instruction, 0);
  uint64_t* const to = lanes->Result(instruction, 0);
  const uint64_t kept =
      instruction.opcode.element_bytes == 8
          ? ~uint64_t{0}
          : (uint64_t{1} << (8 * instruction.opcode.element_bytes)) - 1;
  lanes->ForEach([=](int lane) { to[lane] = from[lane] & kept; });
}

void Pack(const Instruction& instruction, Lanes* lanes) {
  uint64_t* const to = lanes->Result(instruction, 0);
  const int bits =
      8 * instruction.opcode.element_bytes / instruction.num_sources;
  lanes->ForEach([&](int lane) {
    uint64_t packed = 0;
    for (int i = 0; i < instruction.num_sources; ++i) {
      const uint64_t part = lanes->Source(instruction, i)[lane];
      packed |= (part & ((uint64_t{1} << bits) - 1)) << (bits * i);
    }
    to[lane] = packed;
  });
}

void Unpack(const Instruction& instruction, Lanes* lanes) {
  const uint64_t* const from = lanes->Source(instruction, 0);
  const int bits =
      8 * instruction.opcode.element_bytes / instruction.num_results;
  lanes->ForEach([&](int lane) {
    const uint64_t packed = from[lane];
    for (int i = 0; i < instruction.num_results; ++i) {
      lanes->Result(instruction, i)[lane] =
          packed >> (bits * i) & ((uint64_t{1} << bits) - 1);
    }
  });
}

void AddBits(OpcodeTable* table) {
  AddWidth<uint16_t, int16_t>("16", table);
  AddWidth<uint32_t, int32_t>("32", table);
  AddWidth<uint64_t, int64_t>("64", table);
  (*table)["and.pred"] = BinaryOf<bool, bool, And>();
  (*table)["or.pred"] = BinaryOf<bool, bool, Or>();
  (*table)["xor.pred"] = BinaryOf<bool, bool, Xor>();
  (*table)["not.pred"] = UnaryOf<bool, Not>();
  using U = uint32_t;
  (*table)["shf.l.wrap.b32"] = TernaryOf<U, U, U, Funnel<true, true>>();
  (*table)["shf.l.clamp.b32"] = TernaryOf<U, U, U, Funnel<true, false>>();
  (*table)["shf.r.wrap.b32"] = TernaryOf<U, U, U, Funnel<false, true>>();
  (*table)["shf.r.clamp.b32"] = TernaryOf<U, U, U, Funnel<false, false>>();
  (*table)["prmt.b32"] = TernaryOf<U, U, U, Permute>();
  (*table)["popc.b32"] = UnaryOf<U, CountOnes>();
  (*table)["lop3.b32"] = Plain(&LogicOfThree, 4);
}

}  // namespace agg::ptx
