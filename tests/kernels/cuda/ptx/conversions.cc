// cvt: 9.7.9.21; and cvta, 9.7.9.20.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "tests/kernels/cuda/ptx/elementwise.h"
#include "tests/kernels/cuda/ptx/lanes.h"
#include "tests/kernels/cuda/ptx/opcode_table.h"
#include "tests/kernels/cuda/ptx/program.h"

namespace agg::ptx {
namespace {

// Integers are cut or widened by the source's sign; integers to floats and
// doubles to floats are rounded to the nearest, ties to even, as the host does.
template <class To>
struct Convert {
  template <class From>
  To operator()(From value) const {
    return static_cast<To>(value);
  }
};

// (-1)^s 2^(e-15) 1.m; subnormals, infinities and NaNs as in IEEE 754.
struct WidenHalf {
  float operator()(uint16_t bits) const {
    const int exponent = bits >> 10 & 0x1f;
    const int mantissa = bits & 0x3ff;
    float value = 0.0f;
    if (exponent == 0x1f) {
      value = mantissa == 0 ? std::numeric_limits<float>::infinity()
                            : std::numeric_limits<float>::quiet_NaN();
    } else if (exponent == 0) {
      value = std::ldexp(static_cast<float>(mantissa), -24);
    } else {
      value = std::ldexp(static_cast<float>(mantissa + 0x400), exponent - 25);
    }
    return std::copysign(value, (bits & 0x8000) != 0 ? -1.0f : 1.0f);
  }
};

template <uint64_t kWindow>
struct ToGeneric {
  uint64_t operator()(uint64_t address) const { return address + kWindow; }
};

template <uint64_t kWindow>
void FromGeneric(const Instruction& instruction, Lanes* lanes) {
  const uint64_t* const from = lanes->Source(instruction, 0);
  uint64_t* const to = lanes->Result(instruction, 0);
  lanes->ForEach([=](int lane) {
    to[lane] = from[lane] - kWindow;
    if (to[lane] >= kWindowBytes) lanes->Fail(lane, "of another space");
  });
}

template <class To, class From>
constexpr Handler kConvert = &Unary<From, Convert<To>>;

void AddIntegers(OpcodeTable* table) {
  const auto add = [table](const char* name, Handler handler) {
    (*table)[name] = Plain(handler, 1);
  };
  add("cvt.s64.s32", kConvert<int64_t, int32_t>);
  add("cvt.u64.u32", kConvert<uint64_t, uint32_t>);
  add("cvt.s64.s16", kConvert<int64_t, int16_t>);
  add("cvt.u64.u16", kConvert<uint64_t, uint16_t>);
  add("cvt.u32.u64", kConvert<uint32_t, uint64_t>);
  add("cvt.s32.s64", kConvert<uint32_t, uint64_t>);
  add("cvt.s32.s16", kConvert<int32_t, int16_t>);
  add("cvt.u32.u16", kConvert<uint32_t, uint16_t>);
  add("cvt.s32.s8", kConvert<int32_t, int8_t>);
  add("cvt.u32.u8", kConvert<uint32_t, uint8_t>);
  add("cvt.u16.u32", kConvert<uint16_t, uint32_t>);
  add("cvt.u16.u64", kConvert<uint16_t, uint64_t>);
  add("cvt.s16.s8", kConvert<int16_t, int8_t>);
  add("cvt.u16.u8", kConvert<uint16_t, uint8_t>);
}

template <class To>
void AddFromIntegers(const std::string& to, OpcodeTable* table) {
  const auto add = [&](const char* from, Handler handler) {
    (*table)["cvt.rn." + to + "." + from] = Plain(handler, 1);
  };
  add("s8", kConvert<To, int8_t>);
  add("u8", kConvert<To, uint8_t>);
  add("s16", kConvert<To, int16_t>);
  add("u16", kConvert<To, uint16_t>);
  add("s32", kConvert<To, int32_t>);
  add("u32", kConvert<To, uint32_t>);
  add("s64", kConvert<To, int64_t>);
  add("u64", kConvert<To, uint64_t>);
}

}  // namespace

void AddConversions(OpcodeTable* table) {
  AddIntegers(table);
  AddFromIntegers<float>("f32", table);
  AddFromIntegers<double>("f64", table);
  (*table)["cvt.f64.f32"] = Plain(kConvert<double, float>, 1);
  (*table)["cvt.rn.f32.f64"] = Plain(kConvert<float, double>, 1);
  (*table)["cvt.f32.f16"] = UnaryOf<uint16_t, WidenHalf>();
  using U = uint64_t;
  (*table)["cvta.global.u64"] = (*table)["cvta.to.global.u64"] =
      UnaryOf<U, ToGeneric<0>>();
  (*table)["cvta.shared.u64"] = UnaryOf<U, ToGeneric<kSharedWindow>>();
  (*table)["cvta.to.shared.u64"] = Plain(&FromGeneric<kSharedWindow>, 1);
  (*table)["cvta.param.u64"] = UnaryOf<U, ToGeneric<kParameterWindow>>();
  (*table)["cvta.to.param.u64"] = Plain(&FromGeneric<kParameterWindow>, 1);
}

}  // namespace agg::ptx
