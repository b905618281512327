// Sums, products and quotients: 9.7.1 (integers) and 9.7.3 (floating point) of
// the PTX ISA.
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>

#include "tests/kernels/cuda/ptx/elementwise.h"
#include "tests/kernels/cuda/ptx/lanes.h"
#include "tests/kernels/cuda/ptx/opcode_table.h"

namespace agg::ptx {
namespace {

// Integers wrap, which unsigned ones do in C++; T is then unsigned.
struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a + b);
  }
};
struct Subtract {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a - b);
  }
};
struct Multiply {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a * b);
  }
};
struct Divide {
  template <class T>
  T operator()(T a, T b) const {
    return a / b;
  }
};
struct Negate {
  template <class T>
  T operator()(T a) const {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(T{0} - a);
    return -a;
  }
};
struct Absolute {
  template <class T>
  T operator()(T a) const {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fabs(a);
    } else {
      return a < 0 ? static_cast<T>(std::make_unsigned_t<T>(0) - a) : a;
    }
  }
};
struct SquareRoot {
  template <class T>
  T operator()(T a) const {
    return std::sqrt(a);
  }
};
// Of floats, NaN is less than a number to max and greater to min; -0 < +0.
struct Least {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (a == b) return std::signbit(a) ? a : b;
      if (std::isnan(a)) return b;
      if (std::isnan(b)) return a;
    }
    return a < b ? a : b;
  }
};
struct Greatest {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (a == b) return std::signbit(a) ? b : a;
      if (std::isnan(a)) return b;
      if (std::isnan(b)) return a;
    }
    return a < b ? b : a;
  }
};
struct FusedMultiplyAdd {
  template <class T>
  T operator()(T a, T b, T c) const {
    return std::fma(a, b, c);
  }
};
struct MultiplyAdd {
  template <class T>
  T operator()(T a, T b, T c) const {
    return static_cast<T>(a * b + c);
  }
};
// Products of twice the width.
template <class Wide>
struct MultiplyWide {
  template <class T>
  Wide operator()(T a, T b) const {
    return static_cast<Wide>(static_cast<Wide>(a) * static_cast<Wide>(b));
  }
};
template <class Wide>
struct MultiplyHigh {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>((static_cast<Wide>(a) * static_cast<Wide>(b)) >>
                          (8 * sizeof(T)));
  }
};
template <class Wide>
struct MultiplyAddWide {
  template <class T>
  Wide operator()(T a, T b, Wide c) const {
    using Unsigned = std::make_unsigned_t<Wide>;
    const Wide product = static_cast<Wide>(a) * static_cast<Wide>(b);
    return static_cast<Wide>(static_cast<Unsigned>(product) +
                             static_cast<Unsigned>(c));
  }
};

// Integer division; what a divisor of zero gives is not specified.
template <class T, bool kRemainder>
void DivideIntegers(const Instruction& instruction, Lanes* lanes) {
  const uint64_t* const a = lanes->Source(instruction, 0);
  const uint64_t* const b = lanes->Source(instruction, 1);
  uint64_t* const to = lanes->Result(instruction, 0);
  lanes->ForEach([=](int lane) {
    const auto x = ValueOf<T>(a[lane]);
    const auto y = ValueOf<T>(b[lane]);
    if (y == 0) return lanes->Fail(lane, "divides by zero");
    if (static_cast<T>(y + 1) == 0 && std::is_signed_v<T>) {
      // The least integer has no opposite.
      to[lane] =
          kRemainder
              ? 0
              : BitsOf(Negate()(static_cast<std::make_unsigned_t<T>>(x)));
      return;
    }
    to[lane] = BitsOf(static_cast<T>(kRemainder ? x % y : x / y));
  });
}

// c + the products of four signed bytes with four.
struct DotOfBytes {
  int32_t operator()(uint32_t a, uint32_t b, int32_t c) const {
    int64_t sum = c;
    for (int i = 0; i < 4; ++i) {
      sum += int64_t{static_cast<int8_t>(a >> (8 * i))} *
             static_cast<int8_t>(b >> (8 * i));
    }
    return static_cast<int32_t>(sum);
  }
};

