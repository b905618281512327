#include "tests/kernels/cuda/ptx/small_kernel.h"

#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tests/kernels/cuda/ptx/decoder.h"
#include "tests/kernels/cuda/ptx/global_memory.h"
#include "tests/kernels/cuda/ptx/interpreter.h"
#include "tests/kernels/cuda/ptx/parser.h"

namespace agg::ptx {
namespace {

constexpr char kBegin[] = R"(
.address_size 64
.shared .align 16 .b8 memory[512];
.shared .align 16 .b8 other[64];
.visible .entry Small(.param .u64 Small_in, .param .u64 Small_out)
.maxntid 128, 1, 1
{
  .reg .pred %p<32>;
  .reg .b16 %rs<32>;
  .reg .b32 %tid, %at, %r<32>;
  .reg .b64 %in, %out, %rd<32>;
  .reg .f32 %f<32>;
  .reg .f64 %fd<32>;
  {
    .reg .b32 %base;
    mov.u32 %tid, %tid.x;
    mov.u32 %base, memory;
    shl.b32 %at, %tid, 2;
    add.s32 %at, %at, %base;
    ld.param.u64 %in, [Small_in];
    ld.param.u64 %out, [Small_out];
    mul.wide.u32 %rd0, %tid, 8;
    add.s64 %out, %out, %rd0;
    mov.u32 %base, other;  // so that the kernel has it
  }
)";

}  // namespace

absl::Status RunSmall(const SmallKernel& kernel, const void* in, void* out,
                      GlobalMemory* memory) {
  const std::string text =
      absl::StrCat(".version 8.0\n.target sm_", kernel.target, kBegin,
                   kernel.body, "\n  ret;\n}\n");
  const auto module = Parse(text);
  if (!module.ok()) return module.status();
  const auto program = Decode(*module, module->entries.at("Small"));
  if (!program.ok()) return program.status();
  char parameters[16];
  std::memcpy(parameters, &in, sizeof(in));
  std::memcpy(parameters + 8, &out, sizeof(out));
  Launch launch;
  launch.grid = {kernel.num_blocks, 1, 1};
  launch.block = {kernel.num_threads, 1, 1};
  launch.parameters = parameters;
  launch.seed = kernel.seed;
  return Run(*program, launch, memory);
}

}  // namespace agg::ptx
