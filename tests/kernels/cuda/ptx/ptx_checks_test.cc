// What the interpreter refuses, each with a kernel that does it, and beside it
// the kernel that does it right.
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/ptx/global_memory.h"
#include "tests/kernels/cuda/ptx/small_kernel.h"

namespace agg::ptx {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kNumSeeds = 6;

class PtxChecksTest : public testing::Test {
 protected:
  absl::Status RunOne(const SmallKernel& kernel) {
    GlobalMemory memory;
    memory.Add(in_, sizeof(in_), /*writable=*/false);
    memory.Add(out_, sizeof(out_), /*writable=*/true);
    return RunSmall(kernel, in_, out_, &memory);
  }

  static SmallKernel KernelOf(const std::string& body, unsigned num_threads) {
    SmallKernel kernel;
    kernel.body = body;
    kernel.num_threads = num_threads;
    return kernel;
  }

  // Whoever runs first.
  void ExpectFault(const std::string& body, const std::string& what,
                   unsigned num_threads = 32) {
    SmallKernel kernel = KernelOf(body, num_threads);
    for (kernel.seed = 0; kernel.seed < kNumSeeds; ++kernel.seed) {
      const absl::Status status = RunOne(kernel);
      EXPECT_FALSE(status.ok()) << "seed " << kernel.seed;
      EXPECT_THAT(std::string(status.message()), HasSubstr(what));
    }
  }

  void ExpectOk(const std::string& body, unsigned num_threads = 32) {
    SmallKernel kernel = KernelOf(body, num_threads);
    for (kernel.seed = 0; kernel.seed < kNumSeeds; ++kernel.seed) {
      const absl::Status status = RunOne(kernel);
      EXPECT_TRUE(status.ok()) << "seed " << kernel.seed << ": " << status;
    }
  }

  alignas(64) uint64_t in_[64] = {};
  uint64_t gap_[8] = {};  // nobody's
  alignas(64) uint64_t out_[256] = {};
};

TEST_F(PtxChecksTest, RefusesUnknownInstructions) {
  for (const std::string unknown :
       {"add.ftz.f32 %f0, 0f00000000, 0f00000000;",
        "div.approx.f32 %f0, 0f00000000, 0f3F800000;",
        "ex2.approx.f32 %f0, 0f00000000;", "setp.lt.s32 %p0|%p1, 0, 1;",
        "ld.local.u32 %r0, [%in];", "add.s32 %r0, 1;"}) {
    const absl::Status status = RunOne(KernelOf(unknown, 32));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << unknown;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(unknown.substr(0, unknown.find(' '))));
    EXPECT_THAT(std::string(status.message()), HasSubstr("PTX line 27"));
  }
  ExpectFault("mov.u32 %r0, %clock;", "unknown register %clock");
  ExpectFault("mov.u32 %r0, nothing;", "unknown name nothing");
  ExpectFault("bra $nowhere;", "unknown label");
}

TEST_F(PtxChecksTest, RefusesWhatTheTargetHasNot) {
  SmallKernel kernel = KernelOf(
      "mov.f64 %fd0, 0d0000000000000000;\n"
      "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 "
      "{%fd1,%fd2,%fd3,%fd4}, {%fd0,%fd0}, {%fd0}, {%fd0,%fd0,%fd0,%fd0};",
      32);
  EXPECT_TRUE(RunOne(kernel).ok());
  kernel.target = 80;
  EXPECT_THAT(std::string(RunOne(kernel).message()), HasSubstr("for sm_80"));
}

TEST_F(PtxChecksTest, RefusesUndefinedRegisters) {
  ExpectFault("add.s32 %r0, %r1, 1;", "undefined register");
  ExpectFault("@%p0 mov.u32 %r0, 0;", "undefined predicate");
  // Defined in some lanes only.
  const std::string half = "setp.lt.u32 %p0, %tid, 16;\n@%p0 mov.u32 %r1, 0;\n";
  ExpectFault(half + "add.s32 %r0, %r1, 1;", "undefined register");
  ExpectOk(half + "@%p0 add.s32 %r0, %r1, 1;");
}

TEST_F(PtxChecksTest, RefusesSharedMemoryThatNobodyHasWritten) {
  ExpectFault("ld.shared.u32 %r0, [%at];", "nobody has written");
  ExpectOk("st.shared.u32 [%at], 1;\nld.shared.u32 %r0, [%at];");
  ExpectFault("st.shared.u16 [%at], 1;\nld.shared.u32 %r0, [%at];",
              "nobody has written");
}

// Each thread writes its word and reads the one of the thread `offset` on.
std::string WriteThenRead(const std::string& between, int offset) {
  return absl::StrCat(
      "st.shared.u32 [%at], %tid;\n", between, "\nadd.s32 %r1, %tid, ", offset,
      ";\nand.b32 %r1, %r1, 63;\nshl.b32 %r1, %r1, 2;\nmov.u32 %r2, memory;\n"
      "add.s32 %r1, %r1, %r2;\nld.shared.u32 %r0, [%r1];");
}

