// One place for the next round, and a flag until it is reported: a queue would
// let Grams pile up.
#include "server/coordinator/round_reporter.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "server/base/field_error.h"
#include "server/combine/decision.h"
#include "server/combine/outliers.h"
#include "server/combine/rule_table.h"
#include "server/combine/statistics.h"
#include "server/coordinator/round_watches.h"

namespace agg {

// Words and bookkeeping about a round; the numbers are the engine's.

namespace {

void SetCommitDelays(const std::map<int32_t, Contribution>& contributions,
                     RoundReport* report) {
  absl::Time first = absl::InfiniteFuture();
  for (const auto& [rank, contribution] : contributions) {
    first = std::min(first, contribution.committed_at);
  }
  for (ReportedRow& row : report->rows) {
    row.commit_delay = contributions.at(row.rank).committed_at - first;
  }
}

// Excluded ranks include those of incomplete and partial rows and of outliers;
// the rest had a value that is not finite.
std::vector<int32_t> NonFiniteRanks(const RoundReport& report) {
  std::vector<int32_t> ranks = report.decision.excluded_ranks;
  const auto take_out = [&](int32_t rank) {
    ranks.erase(std::remove(ranks.begin(), ranks.end(), rank), ranks.end());
  };
  for (const IncompleteRow& row : report.incomplete_rows) take_out(row.rank);
  for (const PartialRow& row : report.partial_rows) take_out(row.rank);
  for (const OutlierRow& row : report.decision.outliers.rows) {
    take_out(row.rank);
  }
  return ranks;
}

// "what: " and the first names, and how many more there are; "" without names.
std::string NameFirst(absl::string_view what, std::vector<std::string> names) {
  constexpr size_t kMaxNames = 8;
  if (names.empty()) return "";
  if (names.size() > kMaxNames) {
    const size_t num_more = names.size() - kMaxNames;
    names.resize(kMaxNames);
    names.push_back(absl::StrCat(num_more, " more"));
  }
  return absl::StrCat(what, ": ", absl::StrJoin(names, ", "));
}

// Of the rows that are left out for one reason, with the shard that says so.
std::string DescribeLeftOut(const std::vector<IncompleteRow>& rows,
                            bool other_bytes, absl::string_view what) {
  std::vector<std::string> names;
  for (const IncompleteRow& row : rows) {
    if (row.other_bytes != other_bytes) continue;
    names.push_back(
        absl::StrCat("rank ", row.rank, " (shard ", row.shard, ")"));
  }
  return NameFirst(what, std::move(names));
}

std::string DescribePartial(const std::vector<PartialRow>& rows) {
  std::vector<std::string> names;
  for (const PartialRow& row : rows) {
    names.push_back(absl::StrCat("rank ", row.rank, " in ", row.num_tensors,
                                 " of ", row.of, " tensors"));
  }
  return NameFirst(
      "rows that are not finite, or not all there, in part of the tensors "
      "alone",
      std::move(names));
}

std::string DescribeOutliers(const OutlierReport& outliers) {
  if (outliers.too_few_rows) {
    return absl::StrCat("outliers were not looked for: fewer than ",
                        kMinJudgedRows, " rows that are not zero");
  }
  std::vector<std::string> names;
  for (const OutlierRow& row : outliers.rows) {
    names.push_back(absl::StrFormat("rank %d (norm %.3g, %.1f deviations)",
                                    row.rank, row.norm, row.deviations));
  }
  return NameFirst(
      outliers.excluded ? "excluded as outliers" : "outliers, which count",
      std::move(names));
}

std::string DescribeNarrowed(const NarrowedVersion& narrowed) {
  std::vector<std::string> parts;
  if (narrowed.num_infinite > 0) {
    parts.push_back(absl::StrCat(
        narrowed.num_infinite,
        " values of this version are finite, and infinite for who pulls them "
        "narrowed to pull_dtype: tensor ",
        Quoted(narrowed.tensor), " (shard ", narrowed.shard, ")"));
  }
  if (narrowed.has_vanished()) {
    parts.push_back(absl::StrCat(narrowed.num_vanished, " of ",
                                 narrowed.num_compared,
                                 " values that were looked at are not zero, "
                                 "and zero in pull_dtype"));
  }
  if (parts.empty()) return "";
  return absl::StrCat(absl::StrJoin(parts, "; "),
                      "; allowed: pull_dtype \"f32\", or \"bf16\", which has "
                      "float32's range");
}

std::string DescribeEqualRows(const RoundReport& report) {
  if (!report.says_equal_rows) return "";
  std::vector<std::string> names;
  for (const std::vector<int32_t>& ranks : report.decision.equal_ranks) {
    names.push_back(ranks.size() > 4
                        ? absl::StrCat("ranks ", ranks[0], " and ", ranks[1],
                                       " and ", ranks.size() - 2, " more")
                        : absl::StrCat("ranks ", absl::StrJoin(ranks, ", ")));
  }
  return absl::StrCat(
      NameFirst("rows that are equal, round after round", std::move(names)),
      "; workers that compute on the same data add nothing: give each its own "
      "part (a DistributedSampler, a seed by rank)");
}

std::string DescribeSmallSums(const std::vector<int32_t>& ranks) {
  if (ranks.empty()) return "";
  return absl::StrCat(
      "the norm_squared_sum of ranks ", absl::StrJoin(ranks, ","),
      " is less than accumulation times the row's squared norm, which no sum "
      "over its micro-gradients is, and was not used: where the loss was "
      "divided by accumulation, multiply the sum by accumulation^2");
}

std::string DescribeUnusedSums(const std::vector<int32_t>& ranks) {
  if (ranks.empty()) return "";
  return absl::StrCat(
      "the norm_squared_sum of ranks ", absl::StrJoin(ranks, ","),
      " is of all tensors together and was not used for the gains of groups "
      "(step_scale.gain_scope \"per_group\"): each row counts there as one "
      "sample");
}

// What was done other than plainly applying the rule.
std::string Remarks(const RoundReport& report) {
  const Decision& decision = report.decision;
  std::vector<std::string> remarks;
  const auto add = [&](std::string remark) {
    if (!remark.empty()) remarks.push_back(std::move(remark));
  };
  if (report.not_finite.has_value()) {
    add(absl::StrCat(
        "this round's update left parameters that are not finite: tensor ",
        Quoted(report.not_finite->tensor), " (shard ", report.not_finite->shard,
        ")"));
  }
  add(DescribeNarrowed(report.narrowed));
  add(DescribeLeftOut(report.incomplete_rows, /*other_bytes=*/false,
                      "excluded, committed but not completely pushed"));
  add(DescribeLeftOut(report.incomplete_rows, /*other_bytes=*/true,
                      "excluded, pushed with other bytes than the commit's "
                      "checksum says"));
  add(DescribePartial(report.partial_rows));
  const std::vector<int32_t> non_finite = NonFiniteRanks(report);
  if (!non_finite.empty()) {
    remarks.push_back(absl::StrCat("excluded non-finite rows of ranks ",
                                   absl::StrJoin(non_finite, ",")));
  }
  add(DescribeOutliers(decision.outliers));
  add(DescribeEqualRows(report));
  add(DescribeSmallSums(decision.small_sum_ranks));
  add(DescribeUnusedSums(decision.unused_sum_ranks));
  if (report.moments_of.has_value()) {
    add(absl::StrCat("the optimizer's moments began anew: ", report.num_batches,
                     " baseline batches after ", *report.moments_of));
  }
  if (decision.compensated) remarks.push_back("used compensated Grams");
  if (decision.short_of_rows) {
    remarks.push_back(
        absl::StrCat(report.combination.rule,
                     " had fewer rows than 2 byzantine_workers + 3"));
  }
  if (!decision.external_fallback.empty()) {
    remarks.push_back(absl::StrCat(
        "the external rule gave no weights, and its fallback was applied: ",
        decision.external_fallback));
  }
  if (decision.adacons_fallback) {
    remarks.push_back("the AdaCons guard fell back to the mean");
  }
  return absl::StrJoin(remarks, "; ");
}

// What none of the rows of `ranks` had; both are in the order of the ranks.
std::vector<int32_t> AbsentTensors(const RoundReport& report,
                                   const std::vector<int32_t>& ranks) {
  std::optional<std::string> absent;
  for (const ReportedRow& row : report.rows) {
    if (!std::binary_search(ranks.begin(), ranks.end(), row.rank)) continue;
    const std::string& lacks = row.absent_tensors;
    if (!absent.has_value()) absent = lacks;
    absent->resize(std::min(absent->size(), lacks.size()));
    for (size_t byte = 0; byte < absent->size(); ++byte) {
      (*absent)[byte] = static_cast<char>((*absent)[byte] & lacks[byte]);
    }
  }
  std::vector<int32_t> tensors;
  const std::string bits = absent.value_or("");
  for (size_t i = 0; i < 8 * bits.size(); ++i) {
    if (((static_cast<uint8_t>(bits[i / 8]) >> (i % 8)) & 1) != 0) {
      tensors.push_back(static_cast<int32_t>(i));
    }
  }
  return tensors;
}

}  // namespace

void CompleteReport(const ClosingRound& round, absl::Time finished_at,
                    RoundReport* report) {
  const std::string remarks = Remarks(*report);
  if (!remarks.empty()) {
    absl::StrAppend(&report->message, report->message.empty() ? "" : "; ",
                    remarks);
  }
  report->durations.wait = round.waited;
  SetCommitDelays(round.contributions, report);
  report->finished_at = finished_at;
}

RoundResult OutcomeOf(const RoundReport& report) {
  const Decision& decision = report.decision;
  RoundResult outcome;
  outcome.epoch = report.epoch;
  outcome.round = report.round;
  outcome.version = report.version;
  outcome.kind = report.applied ? OutcomeKind::kApplied : OutcomeKind::kSkipped;
  outcome.excluded_ranks = decision.excluded_ranks;
  for (const RowInfo& row : report.rows) {
    if (report.applied &&
        std::count(decision.excluded_ranks.begin(),
                   decision.excluded_ranks.end(), row.rank) == 0) {
      outcome.ranks.push_back(row.rank);
    }
  }
  outcome.learning_rate = decision.learning_rate;
  outcome.gain = decision.gain;
  outcome.tau = decision.tau;
  outcome.orthogonality = decision.orthogonality;
  outcome.finished = decision.finished;
  outcome.message = report.message;
  outcome.loss = report.loss;
  outcome.combined_norm = decision.combined_norm;
  outcome.combination = report.combination;
  outcome.absent_tensors = AbsentTensors(report, outcome.ranks);
  const PhaseDurations& took = report.durations;
  outcome.ended_at = report.finished_at;
  outcome.wait = took.wait;
  outcome.work = took.gram + took.compensated + took.decide + took.norms +
                 took.update + took.publish;
  const ReplicaGroups replicas = GroupReplicas(report);
  outcome.differing_ranks = replicas.differing;
  if (replicas.differ()) {
    absl::StrAppend(&outcome.message, outcome.message.empty() ? "" : "; ",
                    replicas.Text());
  }
  return outcome;
}

// A bounded list: what is older is in the round log, if there is one.
void RecentRounds::Add(const RoundReport& report, RoundResult outcome) {
  outcomes_.push_back(std::move(outcome));
  if (outcomes_.size() > kNumKept) outcomes_.pop_front();
  tensor_orthogonality_.clear();
  for (const SegmentReport& tensor : report.decision.tensors) {
    tensor_orthogonality_.push_back(tensor.orthogonality);
  }
}

std::optional<RoundResult> RecentRounds::last_outcome() const {
  if (outcomes_.empty()) return std::nullopt;
  return outcomes_.back();
}

RoundReporter::RoundReporter(Callback on_report, uint64_t tensor_grams_every)
    : on_report_(std::move(on_report)),
      tensor_grams_every_(tensor_grams_every) {}

RoundReporter::~RoundReporter() {
  if (!thread_.joinable()) return;
  Flush();
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void RoundReporter::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void RoundReporter::Add(RoundFacts facts, RoundReport report) {
  newest_ = {report.epoch, report.version};
  Round round{std::move(facts), std::move(report)};
  if (!thread_.joinable()) {
    Finish(std::move(round));
    return;
  }
  MutexLock lock(&mutex_);
  while (busy_) changed_.Wait(&mutex_);
  busy_ = true;
  next_.emplace(std::move(round));
  changed_.NotifyAll();
}

void RoundReporter::Flush() {
  MutexLock lock(&mutex_);
  while (busy_) changed_.Wait(&mutex_);
}

std::vector<std::vector<RuleState>> RoundReporter::ShadowRules() {
  Flush();
  return shadow_rules_;
}

void RoundReporter::SetShadowRules(std::vector<std::vector<RuleState>> states) {
  Flush();
  shadow_rules_ = std::move(states);
}

void RoundReporter::Loop() {
  for (;;) {
    std::optional<Round> round;
    {
      MutexLock lock(&mutex_);
      while (!next_.has_value() && !stopped_) changed_.Wait(&mutex_);
      if (!next_.has_value()) return;
      round = std::exchange(next_, std::nullopt);
    }
    Finish(*std::exchange(round, std::nullopt));
    MutexLock lock(&mutex_);
    busy_ = false;
    changed_.NotifyAll();
  }
}

void RoundReporter::AskShadows(const RoundReport& report, RoundFacts* facts) {
  // Statistics look at no other round's rows.
  if (report.decision.kind != DecisionKind::kApply ||
      facts->rows.num_rows() == 0 || ask_rule_ == nullptr) {
    return;
  }
  const CombineOptions& combine = facts->combine;
  for (size_t s = 0; s < combine.shadow_rules.size(); ++s) {
    const RuleOptions& shadow = combine.shadow_rules[s];
    if (!shadow.rule->Has(kIsExternal)) continue;
    absl::Span<const RuleState> states;
    if (s < shadow_rules_.size()) states = shadow_rules_[s];
    facts->rows.external.push_back(
        ask_rule_(combine, shadow, facts->rows, states, facts->words));
  }
}

void RoundReporter::Finish(Round round) {
  // Nothing is left to compute one from that was restored.
  if (!round.report.restored) {
    AskShadows(round.report, &round.facts);
    round.report.statistics = ComputeStatistics(
        round.facts.combine, round.facts.rule_before, round.facts.rows,
        round.report.decision, &shadow_rules_);
    // A round that failed before its Grams came has one tensor of zeros, which
    // are no tensor's Grams.
    if (tensor_grams_every_ > 0 &&
        round.report.version % tensor_grams_every_ == 0 &&
        round.facts.rows.tensors.size() ==
            round.report.decision.tensors.size()) {
      round.report.statistics.tensor_grams = TensorGrams(round.facts.rows);
    }
  }
  // Before people are told, which may take its time.
  round.facts = RoundFacts();
  if (on_report_ != nullptr) on_report_(round.report);
}

}  // namespace agg
