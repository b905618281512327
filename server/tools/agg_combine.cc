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
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "server/base/field_error.h"
#include "server/base/flags.h"
#include "server/base/json.h"
#include "server/base/status_macros.h"
#include "server/base/utf8.h"
#include "server/base/version.h"
#include "server/combine/decision.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/options.h"
#include "server/combine/rule_table.h"
#include "server/round/round_numbers.h"
#include "server/round/round_report.h"
#include "server/tools/combine_step.h"
#include "worker_client/npz/npy.h"

namespace agg {
namespace {

// --- Flags
// -------------------------------------------------------------------- Names
// are read by the tables of server/combine, numbers are checked by its options.

struct CombineFlags {
  std::vector<std::string> gradients;  // .npy files in the order of steps
  std::string output;                  // "": the vector is not written
  CombineStepOptions options;          // validated
  std::string text;  // of --help or --version, to print instead; "": run
};

// Values that are names: server/combine knows them, and says which there are.
struct Names {
  std::string rule, scope;
  std::string adacons_rescale = "none";
  std::string adacons_unsort = "scatter";
  std::string outlier_action = "exclude";
  std::string step_scale = "none";
  std::string averaging = "debiased";
  std::string smoothing_per = "round";
};

// Which numbers make sense, ValidateCombineOptions says.
FlagValue Number(double* out) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return NumberValue(-kInfinity, kInfinity, "a number", out);
}

// "1,2,3"; a later flag replaces an earlier one's list.
FlagValue Counts(std::vector<int64_t>* out) {
  return {"whole numbers from 1 to 2147483647, with commas",
          [out](const std::string& text) {
            out->clear();
            for (absl::string_view part : absl::StrSplit(text, ',')) {
              int32_t count = 0;
              if (!absl::SimpleAtoi(part, &count) || count < 1) return false;
              out->push_back(count);
            }
            return true;
          }};
}

// "a.npy,b.npy"; a later flag adds to the list.
FlagValue Files(std::vector<std::string>* out) {
  return {"paths of .npy files", [out](const std::string& text) {
            for (absl::string_view file : absl::StrSplit(text, ',')) {
              if (file.empty()) return false;
              out->emplace_back(file);
            }
            return true;
          }};
}

std::vector<Flag> FileFlags(CombineFlags* flags) {
  return {
      {"--gradients", "FILES",
       "repeatable, also with commas: .npy files in the order of steps, each "
       "the P x d gradients of one tensor (float16, float32 or float64); P may "
       "differ from step to step, d may not",
       Files(&flags->gradients), /*required=*/true},
      {"--output", "FILE",
       "where to write the last step's combined vector (.npy, float64)",
       TextValue(&flags->output)},
      {"--examples", "COUNTS",
       "per row, with commas, or one number for all rows",
       Counts(&flags->options.examples)},
      {"--accumulation", "COUNTS",
       "micro-gradients averaged in a row; per row or one for all",
       Counts(&flags->options.accumulation)},
  };
}

std::vector<Flag> RuleFlags(Names* names, RuleOptions* rule) {
  return {
      {"--rule", "RULE", "one of the rules above",
       TextValue(&names->rule, "the name of a rule"), /*required=*/true},
      {"--scope", "per_tensor|global",
       "without effect, since there is one tensor", TextValue(&names->scope)},
      {"--kappa_limit", "LIMIT",
       "cancellation above which Adasum, AdaCons and Krum take a compensated "
       "Gram matrix; default 1e10",
       Number(&rule->kappa_limit)},
      {"--adacons_beta", "BETA",
       "momentum of sorted coefficients; default 0.99",
       Number(&rule->adacons.beta)},
      {"--adacons_epsilon", "EPSILON", "added to norms; default 1e-8",
       Number(&rule->adacons.epsilon)},
      {"--adacons_rescale", "none|mean_norm|match_mean", "default: none",
       TextValue(&names->adacons_rescale)},
      {"--adacons_unsort", "scatter|gather",
       "gather as the authors' program does it; default: scatter",
       TextValue(&names->adacons_unsort)},
  };
}

std::vector<Flag> RobustFlags(Names* names, CombineOptions* combine) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  RuleOptions* const rule = &combine->rule;
  return {
      {"--krum_byzantine_workers", "COUNT",
       "rows that krum and multi_krum take for byzantine; default 1",
       NumberValue(0, kMost, "0 or more", &rule->krum.byzantine_workers)},
      {"--krum_selected", "COUNT",
       "rows that multi_krum averages; default 0: all but the byzantine ones",
       NumberValue(0, kMost, "0 or more", &rule->krum.selected)},
      {"--geometric_median_iterations", "COUNT", "at most; default 64",
       NumberValue(1, kMost, "1 or more", &rule->geometric_median.iterations)},
      {"--geometric_median_epsilon", "EPSILON",
       "the least distance, of the median norm; default 1e-6",
       Number(&rule->geometric_median.epsilon)},
      {"--outliers_max_deviations", "COUNT",
       "rows whose norm is farther from the median are outliers; default 0: "
       "none are",
       Number(&combine->outliers.max_deviations)},
      {"--outliers_action", "exclude|warn", "default: exclude",
       TextValue(&names->outlier_action)},
  };
}

