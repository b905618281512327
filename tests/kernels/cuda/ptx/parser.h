// Reads PTX (its ISA, chapters 4 to 7 and 11) as far as nvcc writes it for
// kernels without calls: entries, registers, shared variables, statements.
#ifndef AGG_TESTS_KERNELS_CUDA_PTX_PARSER_H_
#define AGG_TESTS_KERNELS_CUDA_PTX_PARSER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/kernels/cuda/ptx/module.h"

namespace agg::ptx {

// INVALID_ARGUMENT, with the line, for what is no such text, a name that is not
// declared included. Directives for debuggers and .pragma are skipped; any
// other that is not known is an error.
absl::StatusOr<Module> Parse(absl::string_view text);

}  // namespace agg::ptx

#endif  // AGG_TESTS_KERNELS_CUDA_PTX_PARSER_H_
