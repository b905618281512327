// To add a number that people see: compute it where RoundReport, Decision or
// RoundStatistics has its place, and add a row here. Metrics, the status page,
// the round log, reports, traces and agg_combine read this table.
#include "server/round/round_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "server/base/dcheck.h"
#include "server/combine/decision.h"
#include "server/round/round_report.h"

namespace agg {
namespace {

double NumRows(const RoundReport& report) {
  return static_cast<double>(report.rows.size());
}

// server/combine/README.md 7. The noise scale is in examples, so it is divided
// by those of a worker, on average over the rows that were kept.
double UsefulWorkers(const RoundReport& report) {
  const Decision& decision = report.decision;
  if (decision.mu2_mean == 0.0 && decision.sigma2_mean > 0.0) {
    return std::numeric_limits<double>::infinity();  // nothing but noise
  }
  const std::vector<int32_t>& excluded = decision.excluded_ranks;
  double num_examples = 0.0;
  double num_workers = 0.0;
  for (const RowInfo& row : report.rows) {
    if (std::find(excluded.begin(), excluded.end(), row.rank) !=
        excluded.end()) {
      continue;
    }
    num_examples += static_cast<double>(row.examples);
    num_workers += 1.0;
  }
  const double critical =
      report.statistics.gradient_noise_scale * num_workers / num_examples;
  return critical < 1.0 ? 1.0 : critical;  // NaN stays
}

// NaN without any: fmin passes over those of tensors that have none.
double LeastGroupGain(const RoundReport& report) {
  double least = std::numeric_limits<double>::quiet_NaN();
  for (const SegmentReport& tensor : report.decision.tensors) {
    least = std::fmin(least, tensor.gain);
  }
  return least;
}

// Name, unit, help, value, {metric, page, tile, report, trace, step}. Names in
// the braces that are not the number's own are older than the table and stay,
// since dashboards and scripts know them.
constexpr RoundNumber kNumbers[] = {
    {"num_rows",
     "gradients",
     "Gradients in the last applied round, excluded ones included.",
     RoundValue(NumRows),
     {"round_rows", nullptr, nullptr, nullptr, nullptr, nullptr}},
    {"combined_norm",
     "",
     "Norm of the combined gradient over all tensors, after clipping.",
     RoundValue(&Decision::combined_norm),
     {"gradient_norm", "norm", nullptr, nullptr, nullptr, "norm"}},
    {"orthogonality",
     "ratio",
     "Squared norm of Adasum's result over the sum of squared gradient norms: "
     "1 where gradients are orthogonal, 1/P where all P are parallel and of "
     "one length.",
     RoundValue(&Decision::orthogonality),
     {kByName, kByName, kByName, "final orthogonality", kByName, kByName},
     SetBy::kApplied,
     &SegmentReport::orthogonality},
    {"gain",
     "ratio",
     "AdaScale's gain: one-worker steps that this round was worth.",
     RoundValue(&Decision::gain),
     {"gain_ratio", kByName, kByName, "final gain", kByName, kByName}},
    {"next_gain",
     "ratio",
     "Gain of the next round with as many baseline batches, where it is known "
     "before: with averaging \"lagged\".",
     RoundValue(&Decision::next_gain),
     {"next_gain_ratio", nullptr, nullptr, nullptr, nullptr, kByName}},
    {"group_gain",
     "ratio",
     "Gain of the tensor's group, where gains are per group; tensor=\"\" is "
     "the "
     "least of all.",
     RoundValue(LeastGroupGain),
     {"group_gain_ratio", nullptr, nullptr, nullptr, nullptr, nullptr},
     SetBy::kApplied,
     &SegmentReport::gain},
    {"loss",
     "",
     "Mean training loss that the workers sent, by examples.",
     RoundValue(&RoundReport::loss),
     {kByName, kByName, kByName, "final loss", kByName, nullptr},
     SetBy::kEvery},
    {"learning_rate",
     "",
     "Learning rate that was applied.",
     RoundValue(&Decision::learning_rate),
     {kByName, "rate", kByName, "final learning rate", kByName, kByName}},
    {"tau",
     "iterations",
     "Tau: one-worker steps that the rounds were worth.",
     RoundValue(&Decision::tau),
     {"scale_invariant_iterations_total", kByName, "scale-invariant steps",
      "scale-invariant iterations", nullptr, kByName},
     SetBy::kSum},
    {"effective_rank",
     "directions",
     "Independent directions among the gradients, 1 to the number of workers.",
     RoundValue(&RoundStatistics::effective_rank),
     {kByName, "rank", kByName, nullptr, nullptr, nullptr}},
    {"gradient_noise_scale",
     "examples",
     "Critical batch size in examples: beyond it more workers help little.",
     RoundValue(&RoundStatistics::gradient_noise_scale),
     {kByName, "noise", "critical batch", nullptr, nullptr, nullptr}},
    {"useful_workers",
     "workers",
     "Critical batch size in workers: with so many a round is worth half of "
     "what any number could make it.",
     RoundValue(UsefulWorkers),
     {kByName, "useful", kByName, "final useful workers", nullptr, nullptr}},
    {"gradient_diversity",
     "ratio",
     "Sum of squared gradient norms over the squared norm of their sum.",
     RoundValue(&Decision::gradient_diversity),
     {kByName, "diversity", nullptr, nullptr, nullptr, kByName}},
    {"mean_pairwise_cosine",
     "cosine",
     "Mean cosine between two workers' gradients.",
     RoundValue(&RoundStatistics::mean_pairwise_cosine),
     {"pairwise_cosine_mean", "cosine", nullptr, nullptr, nullptr, kByName}},
    {"min_pairwise_cosine",
     "cosine",
     "Least cosine between two workers' gradients.",
     RoundValue(&RoundStatistics::min_pairwise_cosine),
     {"pairwise_cosine_min", "least", nullptr, nullptr, nullptr, nullptr}},
    {"max_kappa",
     "",
     "Cancellation in the Adasum recursion; tensor=\"\" is the largest of all.",
     RoundValue(&RoundStatistics::max_kappa),
     {"adasum_kappa", nullptr, nullptr, nullptr, nullptr, "kappa"},
     SetBy::kApplied,
     &SegmentReport::kappa},
    {"clip_factor",
     "ratio",
     "Factor that clipping applied to the combined gradient; 1 is none.",
     RoundValue(&Decision::clip_factor),
     {kByName, nullptr, nullptr, nullptr, nullptr, kByName}},
    {"coefficient_sum",
     "",
     "Sum of the combination's coefficients: 1 for a mean, P for a sum of P.",
     RoundValue(&RoundStatistics::coefficient_sum),
     {"summed_coefficient", nullptr, nullptr, nullptr, nullptr, nullptr}},
    {"scheduled_learning_rate",
     "",
     "Learning rate of the schedule, before the step scale.",
     RoundValue(&Decision::scheduled_learning_rate),
     {kByName, nullptr, nullptr, nullptr, nullptr, nullptr}},
    {"step_factor",
     "ratio",
     "What the step scale multiplied the scheduled learning rate by.",
     RoundValue(&Decision::step_factor),
     {kByName, nullptr, nullptr, nullptr, nullptr, kByName}},
    {"sigma2",
     "",
     "Variance of a one-worker gradient, as estimated from this round.",
     RoundValue(&Decision::sigma2),
     {kByName, nullptr, nullptr, nullptr, nullptr, kByName}},
    {"mu2",
     "",
     "Squared norm of the true gradient, as estimated from this round.",
     RoundValue(&Decision::mu2),
     {kByName, nullptr, nullptr, nullptr, nullptr, kByName}},
    {"sigma2_mean",
     "",
     "Moving average of sigma2, which the gain is made of.",
     RoundValue(&Decision::sigma2_mean),
     {"sigma2_average", nullptr, nullptr, nullptr, nullptr, kByName}},
    {"mu2_mean",
     "",
     "Moving average of mu2, which the gain is made of.",
     RoundValue(&Decision::mu2_mean),
     {"mu2_average", nullptr, nullptr, nullptr, nullptr, kByName}},
};

}  // namespace

double RoundValue::Get(const RoundReport& report) const {
  if (report_ != nullptr) return report.*report_;
  if (decision_ != nullptr) return report.decision.*decision_;
  if (statistics_ != nullptr) return report.statistics.*statistics_;
  return derive_(report);
}

void RoundValue::Set(double value, RoundReport* report) const {
  AGG_DCHECK(!IsDerived());
  if (report_ != nullptr) report->*report_ = value;
  if (decision_ != nullptr) report->decision.*decision_ = value;
  if (statistics_ != nullptr) report->statistics.*statistics_ = value;
}

absl::Span<const RoundNumber> RoundNumbers() { return kNumbers; }

std::vector<double> ReadRoundNumbers(const RoundReport& report) {
  std::vector<double> values;
  for (const RoundNumber& number : kNumbers) {
    values.push_back(number.value.Get(report));
  }
  return values;
}

std::string NameIn(const RoundNumber& number,
                   const char* RoundOutlets::*outlet) {
  const char* name = number.outlets.*outlet;
  if (name == nullptr) return "";
  return *name == '\0' ? number.name : name;
}

std::string LabelIn(const RoundNumber& number,
                    const char* RoundOutlets::*outlet) {
  return absl::StrReplaceAll(NameIn(number, outlet), {{"_", " "}});
}

}  // namespace agg