std::vector<Flag> StepScaleFlags(Names* names, StepScaleOptions* scale) {
  return {
      {"--step_scale", "none|linear|sqrt|adascale|adamscale", "default: none",
       TextValue(&names->step_scale)},
      {"--averaging", "debiased|paper|lagged",
       "default: debiased; lagged takes a step into the averages after its "
       "gain",
       TextValue(&names->averaging)},
      {"--clip_before_average", "",
       "clip estimates before averaging (fairscale; the default) or, =false, "
       "after (AdaptDL)",
       SwitchValue(&scale->clip_before_average)},
      {"--smoothing", "FACTOR",
       "of averages, [0, 1); default: negative, which is max(1 - C/1000, 0), C "
       "the step's micro-gradients",
       Number(&scale->smoothing)},
      {"--smoothing_per", "round|baseline_batch",
       "baseline_batch: a step of N baseline batches has FACTOR^N (AdaptDL, "
       "with 0.999); default: round",
       TextValue(&names->smoothing_per)},
      {"--variance_floor", "FLOOR", "least sigma^2; default 1e-6",
       Number(&scale->variance_floor)},
      {"--relative_floor", "FLOOR",
       "least sigma^2, times the mean squared norm; default 0",
       Number(&scale->relative_floor)},
      {"--baseline_examples", "COUNT",
       "examples of a baseline batch; default 0: count by accumulation",
       Number(&scale->baseline_examples)},
      {"--force", "", "let adascale and adamscale scale other rules than means",
       SwitchValue(&scale->force)},
  };
}

std::vector<Flag> StepFlags(CombineOptions* combine) {
  return {
      {"--learning_rate", "RATE", "before the step scale's factor; default 1",
       Number(&combine->schedule.learning_rate)},
      {"--clip_norm", "NORM", "of the combined vector; default 0: off",
       Number(&combine->clip_norm)},
      {"--scale_invariant_iterations", "COUNT",
       "report finished once tau reaches this; default 0: never",
       Number(&combine->scale_invariant_iterations)},
  };
}

// A line for each rule of the table.
std::string RuleSummaries() {
  std::string text;
  for (const Rule& rule : Rules()) {
    if (rule.Has(kIsExternal)) continue;
    absl::StrAppend(&text, "\n  ", rule.name, ": ", rule.summary);
  }
  return text;
}

Program AggCombine(CombineFlags* flags, Names* names) {
  CombineOptions* combine = &flags->options.combine;
  Program program;
  program.name = "agg_combine";
  program.summary = absl::StrCat(
      "agg_combine: combines gradients offline by the server's rules.\n"
      "Prints one line of JSON per step; undefined values are null.\n"
      "Rules:",
      RuleSummaries());
  program.version = absl::StrCat("agg_combine ", kVersion, "\n");
  for (const std::vector<Flag>& part :
       {RuleFlags(names, &combine->rule), FileFlags(flags),
        RobustFlags(names, combine),
        StepScaleFlags(names, &combine->step_scale), StepFlags(combine)}) {
    program.flags.insert(program.flags.end(), part.begin(), part.end());
  }
  return program;
}

// The parsed name into *value; the first error into *status.
template <typename T>
void Take(const absl::StatusOr<T>& parsed, T* value, absl::Status* status) {
  if (parsed.ok()) {
    *value = *parsed;
  } else {
    status->Update(parsed.status());
  }
}