TEST_F(PtxChecksTest, RefusesReadsThatRaceWithWrites) {
  // Or the memory has not been written yet.
  ExpectFault(WriteThenRead("", 32), ", at 0x", 64);
  ExpectFault(WriteThenRead("bar.warp.sync -1;", 32), ", at 0x", 64);
  ExpectOk(WriteThenRead("bar.sync 0;", 32), 64);
}

TEST_F(PtxChecksTest, RefusesRacesWithinAWarp) {
  const std::string all = "st.shared.u32 [%at+128], %tid;\n";
  ExpectFault(all + WriteThenRead("", 1), ", at 0x", 32);
  ExpectOk(all + WriteThenRead("", 0), 32);
  // The warp's last thread reads what the first has written behind its end.
  ExpectOk(all + WriteThenRead("bar.warp.sync 0xffffffff;", 1), 32);
  // An exchange of registers is no barrier for memory.
  ExpectFault(
      all + WriteThenRead("shfl.sync.down.b32 %r5|%p1, %tid, 1, 31, -1;", 1),
      "race: reads", 32);
}

TEST_F(PtxChecksTest, RefusesWritesThatRaceWithReads) {
  const auto kernel = [](const std::string& barrier) {
    return WriteThenRead("bar.sync 0;", 1) + barrier +
           "\nst.shared.u32 [%at], 0;";
  };
  ExpectFault(kernel(""), "race: ", 64);
  // Or the other warp reads later.
  ExpectFault(kernel("bar.warp.sync -1;"), "race: ", 64);
  ExpectOk(kernel("bar.sync 0;"), 64);
  ExpectFault("mov.u32 %r0, memory;\nst.shared.u32 [%r0], %tid;",
              "race: overwrites what another thread has written");
}

// Copies 16 bytes per thread of 16 threads.
std::string CopyThen(const std::string& then) {
  return "shl.b32 %r1, %tid, 4;\nmov.u32 %r2, memory;\n"
         "add.s32 %r1, %r1, %r2;\n"
         "cvt.u64.u32 %rd1, %tid;\nshl.b64 %rd1, %rd1, 4;\n"
         "add.s64 %rd1, %in, %rd1;\n"
         "cp.async.cg.shared.global [%r1], [%rd1], 16;\n" +
         then;
}

TEST_F(PtxChecksTest, RefusesCopiesThatNobodyWaitedFor) {
  const std::string read = "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r1];";
  const std::string commit = "cp.async.commit_group;\n";
  const std::string wait = "cp.async.wait_group 0;\n";
  ExpectOk(CopyThen(commit + wait + read), 16);
  ExpectOk(CopyThen("cp.async.wait_all;\n" + read), 16);
  ExpectFault(CopyThen(commit + read + wait), "has not brought yet", 16);
  // The wait is for groups, and for all but the last one.
  ExpectFault(CopyThen(wait + read), "has not brought yet", 16);
  ExpectFault(CopyThen(commit + "cp.async.wait_group 1;\n" + read),
              "has not brought yet", 16);
  ExpectOk(CopyThen(commit + commit + "cp.async.wait_group 1;\n" + read), 16);
  ExpectFault(CopyThen("st.shared.u32 [%r1], 0;\n" + commit + wait),
              "copy is under way", 16);
  ExpectFault(CopyThen(commit), "ends before its asynchronous copies", 16);
}

TEST_F(PtxChecksTest, RefusesCopiesOfOthersWithoutABarrier) {
  const std::string wait = "cp.async.commit_group;\ncp.async.wait_group 0;\n";
  const std::string read = "xor.b32 %r1, %r1, 16;\nld.shared.u32 %r4, [%r1];";
  ExpectFault(CopyThen(wait + read), ", at 0x", 16);
  ExpectFault(CopyThen("bar.sync 0;\n" + wait + read), ", at 0x", 16);
  ExpectOk(CopyThen(wait + "bar.sync 0;\n" + read), 16);
}

TEST_F(PtxChecksTest, RefusesWhatIsNotAligned) {
  ExpectFault("ld.global.u64 %rd1, [%in+4];", "not aligned");
  ExpectFault("ld.v2.u64 {%rd1, %rd2}, [%in+8];", "not aligned");
  ExpectFault("st.shared.v2.u32 [%at], {%tid, %tid};", "not aligned", 2);
  ExpectFault(
      "mov.u32 %r1, memory;\n"
      "cp.async.cg.shared.global [%r1], [%in+8], 16;",
      "not aligned", 1);
  ExpectFault(
      "mov.u32 %r1, memory;\n"
      "cp.async.ca.shared.global [%r1], [%in+2], 4;",
      "not aligned", 1);
}

