// setp: 9.7.6. The plain comparisons of floats are false for a NaN (but for
// ne: that is (a != b) of numbers), the ones with a u are true.
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>

#include "tests/kernels/cuda/ptx/elementwise.h"
#include "tests/kernels/cuda/ptx/opcode_table.h"

namespace agg::ptx {
namespace {

enum class Relation { kEq, kNe, kLt, kLe, kGt, kGe };

template <Relation kRelation, bool kUnordered>
struct Compare {
  template <class T>
  bool operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a) || std::isnan(b)) return kUnordered;
    }
    switch (kRelation) {
      case Relation::kEq:
        return a == b;
      case Relation::kNe:
        return a != b;
      case Relation::kLt:
        return a < b;
      case Relation::kLe:
        return a <= b;
      case Relation::kGt:
        return a > b;
      case Relation::kGe:
        return a >= b;
    }
    return false;
  }
};

struct AreNumbers {
  template <class T>
  bool operator()(T a, T b) const {
    return !std::isnan(a) && !std::isnan(b);
  }
};
struct IsNan {
  template <class T>
  bool operator()(T a, T b) const {
    return std::isnan(a) || std::isnan(b);
  }
};

template <class T, bool kUnordered>
void AddRelations(const std::string& suffix, OpcodeTable* table) {
  const auto add = [&](const char* name, Handler handler) {
    (*table)["setp." + std::string(name) + suffix] = Plain(handler, 2);
  };
  add("eq", &Binary<T, T, Compare<Relation::kEq, kUnordered>>);
  add("ne", &Binary<T, T, Compare<Relation::kNe, kUnordered>>);
  add("lt", &Binary<T, T, Compare<Relation::kLt, kUnordered>>);
  add("le", &Binary<T, T, Compare<Relation::kLe, kUnordered>>);
  add("gt", &Binary<T, T, Compare<Relation::kGt, kUnordered>>);
  add("ge", &Binary<T, T, Compare<Relation::kGe, kUnordered>>);
}

template <class Unsigned, class Signed>
void AddIntegers(const std::string& bits, OpcodeTable* table) {
  AddRelations<Signed, false>(".s" + bits, table);
  AddRelations<Unsigned, false>(".u" + bits, table);
  for (const std::string name : {"setp.eq.", "setp.ne."}) {
    (*table)[name + "b" + bits] = (*table)[name + "u" + bits];
  }
}

template <class T>
void AddFloats(const std::string& type, OpcodeTable* table) {
  AddRelations<T, false>(type, table);
  AddRelations<T, true>("u" + type, table);
  (*table)["setp.num" + type] = BinaryOf<T, T, AreNumbers>();
  (*table)["setp.nan" + type] = BinaryOf<T, T, IsNan>();
}

}  // namespace

void AddComparisons(OpcodeTable* table) {
  AddIntegers<uint16_t, int16_t>("16", table);
  AddIntegers<uint32_t, int32_t>("32", table);
  AddIntegers<uint64_t, int64_t>("64", table);
  AddFloats<float>(".f32", table);
  AddFloats<double>(".f64", table);
}

}  // namespace agg::ptx
