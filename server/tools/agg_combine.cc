// agg_combine: the server's combination rules on gradients dumped to files.
//
//   agg_combine --rule=R [--step_scale=S] [rule options]
//       --gradients=step0.npy [--gradients=step1.npy ...] [--output=out.npy]
//
// Exit codes: 0 done; 1 the output cannot be written; 2 a bad flag or a
// malformed file. Errors are one line on stderr.
#include <signal.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/base/utf8.h"
#include "server/tools/combine_flags.h"
#include "server/tools/combine_step.h"
#include "server/tools/step_line.h"
#include "worker_client/npz/npy.h"

namespace agg {
namespace {

constexpr int kExitOutput = 1;
constexpr int kExitInput = 2;

int Fail(const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "agg_combine: %s\n",
               Shown(status.message(), /*keep_lines=*/true).c_str());
  return exit_code;
}

int CombineFiles(const CombineFlags& flags) {
  CombineStepState state;
  std::vector<double> combined;
  int64_t num_elements = -1;
  for (const std::string& file : flags.gradients) {
    const absl::StatusOr<NpyMatrix> matrix = ReadNpyMatrix(file);
    if (!matrix.ok()) return Fail(matrix.status(), kExitInput);
    if (num_elements >= 0 && matrix->num_elements != num_elements) {
      return Fail(
          absl::InvalidArgumentError(absl::StrCat(
              file, ": rows of ", matrix->num_elements, " elements, but ",
              num_elements, " in ", flags.gradients[0])),
          kExitInput);
    }
    num_elements = matrix->num_elements;
    const int64_t step = state.step;
    absl::StatusOr<CombineStepResult> result =
        RunCombineStep(flags.options, *matrix, &state);
    if (!result.ok()) return Fail(result.status(), kExitInput);
    std::printf("%s\n", CombineStepLine(step, file, *result).c_str());
    combined = std::move(result->combined);
  }
  // Also what failed while an earlier line was flushed.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return Fail(absl::UnavailableError("stdout cannot be written"),
                kExitOutput);
  }
  if (flags.output.empty()) return 0;
  const absl::Status written = WriteNpyVector(flags.output, combined);
  return written.ok() ? 0 : Fail(written, kExitOutput);
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<CombineFlags> flags = ParseCombineFlags(arguments);
  if (!flags.ok()) return Fail(flags.status(), kExitInput);
  if (!flags->text.empty()) {
    std::fputs(flags->text.c_str(), stdout);
    return 0;
  }
  return CombineFiles(*flags);
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  signal(SIGXFSZ, SIG_IGN);  // a file's limit is an error, and not the end
  return agg::Main(std::vector<std::string>(argv + 1, argv + argc));
}
