// agg_combine: the server's combination rules on gradients dumped to files.
//
//   agg_combine --rule=R [--step_scale=S] [rule options]
//       --gradients=step0.npy [--gradients=step1.npy ...] [--output=out.npy]
//
// Exit codes: 0; 1 for an unknown flag or an output that cannot be written; 2
// for a malformed file or a flag's bad value, with one line on stderr.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/combine/options.h"
#include "server/tools/combine_step.h"
#include "server/tools/step_line.h"
#include "worker_client/npz/npy_reader.h"
#include "worker_client/npz/npy_writer.h"

ABSL_FLAG(std::string, rule, "",
          "required: sum, mean, weighted_mean, unit_mean, adasum, "
          "adasum_counted or adacons");
ABSL_FLAG(std::string, gradients, "",
          "required, repeatable, also with commas: .npy files in the order of "
          "steps, each the P x d gradients of one tensor (float16, float32 or "
          "float64); P may differ from step to step, d may not");
ABSL_FLAG(std::string, output, "",
          "where to write the last step's combined vector (.npy, float64)");
ABSL_FLAG(std::string, scope, "",
          "per_tensor or global; without effect, since there is one tensor");
ABSL_FLAG(double, kappa_limit, 1e10,
          "cancellation above which Adasum takes a compensated Gram matrix");
ABSL_FLAG(double, adacons_beta, 0.99, "momentum of sorted coefficients");
ABSL_FLAG(double, adacons_epsilon, 1e-8, "added to norms");
ABSL_FLAG(std::string, adacons_rescale, "none",
          "none, mean_norm or match_mean");
ABSL_FLAG(std::string, step_scale, "none",
          "none, linear, sqrt, adascale or adamscale");
ABSL_FLAG(std::string, averaging, "debiased", "debiased or paper");
ABSL_FLAG(bool, clip_before_average, true,
          "clip estimates before averaging (fairscale) or after (AdaptDL)");
ABSL_FLAG(double, smoothing, -1.0,
          "of averages, [0, 1); negative: max(1 - N/1000, 0)");
ABSL_FLAG(double, variance_floor, 1e-6, "least sigma^2");
ABSL_FLAG(double, relative_floor, 0.0,
          "least sigma^2, times the mean squared norm");
ABSL_FLAG(double, baseline_examples, 0.0,
          "examples of a baseline batch; 0: count by accumulation");
ABSL_FLAG(bool, force, false,
          "let adascale and adamscale scale other rules than means");
ABSL_FLAG(double, learning_rate, 1.0, "before the step scale's factor");
ABSL_FLAG(double, clip_norm, 0.0, "of the combined vector; 0: off");
ABSL_FLAG(double, scale_invariant_iterations, 0.0,
          "report finished once tau reaches this; 0: never");
ABSL_FLAG(std::vector<std::string>, examples, {},
          "per row, with commas, or one number for all rows");
ABSL_FLAG(std::vector<std::string>, accumulation, {},
          "micro-gradients averaged in a row; per row or one for all");