absl::Status TakeNames(const Names& names, CombineOptions* combine) {
  absl::Status status;
  RuleOptions& rule = combine->rule;
  Take(ParseRule("--rule", names.rule), &rule.rule, &status);
  if (rule.rule->Has(kIsExternal)) {
    status.Update(FieldError(
        "--rule", Quoted(rule.rule->name),
        "a rule that is computed here: a process beside a job decides this "
        "one (agg.serve_rule)"));
  }
  // With one tensor both scopes are the same combination, except that AdaCons
  // guards against all-zero gradients in its own scope only.
  rule.scope = rule.rule->default_scope;
  if (!names.scope.empty()) {
    status.Update(ParseScope("--scope", names.scope).status());
  }
  Take(ParseAdaconsRescale("--adacons_rescale", names.adacons_rescale),
       &rule.adacons.rescale, &status);
  Take(ParseAdaconsUnsort("--adacons_unsort", names.adacons_unsort),
       &rule.adacons.unsort, &status);
  Take(ParseOutlierAction("--outliers_action", names.outlier_action),
       &combine->outliers.action, &status);
  Take(ParseStepScale("--step_scale", names.step_scale),
       &combine->step_scale.kind, &status);
  Take(ParseAveraging("--averaging", names.averaging),
       &combine->step_scale.averaging, &status);
  Take(ParseSmoothingPer("--smoothing_per", names.smoothing_per),
       &combine->step_scale.smoothing_per, &status);
  return status;
}

// INVALID_ARGUMENT in one line that names the flag (or, for a value that no
// rule takes, the option of the configuration), its value and what is allowed.
absl::StatusOr<CombineFlags> ParseCombineFlags(
    const std::vector<std::string>& arguments) {
  CombineFlags flags;
  Names names;
  CombineOptions& combine = flags.options.combine;
  combine.schedule.learning_rate = 1.0;
  AGG_ASSIGN_OR_RETURN(const ParsedFlags parsed,
                       ParseFlags(AggCombine(&flags, &names), arguments));
  flags.text = parsed.text;
  if (!flags.text.empty()) return flags;
  absl::Status status = TakeNames(names, &combine);
  status.Update(ValidateCombineOptions(combine));
  if (!status.ok()) return status;
  return flags;
}

// --- One step as a line of JSON ---------------------------------------------

// The step as a round of the server, which the table reads numbers from.
RoundReport ReportOf(const CombineStepResult& result) {
  constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
  RoundReport report;
  report.applied = result.decision.kind == DecisionKind::kApply;
  report.decision = result.decision;
  report.statistics = result.statistics;
  // One matrix is one tensor: its own value is the largest.
  report.statistics.max_kappa = result.decision.tensors[0].kappa;
  report.loss = kUndefined;
  if (!report.applied) {
    report.decision.combined_norm = kUndefined;
    report.decision.gain = kUndefined;
  }
  return report;
}

Json MatrixJson(const GramMatrix& gram) {
  Json rows = Json::array();
  for (int i = 0; i < gram.num_rows(); ++i) {
    std::vector<double> row;
    for (int j = 0; j < gram.num_rows(); ++j) row.push_back(gram(i, j));
    rows.push_back(ExactNumbers(row));
  }
  return rows;
}

std::vector<int32_t> OutlierRanks(const OutlierReport& outliers) {
  std::vector<int32_t> ranks;
  for (const OutlierRow& row : outliers.rows) ranks.push_back(row.rank);
  return ranks;
}

// One step as a line of JSON. Members: step, file, coefficients, gram; the
// numbers that RoundNumbers() has for agg_combine, by their names there;
// fallback (compensated or adacons_fallback), compensated, adacons_fallback,
// short_of_rows (Krum took fewer rows for byzantine than it was told), excluded
// (rows), outliers (rows, excluded or not), outliers_not_judged (there were too
// few rows to look for any), finished, skipped (the reason). Undefined and
// infinite values are null. No newline.
std::string CombineStepLine(int64_t step, const std::string& file,
                            const CombineStepResult& result) {
  const Decision& decision = result.decision;
  const RoundReport report = ReportOf(result);
  Json line;
  line["step"] = step;
  line["file"] = file;
  line["coefficients"] = ExactNumbers(decision.coefficients[0]);
  line["gram"] = MatrixJson(result.gram);
  for (const RoundNumber& number : RoundNumbers()) {
    const std::string name = NameIn(number, &RoundOutlets::step);
    if (!name.empty()) line[name] = ExactNumber(number.value.Get(report));
  }
  line["fallback"] = decision.compensated || decision.adacons_fallback;
  line["compensated"] = decision.compensated;
  line["adacons_fallback"] = decision.adacons_fallback;
  line["short_of_rows"] = decision.short_of_rows;
  line["excluded"] = decision.excluded_ranks;
  line["taken_for_zero"] = result.taken_for_zero;
  line["outliers"] = OutlierRanks(decision.outliers);
  line["outliers_not_judged"] = decision.outliers.too_few_rows;
  line["finished"] = decision.finished;
  line["skipped"] = report.applied ? Json() : Json(decision.skip_reason);
  return JsonLine(line);
}

// --- The program
// --------------------------------------------------------------

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