template <class Unsigned, class Signed>
void AddIntegers(const std::string& bits, OpcodeTable* table) {
  for (const char* sign : {".s", ".u"}) {
    const std::string type = sign + bits;
    (*table)["add" + type] = BinaryOf<Unsigned, Unsigned, Add>();
    (*table)["sub" + type] = BinaryOf<Unsigned, Unsigned, Subtract>();
    // 16 bits would be promoted to int, whose product may overflow.
    if (sizeof(Unsigned) < 4) continue;
    (*table)["mul.lo" + type] = BinaryOf<Unsigned, Unsigned, Multiply>();
    (*table)["mad.lo" + type] =
        TernaryOf<Unsigned, Unsigned, Unsigned, MultiplyAdd>();
  }
  (*table)["neg.s" + bits] = UnaryOf<Unsigned, Negate>();
  (*table)["abs.s" + bits] = UnaryOf<Signed, Absolute>();
  (*table)["min.s" + bits] = BinaryOf<Signed, Signed, Least>();
  (*table)["max.s" + bits] = BinaryOf<Signed, Signed, Greatest>();
  (*table)["div.s" + bits] = Plain(&DivideIntegers<Signed, false>, 2);
  (*table)["rem.s" + bits] = Plain(&DivideIntegers<Signed, true>, 2);
  (*table)["min.u" + bits] = BinaryOf<Unsigned, Unsigned, Least>();
  (*table)["max.u" + bits] = BinaryOf<Unsigned, Unsigned, Greatest>();
  (*table)["div.u" + bits] = Plain(&DivideIntegers<Unsigned, false>, 2);
  (*table)["rem.u" + bits] = Plain(&DivideIntegers<Unsigned, true>, 2);
}

template <class T, class Wide>
void AddWide(const std::string& type, OpcodeTable* table) {
  (*table)["mul.wide" + type] = BinaryOf<T, T, MultiplyWide<Wide>>();
  (*table)["mul.hi" + type] = BinaryOf<T, T, MultiplyHigh<Wide>>();
  (*table)["mad.wide" + type] = TernaryOf<T, T, Wide, MultiplyAddWide<Wide>>();
}

template <class T>
void AddFloats(const std::string& type, OpcodeTable* table) {
  (*table)["add.rn" + type] = BinaryOf<T, T, Add>();
  (*table)["sub.rn" + type] = BinaryOf<T, T, Subtract>();
  (*table)["mul.rn" + type] = BinaryOf<T, T, Multiply>();
  (*table)["div.rn" + type] = BinaryOf<T, T, Divide>();
  (*table)["fma.rn" + type] = TernaryOf<T, T, T, FusedMultiplyAdd>();
  (*table)["sqrt.rn" + type] = UnaryOf<T, SquareRoot>();
  (*table)["neg" + type] = UnaryOf<T, Negate>();
  (*table)["abs" + type] = UnaryOf<T, Absolute>();
  (*table)["min" + type] = BinaryOf<T, T, Least>();
  (*table)["max" + type] = BinaryOf<T, T, Greatest>();
}

}  // namespace

void AddArithmetic(OpcodeTable* table) {
  AddIntegers<uint16_t, int16_t>("16", table);
  AddIntegers<uint32_t, int32_t>("32", table);
  AddIntegers<uint64_t, int64_t>("64", table);
  AddWide<uint16_t, uint32_t>(".u16", table);
  AddWide<int16_t, int32_t>(".s16", table);
  AddWide<uint32_t, uint64_t>(".u32", table);
  AddWide<int32_t, int64_t>(".s32", table);
  AddFloats<float>(".f32", table);
  AddFloats<double>(".f64", table);
  (*table)["dp4a.s32.s32"] =
      TernaryOf<uint32_t, uint32_t, int32_t, DotOfBytes>();
}

}  // namespace agg::ptx