TEST_F(PtxChecksTest, RefusesWhatIsOutOfBounds) {
  ExpectOk("ld.global.u64 %rd1, [%in+504];");
  ExpectFault("ld.global.u64 %rd1, [%in+512];", "reads outside of all memory");
  ExpectFault("ld.global.u64 %rd1, [0];", "reads outside of all memory");
  ExpectFault("st.global.u64 [%out+2048], %rd0;",
              "writes outside of all memory");
  ExpectFault("st.global.u64 [%in], %rd0;", "read only");
  ExpectFault("st.shared.u32 [%at+512], 0;", "outside of the shared variables",
              1);
  ExpectFault("st.shared.u32 [%at+4096], 0;", "outside of shared memory", 1);
  ExpectFault("ld.param.u64 %rd1, [Small_out+8];", "outside of the parameters");
  ExpectFault("cvta.to.shared.u64 %rd1, %in;", "of another space");
  // Of 16 bytes at the end those that are read count.
  const std::string copy =
      "mov.u32 %r1, memory;\ncp.async.cg.shared.global [%r1], [%in+512], 16, ";
  ExpectOk(copy + "0;\ncp.async.wait_all;", 1);
  // Words go through the L1 cache alone.
  const std::string word =
      "shared.global [%r1], [%in+508], 4;\ncp.async.wait_all;";
  ExpectOk("mov.u32 %r1, memory;\ncp.async.ca." + word, 1);
  ExpectFault("mov.u32 %r1, memory;\ncp.async.cg." + word, "copies a size", 1);
  ExpectFault(copy + "1;\ncp.async.wait_all;", "reads outside of all memory",
              1);
}

TEST_F(PtxChecksTest, RefusesRacesInGlobalMemory) {
  ExpectFault("sub.s64 %out, %out, %rd0;\nst.global.u32 [%out], %tid;",
              "race: writes global memory");
  ExpectOk("sub.s64 %out, %out, %rd0;\nst.global.u32 [%out], 1;");
  ExpectFault(
      "st.global.u32 [%out], 1;\nxor.b64 %out, %out, 8;\n"
      "ld.global.u32 %r1, [%out];",
      "race: ");
}

TEST_F(PtxChecksTest, RefusesThreadsThatWaitForEver) {
  const std::string half = "setp.lt.u32 %p0, %tid, 16;\n";
  const std::string stuck = "waits for threads that have ended";
  ExpectFault(half + "@%p0 ret;\nbar.sync 0;", stuck);
  ExpectFault(half + "@%p0 bar.sync 0;", stuck, 64);
  ExpectFault(half + "@%p0 bar.warp.sync -1;", stuck);
  ExpectFault(half + "@%p0 redux.sync.or.b32 %r1, %tid, -1;", stuck);
  // The same, but at two places of the text.
  ExpectFault(half +
                  "@%p0 bra $else;\nredux.sync.or.b32 %r1, %tid, -1;\n"
                  "bra.uni $end;\n$else:\n"
                  "redux.sync.or.b32 %r1, %tid, -1;\n$end:\n",
              stuck);
  ExpectFault("redux.sync.or.b32 %r1, %tid, 0xffff;", "not all lanes");
  ExpectOk(half + "@!%p0 bra $over;\n$over:\nbar.sync 0;", 64);
}

TEST_F(PtxChecksTest, RefusesLaunchesThatDoNotFit) {
  ExpectOk("", 128);
  ExpectFault("", "129 threads, at most 128", 129);
}

// 64 threads add up what they have read from shared memory, apart and together.
TEST_F(PtxChecksTest, ResultsDoNotDependOnTheOrder) {
  SmallKernel kernel = KernelOf(
      WriteThenRead("bar.sync 0;", 5) +
          "\nsetp.lt.u32 %p0, %r0, 20;\n@%p0 bra $small;\n"
          "mul.lo.s32 %r0, %r0, 3;\nbra.uni $end;\n$small:\n"
          "mov.u32 %r5, 0;\n$loop:\nadd.s32 %r5, %r5, 7;\n"
          "setp.lt.u32 %p1, %r5, %r0;\n@%p1 bra $loop;\nmov.u32 %r0, %r5;\n"
          "$end:\ncvt.u64.u32 %rd1, %r0;\nst.global.u64 [%out], %rd1;",
      64);
  for (kernel.seed = 0; kernel.seed < 20; ++kernel.seed) {
    ASSERT_TRUE(RunOne(kernel).ok());
    for (uint64_t t = 0; t < 64; ++t) {
      const uint64_t read = (t + 5) % 64;
      const uint64_t stepped = read == 0 ? 7 : (read + 6) / 7 * 7;
      EXPECT_EQ(out_[t], read < 20 ? stepped : 3 * read) << kernel.seed;
    }
  }
}

}  // namespace
}  // namespace agg::ptx
