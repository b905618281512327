// What single instructions do, beside values worked out from the PTX ISA.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/ptx/global_memory.h"
#include "tests/kernels/cuda/ptx/small_kernel.h"

namespace agg::ptx {
namespace {

using Outputs = std::vector<uint64_t>;

// What each of 32 threads has in %rd1.
Outputs RunLanes(const std::string& body) {
  alignas(16) uint64_t in[2] = {};
  Outputs out(32);
  GlobalMemory memory;
  memory.Add(in, sizeof(in), false);
  memory.Add(out.data(), 32 * 8, true);
  SmallKernel kernel;
  kernel.body = absl::StrCat(body, "\nst.global.u64 [%out], %rd1;");
  const absl::Status status = RunSmall(kernel, in, out.data(), &memory);
  EXPECT_TRUE(status.ok()) << body << ": " << status;
  return out;
}

uint64_t Bits64(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
uint64_t Bits32(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
std::string F(float value) {
  return absl::StrCat("0f", absl::Hex(Bits32(value), absl::kZeroPad8));
}
std::string D(double value) {
  return absl::StrCat("0d", absl::Hex(Bits64(value), absl::kZeroPad16));
}

// Of "opcode operands" with a result of 16 or 32 bits, of 64, a float, a
// predicate.
uint64_t Word(const std::string& opcode, const std::string& operands) {
  return RunLanes(
      absl::StrCat(opcode, " %r1, ", operands, ";\ncvt.u64.u32 %rd1, %r1;"))[0];
}
uint64_t Long(const std::string& opcode, const std::string& operands) {
  return RunLanes(absl::StrCat(opcode, " %rd1, ", operands, ";"))[0];
}
uint64_t Float(const std::string& opcode, const std::string& operands) {
  return RunLanes(
      absl::StrCat(opcode, " %f1, ", operands,
                   ";\nmov.b32 %r1, %f1;\ncvt.u64.u32 %rd1, %r1;"))[0];
}
uint64_t Double(const std::string& opcode, const std::string& operands) {
  return RunLanes(
      absl::StrCat(opcode, " %fd1, ", operands, ";\nmov.b64 %rd1, %fd1;"))[0];
}
bool Holds(const std::string& opcode, const std::string& operands) {
  return RunLanes(absl::StrCat(opcode, " %p1, ", operands,
                               ";\nselp.u64 %rd1, 1, 0, %p1;"))[0] == 1;
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(PtxInstructionsTest, Integers) {
  EXPECT_EQ(Word("add.s32", "2147483647, 1"), 0x80000000u);
  EXPECT_EQ(Word("sub.s32", "3, 5"), 0xfffffffeu);
  EXPECT_EQ(Long("add.s64", "-1, 2"), 1u);
  EXPECT_EQ(Word("mul.lo.s32", "-3, 5"), 0xfffffff1u);
  EXPECT_EQ(Word("mad.lo.s32", "-3, 5, 16"), 1u);
  EXPECT_EQ(Long("mul.wide.s32", "-3, 5"), static_cast<uint64_t>(-15));
  EXPECT_EQ(Long("mul.wide.u32", "-1, -1"), 0xfffffffe00000001u);
  EXPECT_EQ(Word("mul.wide.u16", "65535, 65535"), 0xfffe0001u);
  EXPECT_EQ(Word("mul.hi.u32", "-1, -1"), 0xfffffffeu);
  EXPECT_EQ(Word("mul.hi.s32", "-1, 5"), 0xffffffffu);
  EXPECT_EQ(Long("mad.wide.s32", "-3, 5, 16"), 1u);
  EXPECT_EQ(Word("div.s32", "-7, 2"), 0xfffffffdu);
  EXPECT_EQ(Word("rem.s32", "-7, 2"), 0xffffffffu);
  EXPECT_EQ(Word("div.u32", "-7, 2"), 0x7ffffffcu);
  EXPECT_EQ(Word("rem.u32", "7, 4"), 3u);
  EXPECT_EQ(Long("div.s64", "-9, 2"), static_cast<uint64_t>(-4));
  EXPECT_EQ(Word("min.s32", "-1, 2"), 0xffffffffu);
  EXPECT_EQ(Word("min.u32", "-1, 2"), 2u);
  EXPECT_EQ(Word("max.s32", "-1, 2"), 2u);
  EXPECT_EQ(Word("max.u32", "-1, 2"), 0xffffffffu);
  EXPECT_EQ(Word("neg.s32", "5"), 0xfffffffbu);
  EXPECT_EQ(Word("abs.s32", "-5"), 5u);
  // (-1, 2, -128, 127) with (3, -4, 5, -6), and 1000.
  EXPECT_EQ(Word("dp4a.s32.s32", "0x7f8002ff, 0xfa05fc03, 1000"),
            static_cast<uint32_t>(1000 - 3 - 8 - 640 - 762));
}

TEST(PtxInstructionsTest, Bits) {
  EXPECT_EQ(Word("and.b32", "12, 10"), 8u);
  EXPECT_EQ(Word("or.b32", "12, 10"), 14u);
  EXPECT_EQ(Word("xor.b32", "12, 10"), 6u);
  EXPECT_EQ(Word("not.b32", "0"), 0xffffffffu);
  EXPECT_EQ(Word("shl.b32", "3, 31"), 0x80000000u);
  EXPECT_EQ(Word("shl.b32", "3, 32"), 0u);
  EXPECT_EQ(Word("shr.u32", "-1, 28"), 15u);
  EXPECT_EQ(Word("shr.u32", "-1, 40"), 0u);
  EXPECT_EQ(Word("shr.s32", "-16, 2"), 0xfffffffcu);
  EXPECT_EQ(Word("shr.s32", "-16, 40"), 0xffffffffu);
  EXPECT_EQ(Long("shl.b64", "1, 63"), 0x8000000000000000u);
  EXPECT_EQ(Long("shr.s64", "-1, 64"), ~uint64_t{0});
  EXPECT_EQ(Word("prmt.b32", "0x33221100, 0x77665544, 0x7531"), 0x77553311u);
  EXPECT_EQ(Word("prmt.b32", "0x00008000, 0, 0x0009"), 0x000000ffu);
  EXPECT_EQ(Word("shf.l.wrap.b32", "0x80000000, 1, 33"), 3u);
  EXPECT_EQ(Word("shf.r.clamp.b32", "5, 9, 40"), 9u);
  EXPECT_EQ(Word("lop3.b32", "12, 10, 1, 0xc0"), 8u);  // a & b
  EXPECT_EQ(Word("lop3.b32", "12, 10, 1, 0x96"), 7u);  // a ^ b ^ c
  EXPECT_EQ(Word("popc.b32", "0xf0f1"), 9u);
  EXPECT_EQ(Long("mov.b64", "{7, 9}"), 0x900000007u);
  EXPECT_EQ(RunLanes("mov.b64 {%r1, _}, 0x900000007;\n"
                     "cvt.u64.u32 %rd1, %r1;")[0],
            7u);
}

TEST(PtxInstructionsTest, Conversions) {
  EXPECT_EQ(Long("cvt.s64.s32", "-2"), static_cast<uint64_t>(-2));
  EXPECT_EQ(Long("cvt.u64.u32", "-2"), 0xfffffffeu);
  EXPECT_EQ(RunLanes("mov.u16 %rs0, 0x12ff;\ncvt.s16.s8 %rs1, %rs0;\n"
                     "cvt.u64.u16 %rd1, %rs1;")[0],
            0xffffu);
  EXPECT_EQ(Float("cvt.rn.f32.s16", "-5"), Bits32(-5.0f));
  EXPECT_EQ(Double("cvt.rn.f64.s32", "-5"), Bits64(-5.0));
  EXPECT_EQ(Float("cvt.rn.f32.u32", "16777217"), Bits32(16777216.0f));
  // Ties go to the even one.
  EXPECT_EQ(Float("cvt.rn.f32.f64", D(1 + 0x1p-24)), Bits32(1.0f));
  EXPECT_EQ(Float("cvt.rn.f32.f64", D(1 + 0x1p-23 + 0x1p-24)),
            Bits32(1 + 0x1p-22f));
  EXPECT_EQ(Float("cvt.rn.f32.f64", D(0x1p-149)), 1u);
  EXPECT_EQ(Double("cvt.f64.f32", F(0x1p-149f)), Bits64(0x1p-149));
  EXPECT_EQ(Float("cvt.f32.f16", "0x0001"), Bits32(0x1p-24f));
  EXPECT_EQ(Float("cvt.f32.f16", "0x83ff"), Bits32(-1023 * 0x1p-24f));
  EXPECT_EQ(Float("cvt.f32.f16", "0x3c01"), Bits32(1 + 0x1p-10f));
  EXPECT_EQ(Float("cvt.f32.f16", "0x7bff"), Bits32(65504.0f));
  EXPECT_EQ(Float("cvt.f32.f16", "0xfc00"), Bits32(-kInfinity));
  EXPECT_EQ(Float("cvt.f32.f16", "0x8000"), Bits32(-0.0f));
}

TEST(PtxInstructionsTest, Floats) {
  EXPECT_EQ(Float("add.rn.f32", F(1.0f) + ", " + F(0x1p-24f)), Bits32(1.0f));
  EXPECT_EQ(Float("sub.rn.f32", F(1.0f) + ", " + F(0x1p-25f)), Bits32(1.0f));
  EXPECT_EQ(Float("mul.rn.f32", F(0x1p-100f) + ", " + F(0x1p-40f)),
            Bits32(0x1p-140f));
  const std::string x = F(1 + 0x1p-12f);
  EXPECT_EQ(Float("fma.rn.f32", x + ", " + x + ", " + F(-1.0f)),
            Bits32(0x1p-11f + 0x1p-24f));
  const std::string y = D(1 + 0x1p-27);
  EXPECT_EQ(Double("fma.rn.f64", y + ", " + y + ", " + D(-1.0)),
            Bits64(0x1p-26 + 0x1p-54));
  EXPECT_EQ(Float("div.rn.f32", F(1.0f) + ", " + F(3.0f)), 0x3eaaaaabu);
  EXPECT_EQ(Float("sqrt.rn.f32", F(2.0f)), 0x3fb504f3u);
  EXPECT_EQ(Float("neg.f32", F(0.0f)), Bits32(-0.0f));
  EXPECT_EQ(Float("min.f32", F(kNan) + ", " + F(2.0f)), Bits32(2.0f));
  EXPECT_EQ(Float("max.f32", F(-0.0f) + ", " + F(0.0f)), Bits32(0.0f));
}

TEST(PtxInstructionsTest, Comparisons) {
  EXPECT_TRUE(Holds("setp.lt.s32", "-1, 0"));
  EXPECT_FALSE(Holds("setp.lt.u32", "-1, 0"));
  EXPECT_TRUE(Holds("setp.ge.s64", "5, 5"));
  EXPECT_TRUE(Holds("setp.eq.s16", "65535, -1"));
  const std::string nan = F(kNan) + ", " + F(1.0f);
  const std::string numbers = F(0.0f) + ", " + F(-0.0f);
  EXPECT_FALSE(Holds("setp.eq.f32", nan));
  EXPECT_FALSE(Holds("setp.ne.f32", nan));
  EXPECT_FALSE(Holds("setp.lt.f32", nan));
  EXPECT_TRUE(Holds("setp.neu.f32", nan));
  EXPECT_TRUE(Holds("setp.ltu.f32", nan));
  EXPECT_TRUE(Holds("setp.nan.f32", nan));
  EXPECT_TRUE(Holds("setp.eq.f32", numbers));
  EXPECT_TRUE(Holds("setp.num.f32", numbers));
  EXPECT_FALSE(Holds("setp.neu.f32", numbers));
}

TEST(PtxInstructionsTest, LoadsWidenByTheirType) {
  const auto load = [](const std::string& type) {
    return RunLanes(absl::StrCat("st.shared.u32 [%at], 0x1234fff0;\nld.shared.",
                                 type, " %rd1, [%at];"))[0];
  };
  EXPECT_EQ(load("u8"), 0xf0u);
  EXPECT_EQ(load("s8"), static_cast<uint64_t>(-16));
  EXPECT_EQ(load("u16"), 0xfff0u);
  EXPECT_EQ(load("s16"), static_cast<uint64_t>(-16));
  EXPECT_EQ(load("u32"), 0x1234fff0u);
}

// One thread's word by the shared space, the generic one and the parameters'.
TEST(PtxInstructionsTest, SpacesAndGenericAddresses) {
  const Outputs shared = RunLanes(
      "st.shared.u32 [%at], %tid;\ncvt.u64.u32 %rd2, %at;\n"
      "cvta.shared.u64 %rd3, %rd2;\nld.u32 %rd4, [%rd3];\n"
      "cvta.to.shared.u64 %rd5, %rd3;\nld.shared.u32 %rd6, [%rd5];\n"
      "add.s64 %rd1, %rd4, %rd6;");
  for (uint64_t lane = 0; lane < 32; ++lane) EXPECT_EQ(shared[lane], 2 * lane);
  EXPECT_EQ(RunLanes("mov.b64 %rd2, Small_in;\ncvta.param.u64 %rd3, %rd2;\n"
                     "ld.u64 %rd4, [%rd3];\nld.param.u64 %rd5, [%rd2];\n"
                     "add.s64 %rd4, %rd4, %rd5;\nshl.b64 %rd6, %in, 1;\n"
                     "sub.s64 %rd1, %rd4, %rd6;")[0],
            0u);
}

// The lane whose value each lane gets; plus 100 where it is out of range.
Outputs Shuffled(const std::string& mode, const std::string& operands) {
  return RunLanes(absl::StrCat("shfl.sync.", mode, ".b32 %r1|%p1, %tid, ",
                               operands,
                               ", -1;\nselp.u32 %r2, 0, 100, %p1;\n"
                               "add.s32 %r1, %r1, %r2;\n"
                               "cvt.u64.u32 %rd1, %r1;"));
}

TEST(PtxInstructionsTest, Shuffles) {
  const Outputs down = Shuffled("down", "3, 31");
  const Outputs up = Shuffled("up", "3, 0");
  const Outputs butterfly = Shuffled("bfly", "5, 31");
  const Outputs index = Shuffled("idx", "9, 31");
  const Outputs in_halves = Shuffled("down", "3, 0x100f");
  for (uint64_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(down[lane], lane < 29 ? lane + 3 : lane + 100);
    EXPECT_EQ(up[lane], lane >= 3 ? lane - 3 : lane + 100);
    EXPECT_EQ(butterfly[lane], lane ^ 5);
    EXPECT_EQ(index[lane], 9u);
    EXPECT_EQ(in_halves[lane], lane % 16 < 13 ? lane + 3 : lane + 100);
  }
}

TEST(PtxInstructionsTest, Reductions) {
  const std::string wide = ";\ncvt.u64.u32 %rd1, %r1;";
  EXPECT_EQ(RunLanes("redux.sync.add.s32 %r1, %tid, -1" + wide)[7], 496u);
  EXPECT_EQ(RunLanes("redux.sync.or.b32 %r1, %tid, -1" + wide)[7], 31u);
}

// The lanes' places in A, B and C as the ISA draws them, with small integers.
class Fragments {
 public:
  explicit Fragments(int num_rows) : num_rows_(num_rows) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < num_rows / 8; ++i) {
        a_[lane / 4 + 8 * i][lane % 4] = lane + 50 * i;
      }
      b_[lane % 4][lane / 4] = lane * lane;
    }
  }

  // The lane's value `i` of D = A B + C, where all of C is the lane's number.
  double Expected(int lane, int i) const {
    const int row = lane / 4 + (i >= 2 ? 8 : 0);
    const int column = lane % 4 * 2 + i % 2;
    double sum = lane;
    for (int k = 0; k < 4; ++k) sum += a_[row][k] * b_[k][column];
    return sum;
  }

  void Check(const std::string& shape, const std::string& operands) const {
    for (int i = 0; i < num_rows_ / 4; ++i) {
      const Outputs out = RunLanes(absl::StrCat(
          "cvt.rn.f64.u32 %fd0, %tid;\nadd.s32 %r0, %tid, 50;\n"
          "cvt.rn.f64.u32 %fd1, %r0;\nmul.lo.s32 %r1, %tid, %tid;\n"
          "cvt.rn.f64.u32 %fd2, %r1;\nmma.sync.aligned.",
          shape, ".row.col.f64.f64.f64.f64 ", operands, ";\nmov.b64 %rd1, %fd",
          4 + i, ";"));
      for (int lane = 0; lane < 32; ++lane) {
        EXPECT_EQ(out[lane], Bits64(Expected(lane, i))) << lane << "," << i;
      }
    }
  }

 private:
  const int num_rows_;
  double a_[16][4] = {};
  double b_[4][8] = {};
};

TEST(PtxInstructionsTest, MatrixProducts) {
  Fragments(8).Check("m8n8k4", "{%fd4, %fd5}, {%fd0}, {%fd2}, {%fd0, %fd0}");
  Fragments(16).Check("m16n8k4",
                      "{%fd4, %fd5, %fd6, %fd7}, {%fd0, %fd1}, {%fd2}, "
                      "{%fd0, %fd0, %fd0, %fd0}");
}

}  // namespace
}  // namespace agg::ptx