namespace agg {
namespace {

constexpr int kExitOutput = 1;
constexpr int kExitInput = 2;

// Takes every --gradients out of the command line, since Abseil's flags keep
// only the last of several.
std::vector<std::string> TakeGradients(std::vector<char*>* arguments) {
  std::vector<std::string> files;
  std::vector<char*> rest;
  for (size_t i = 0; i < arguments->size(); ++i) {
    absl::string_view argument = (*arguments)[i];
    if (argument == "--") {
      rest.insert(rest.end(), arguments->begin() + i, arguments->end());
      break;
    }
    if (absl::StartsWith(argument, "--")) argument.remove_prefix(1);
    absl::string_view value;
    if (absl::StartsWith(argument, "-gradients=")) {
      value = argument.substr(argument.find('=') + 1);
    } else if (argument == "-gradients" && i + 1 < arguments->size()) {
      value = (*arguments)[++i];
    } else {
      rest.push_back((*arguments)[i]);
      continue;
    }
    for (absl::string_view file : absl::StrSplit(value, ',')) {
      files.emplace_back(file);
    }
  }
  *arguments = std::move(rest);
  return files;
}

// The parsed value into *value; the first error into *status.
template <typename T>
void Take(absl::StatusOr<T> parsed, T* value, absl::Status* status) {
  if (parsed.ok()) {
    *value = *parsed;
  } else {
    status->Update(parsed.status());
  }
}

void TakeCounts(absl::string_view name, const std::vector<std::string>& texts,
                std::vector<int64_t>* counts, absl::Status* status) {
  for (const std::string& text : texts) {
    int64_t count = 0;
    if (!absl::SimpleAtoi(text, &count) || count < 1 ||
        count > std::numeric_limits<int32_t>::max()) {
      status->Update(absl::InvalidArgumentError(
          absl::StrCat("--", name, " holds \"", text,
                       "\": must be whole numbers from 1 to 2147483647")));
    }
    counts->push_back(count);
  }
}

RuleOptions RuleFromFlags(absl::Status* status) {
  RuleOptions rule;
  Take(ParseRule(absl::GetFlag(FLAGS_rule)), &rule.rule, status);
  // With one tensor both scopes are the same combination; AdaCons' own flags
  // its guard for all-zero gradients, too.
  rule.scope = DefaultScope(rule.rule);
  if (!absl::GetFlag(FLAGS_scope).empty()) {
    status->Update(ParseScope(absl::GetFlag(FLAGS_scope)).status());
  }
  rule.kappa_limit = absl::GetFlag(FLAGS_kappa_limit);
  rule.adacons.beta = absl::GetFlag(FLAGS_adacons_beta);
  rule.adacons.epsilon = absl::GetFlag(FLAGS_adacons_epsilon);
  Take(ParseAdaconsRescale(absl::GetFlag(FLAGS_adacons_rescale)),
       &rule.adacons.rescale, status);
  return rule;
}

StepScaleOptions StepScaleFromFlags(absl::Status* status) {
  StepScaleOptions scale;
  Take(ParseStepScale(absl::GetFlag(FLAGS_step_scale)), &scale.kind, status);
  Take(ParseAveraging(absl::GetFlag(FLAGS_averaging)), &scale.averaging,
       status);
  scale.clip_before_average = absl::GetFlag(FLAGS_clip_before_average);
  scale.smoothing = absl::GetFlag(FLAGS_smoothing);
  scale.variance_floor = absl::GetFlag(FLAGS_variance_floor);
  scale.relative_floor = absl::GetFlag(FLAGS_relative_floor);
  scale.baseline_examples = absl::GetFlag(FLAGS_baseline_examples);
  scale.force = absl::GetFlag(FLAGS_force);
  return scale;
}

absl::StatusOr<CombineStepOptions> OptionsFromFlags() {
  absl::Status status;
  CombineStepOptions options;
  CombineOptions& combine = options.combine;
  combine.rule = RuleFromFlags(&status);
  combine.step_scale = StepScaleFromFlags(&status);
  combine.schedule.learning_rate = absl::GetFlag(FLAGS_learning_rate);
  combine.clip_norm = absl::GetFlag(FLAGS_clip_norm);
  combine.scale_invariant_iterations =
      absl::GetFlag(FLAGS_scale_invariant_iterations);
  TakeCounts("examples", absl::GetFlag(FLAGS_examples), &options.examples,
             &status);
  TakeCounts("accumulation", absl::GetFlag(FLAGS_accumulation),
             &options.accumulation, &status);
  status.Update(ValidateCombineOptions(combine));
  if (!status.ok()) return status;
  return options;
}

int Fail(const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "agg_combine: %s\n",
               std::string(status.message()).c_str());
  return exit_code;
}

int CombineFiles(const CombineStepOptions& options,
                 const std::vector<std::string>& files) {
  CombineStepState state;
  std::vector<double> combined;
  int64_t num_elements = -1;
  for (const std::string& file : files) {
    const absl::StatusOr<NpyMatrix> matrix = ReadNpyMatrix(file);
    if (!matrix.ok()) return Fail(matrix.status(), kExitInput);
    if (num_elements >= 0 && matrix->num_elements != num_elements) {
      return Fail(absl::InvalidArgumentError(absl::StrCat(
                      file, ": rows of ", matrix->num_elements,
                      " elements, but ", num_elements, " in ", files[0])),
                  kExitInput);
    }
    num_elements = matrix->num_elements;
    const int64_t step = state.step;
    absl::StatusOr<CombineStepResult> result =
        RunCombineStep(options, *matrix, &state);
    if (!result.ok()) return Fail(result.status(), kExitInput);
    std::printf("%s\n", CombineStepLine(step, file, *result).c_str());
    combined = std::move(result->combined);
  }
  if (std::fflush(stdout) != 0) {
    return Fail(absl::UnavailableError("stdout cannot be written"),
                kExitOutput);
  }
  const std::string output = absl::GetFlag(FLAGS_output);
  if (output.empty()) return 0;
  const absl::Status written = WriteNpyVector(output, combined);
  return written.ok() ? 0 : Fail(written, kExitOutput);
}

int Main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "combines gradients offline by the server's rules.\n"
      "agg_combine --rule=R [--step_scale=S] [rule options] "
      "--gradients=step0.npy [--gradients=step1.npy ...] "
      "[--output=out.npy]\n"
      "Prints one line of JSON per step; undefined values are null.");
  std::vector<char*> arguments(argv, argv + argc);
  std::vector<std::string> files = TakeGradients(&arguments);
  const std::vector<char*> positional = absl::ParseCommandLine(
      static_cast<int>(arguments.size()), arguments.data());
  // What is left of it came from --flagfile.
  const std::string more = absl::GetFlag(FLAGS_gradients);
  if (!more.empty()) {
    for (absl::string_view file : absl::StrSplit(more, ',')) {
      files.emplace_back(file);
    }
  }
  if (positional.size() > 1) {
    return Fail(absl::InvalidArgumentError(absl::StrCat(
                    "unexpected argument \"", positional[1], "\"")),
                kExitInput);
  }
  if (absl::GetFlag(FLAGS_rule).empty()) {
    return Fail(absl::InvalidArgumentError("--rule is required"), kExitInput);
  }
  if (files.empty()) {
    return Fail(absl::InvalidArgumentError("--gradients is required"),
                kExitInput);
  }
  const absl::StatusOr<CombineStepOptions> options = OptionsFromFlags();
  if (!options.ok()) return Fail(options.status(), kExitInput);
  return CombineFiles(*options, files);
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) { return agg::Main(argc, argv); }
