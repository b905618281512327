// First the sums of a round: trust ratios, Grams, orthogonality. Then a round
// from above: Run is the diagram of the header; the Grams' half, the
// optimizer's step, and what is kept between rounds.
#include "server/coordinator/round_engine.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/optimizer_step.h"
#include "kernels/optimizer_table.h"
#include "server/base/dcheck.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/combine/decision.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/outliers.h"
#include "server/combine/rule_table.h"
#include "server/combine/step_scale.h"
#include "server/coordinator/job_record.h"
#include "server/round/shard_peer.h"

namespace agg {

// Two formulas; the header says which optimizer takes which one, and why.

namespace {

// An update so small that the ratio does not fit float32 counts as 0, where the
// ratio is 1: infinity times it would not be finite.
float InFloat(double ratio) {
  return ratio <= FLT_MAX ? static_cast<float>(ratio) : 1.0f;
}

}  // namespace

float TrustRatio(const OptimizerOptions& optimizer, double weight_decay,
                 const TensorNorms& norms) {
  const double parameter = std::sqrt(norms.parameter_norm_squared);
  const double update = std::sqrt(norms.update_norm_squared);
  if (!(parameter > 0.0) || !(update > 0.0)) return 1.0f;
  switch (LineOf(optimizer.kind).trust_norm) {
    case TrustNorm::kNone:
      return 1.0f;
    case TrustNorm::kGradient:
      return InFloat(static_cast<double>(optimizer.trust_coefficient) *
                     parameter /
                     (update + weight_decay * parameter +
                      static_cast<double>(optimizer.epsilon)));
    case TrustNorm::kDirection:
      return InFloat(parameter / update);
  }
  return 1.0f;
}

GramSums::GramSums(const ShardPlan& plan, const std::vector<int32_t>& tensors,
                   int num_rows, bool compensated)
    : plan_(plan),
      tensors_(tensors),
      num_rows_(num_rows),
      compensated_(compensated),
      sums_(tensors.size()) {}

bool GramSums::Fits(const SliceGram& gram) const {
  const size_t packed = static_cast<size_t>(PackedGramSize(num_rows_));
  return gram.slice >= 0 &&
         static_cast<size_t>(gram.slice) < plan_.slices.size() &&
         gram.hi.size() == packed &&
         gram.lo.size() == (compensated_ ? packed : 0);
}

// Most tensors have one slice, whose Gram becomes the sum without a copy.
void GramSums::AddNext(SliceGram gram, Sum* sum) const {
  GramMatrix next =
      GramMatrix::FromPacked(num_rows_, std::move(gram.hi), std::move(gram.lo));
  if (sum->num_added++ == 0) {
    if (!compensated_) {
      sum->gram = std::move(next);
      return;
    }
    // Added to zeros, which renormalises its pairs.
    sum->gram = GramMatrix(num_rows_, compensated_);
  }
  sum->gram.Add(next);
}

void GramSums::Add(SliceGram gram) {
  if (!Fits(gram)) return;
  const int32_t tensor = plan_.slices[gram.slice].tensor;
  const auto place = std::lower_bound(tensors_.begin(), tensors_.end(), tensor);
  if (place == tensors_.end() || *place != tensor) return;
  // A sum begins with 0, which makes -0 to 0. Done here, outside of the lock.
  for (double& value : gram.hi) value += 0.0;
  const std::vector<int32_t>& slices = plan_.slices_of_tensor[tensor];
  MutexLock lock(&mutex_);
  Sum& sum = sums_[static_cast<size_t>(place - tensors_.begin())];
  if (sum.num_added == slices.size() || gram.slice < slices[sum.num_added]) {
    return;
  }
  sum.early.emplace(gram.slice, std::move(gram));
  while (!sum.early.empty() &&
         sum.early.begin()->first == slices[sum.num_added]) {
    AddNext(std::move(sum.early.begin()->second), &sum);
    sum.early.erase(sum.early.begin());
  }
}

absl::StatusOr<std::vector<GramMatrix>> GramSums::Take() {
  MutexLock lock(&mutex_);
  std::vector<GramMatrix> grams;
  grams.reserve(sums_.size());
  for (size_t i = 0; i < sums_.size(); ++i) {
    const std::vector<int32_t>& slices = plan_.slices_of_tensor[tensors_[i]];
    if (sums_[i].num_added < slices.size()) {
      const int32_t slice = slices[sums_[i].num_added];
      return absl::InternalError(absl::StrCat(
          "the partial Gram of slice ", slice, ", shard ",
          plan_.slices[slice].shard, ", is missing or has another size"));
    }
    grams.push_back(slices.empty() ? GramMatrix(num_rows_, compensated_)
                                   : std::move(sums_[i].gram));
  }
  return grams;
}

namespace {

// Entries of matrices below which threads cost more than they save: some 5 ms
// of one thread (10,000 tensors of 64 rows are 41 million).
constexpr size_t kMinEntries = size_t{1} << 21;
// Shards of the same host need CPUs, too.
constexpr unsigned kMaxThreads = 4;
constexpr size_t kTensorsPerTurn = 16;

}  // namespace

// Threads are made for each round that is worth them: beside its milliseconds
// they cost nothing, and a small job has none.
OrthogonalityTask::OrthogonalityTask(const RuleOptions& rule,
                                     const CompactedRound& round,
                                     const Decision& decision)
    : rule_(rule), round_(round) {
  if (!decision.lacks_orthogonality) return;
  results_.resize(round.tensors.size());
  const size_t num_rows = static_cast<size_t>(round.num_rows());
  if (results_.size() * num_rows * num_rows < kMinEntries) return;
  const unsigned num_threads =
      std::clamp(std::thread::hardware_concurrency(), 1u, kMaxThreads);
  for (unsigned i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
}

OrthogonalityTask::~OrthogonalityTask() { Join(); }

void OrthogonalityTask::Work() {
  for (;;) {
    const size_t begin = next_.fetch_add(kTensorsPerTurn);
    if (begin >= results_.size()) return;
    const size_t count = std::min(kTensorsPerTurn, results_.size() - begin);
    SolvePlainAdasum(round_, begin,
                     absl::MakeSpan(results_).subspan(begin, count));
  }
}

void OrthogonalityTask::Join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void OrthogonalityTask::Finish(Decision* decision) {
  Work();
  Join();
  ReportOrthogonality(rule_, round_, results_, decision);
}

// Grams are kept as they came: which rows are whole is known at the end.

void WavedRound::Add(const std::vector<int>& rows, const std::vector<int>& used,
                     GramMatrix gram, const std::string& why) {
  for (size_t row = 0; row < num_left_out_.size(); ++row) {
    if (!std::binary_search(used.begin(), used.end(), static_cast<int>(row))) {
      ++num_left_out_[row];
    }
  }
  if (used.empty() && num_unchanged_++ == 0) why_unchanged_ = why;
  tensors_.push_back({rows, std::move(gram)});
}

std::vector<PartialRow> WavedRound::PartialRows(
    absl::Span<const RowInfo> rows) const {
  std::vector<PartialRow> partial;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (num_left_out_[row] == 0) continue;
    partial.push_back({rows[row].rank,
                       static_cast<int>(num_tensors()) - num_left_out_[row],
                       static_cast<int>(num_tensors())});
  }
  return partial;
}

CompactedRound WavedRound::TakeWhole(absl::Span<const RowInfo> rows) {
  std::vector<int> whole;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (num_left_out_[row] == 0) whole.push_back(static_cast<int>(row));
  }
  std::vector<GramMatrix> grams;
  if (!whole.empty()) {
    for (Tensor& tensor : tensors_) {
      std::vector<int> places;
      for (const int row : whole) {
        places.push_back(static_cast<int>(
            std::lower_bound(tensor.rows.begin(), tensor.rows.end(), row) -
            tensor.rows.begin()));
      }
      grams.push_back(places.size() == tensor.rows.size()
                          ? std::move(tensor.gram)
                          : tensor.gram.Compact(places));
    }
  }
  CompactedRound round = CompactRound(rows, whole, std::move(grams));
  round.num_tensors = num_tensors();
  return round;
}

namespace {

bool Contains(const std::vector<IncompleteRow>& rows, int32_t rank) {
  return std::any_of(
      rows.begin(), rows.end(),
      [rank](const IncompleteRow& row) { return row.rank == rank; });
}

// Whether a shard that has only offered the close has to close by this phase.
bool NeedsClose(const Phase& phase) {
  return phase.wave == 0 &&
         (phase.kind == PhaseKind::kCompensatedGram ||
          phase.kind == PhaseKind::kNorms ||
          (phase.kind == PhaseKind::kUpdate && !phase.publish.unchanged));
}

}  // namespace

double RoundEngine::MeanLoss(
    const std::map<int32_t, Contribution>& contributions,
    const std::vector<IncompleteRow>& incomplete) {
  double sum = 0.0;
  double examples = 0.0;
  for (const auto& [rank, contribution] : contributions) {
    const CommitInfo& info = contribution.info;
    if (!info.loss.has_value() || !std::isfinite(*info.loss) ||
        Contains(incomplete, rank)) {
      continue;
    }
    const double weight = static_cast<double>(info.row.examples);
    sum += weight * *info.loss;
    examples += weight;
  }
  return examples > 0.0 ? sum / examples
                        : std::numeric_limits<double>::quiet_NaN();
}

void RoundEngine::Lap(absl::Time* mark, absl::Duration* duration) {
  const absl::Time now = absl::Now();
  *duration += now - *mark;
  *mark = now;
}

RoundFacts RoundEngine::TakeFacts() {
  return {combine_, std::move(rule_before_),
          std::exchange(input_, CompactedRound()), words_};
}

// --- One round ---------------------------------------------------------------

absl::StatusOr<RoundReport> RoundEngine::Run(
    uint64_t round, const std::map<int32_t, Contribution>& contributions,
    CloseOffers offers) {
  unpublished_.reset();
  RoundReport report = Begin(round, contributions);
  offers_ = std::move(offers);
  offers_.resize(static_cast<size_t>(peers_->size()));

  // close -> gram -> [compensated gram] -> coefficients. Nothing has changed on
  // the shards when this fails, so that it can be tried again.
  AGG_RETURN_IF_ERROR(DecideOrSkip(&report));
  report.loss = MeanLoss(contributions, report.incomplete_rows);
  OrthogonalityTask orthogonality(combine_.rule, input_, report.decision);

  // -> [norms -> trust] -> update. From the first coefficients on, a failure
  // may leave shards with different parameters: the epoch is over (P9).
  report.applied = report.decision.kind == DecisionKind::kApply;
  if (!report.applied) report.message = report.decision.skip_reason;
  CompareBatches(&report);
  SetNextRecord(report);
  absl::Status status =
      report.applied ? Step(&report) : PrepareUnchanged(report);

  // -> publish, which a step without second copies has done.
  const bool published = report.applied && !options_.replicated;
  if (status.ok() && !published) status = PublishRound(&report);

  // The outcome says it.
  absl::Time mark = absl::Now();
  orthogonality.Finish(&report.decision);
  if (!status.ok()) {
    // Shards may have it: then the next epoch begins there.
    unpublished_.emplace(std::move(report));
    return status;
  }
  Lap(&mark, &report.durations.decide);

  // What rules remember moves on only with a version that all shards have. The
  // state before it stays for the statistics.
  Advance(&report);
  report.shard_seconds = shard_seconds_;
  return report;
}

// A skipped round publishes the same parameters under the next number, so that
// every round has a version.
absl::Status RoundEngine::PublishRound(RoundReport* report) {
  PublishPlan publish;
  publish.version = report->version;
  publish.unchanged = !report->applied;
  absl::Time mark = absl::Now();
  const absl::Status status = Publish(publish, report);
  Lap(&mark, &report->durations.publish);
  return status;
}

RoundReport RoundEngine::Begin(
    uint64_t round, const std::map<int32_t, Contribution>& contributions) {
  round_ = round;
  offers_.clear();
  by_offer_.assign(static_cast<size_t>(peers_->size()), false);
  shard_seconds_.clear();
  rows_.clear();
  row_infos_.clear();
  words_.epoch = epoch_;
  words_.round = round;
  words_.losses.clear();
  RoundReport report;
  report.epoch = epoch_;
  report.round = round;
  report.version = round + 1;
  report.combination = NamesOf(combine_);
  for (const auto& [rank, contribution] : contributions) {
    const CommitInfo& info = contribution.info;
    rows_.push_back({rank, contribution.session, contribution.attempt});
    row_infos_.push_back(info.row);
    words_.losses.push_back(
        info.loss.value_or(std::numeric_limits<double>::quiet_NaN()));
    report.rows.push_back({info.row, contribution.session, contribution.attempt,
                           contribution.row_crc32c, info.parameters_digest,
                           info.absent_tensors, absl::ZeroDuration(),
                           info.traceparent});
  }
  // The statistics of a round that fails before Grams have come are made of one
  // tensor of zeros.
  input_ = CompactRound(row_infos_,
                        {GramMatrix(static_cast<int>(row_infos_.size()))});
  return report;
}

absl::Status RoundEngine::DecideOrSkip(RoundReport* report) {
  if (rows_.empty()) {
    report->decision = SkipDecision("every member left without a commit");
    return absl::OkStatus();
  }
  absl::Status status = TryDecide(report);
  if (status.ok() || absl::IsUnavailable(status)) return status;
  LogWarningOf("tried again", "round ", round_,
               " failed and is tried again: ", status.ToString());
  // The shards open the round again, with the rows that they have.
  AGG_RETURN_IF_ERROR(Abandon());
  status = TryDecide(report);
  if (status.ok() || absl::IsUnavailable(status)) return status;
  report->decision = SkipDecision(
      absl::StrCat("failed twice before coefficients: ", status.ToString()));
  for (const IncompleteRow& row : report->incomplete_rows) {
    report->decision.excluded_ranks.push_back(row.rank);
  }
  return absl::OkStatus();
}

absl::Status RoundEngine::TryDecide(RoundReport* report) {
  absl::Time mark = absl::Now();
  absl::Status status = Close(report);
  Lap(&mark, &report->durations.gram);
  if (!status.ok()) return status;
  AskExternalRule();
  report->decision = DecideCoefficients(combine_, state_,
                                        static_cast<int64_t>(round_), input_);
  Lap(&mark, &report->durations.decide);
  if (closed_.empty()) {
    report->decision.skip_reason = "every committed row is left out";
  }
  if (report->decision.kind != DecisionKind::kNeedsCompensated) {
    return absl::OkStatus();
  }
  // Some tensors' Grams have lost their digits to cancellation. They are made
  // again, and with them everything is decided anew.
  status = Compensate(report->decision.compensate_tensors);
  Lap(&mark, &report->durations.compensated);
  if (!status.ok()) return status;
  report->decision = DecideCoefficients(combine_, state_,
                                        static_cast<int64_t>(round_), input_);
  Lap(&mark, &report->durations.decide);
  if (report->decision.kind == DecisionKind::kNeedsCompensated) {
    return absl::InternalError("compensated Grams were asked for twice");
  }
  return absl::OkStatus();
}

// The loop waits here, with no lock: members may commit and leave meanwhile,
// and the round is closed already. An answer to a round that is tried once more
// is asked for once more.
void RoundEngine::AskExternalRule() {
  if (!combine_.rule.rule->Has(kIsExternal) || ask_rule_ == nullptr ||
      input_.num_rows() == 0) {
    return;
  }
  input_.external = {
      ask_rule_(combine_, combine_.rule, input_, state_.rule, words_)};
}

// Decided about no rows, so that what rules remember becomes what it is after
// any skipped round.
Decision RoundEngine::SkipDecision(const std::string& reason) const {
  CompactedRound nothing;
  nothing.num_tensors = manifest_.tensors.size();
  Decision decision = DecideCoefficients(combine_, state_,
                                         static_cast<int64_t>(round_), nothing);
  decision.skip_reason = reason;
  return decision;
}

absl::Status RoundEngine::Publish(const PublishPlan& plan,
                                  RoundReport* report) {
  Phase phase = MakePhase(PhaseKind::kPublish);
  phase.publish = plan;
  AGG_ASSIGN_OR_RETURN(const std::vector<PhaseResult> results, RunOnAll(phase));
  // With replication it is here that shards step.
  if (report != nullptr && options_.replicated) {
    NoteNotFinite(results, report);
    NoteNarrowing(results, report);
  }
  return absl::OkStatus();
}

// --- Phases ------------------------------------------------------------------

Phase RoundEngine::MakePhase(PhaseKind kind) const {
  Phase phase;
  phase.kind = kind;
  phase.epoch = epoch_;
  phase.round = round_;
  return phase;
}

absl::StatusOr<std::vector<PhaseResult>> RoundEngine::RunOnAll(
    const Phase& phase, GramSums* sums) {
  return RunEach(
      phase.kind, [&](int) { return phase; }, sums);
}

absl::StatusOr<std::vector<PhaseResult>> RoundEngine::RunEach(
    PhaseKind kind, const std::function<Phase(int)>& make_phase, GramSums* sums,
    const std::vector<bool>& skipped) {
  std::vector<PhaseResult> results(peers_->size());
  absl::Status status = peers_->ForEach(
      [&](int ordinal, ShardPeer* peer) -> absl::Status {
        Phase phase = make_phase(ordinal);
        const size_t index = static_cast<size_t>(ordinal);
        // Before the first round nothing is offered.
        if (index < by_offer_.size() && by_offer_[index] && NeedsClose(phase)) {
          for (const int row : closed_) phase.rows.push_back(rows_[row]);
        }
        const PhaseWatch::Call call(watch_, ordinal, phase);
        AGG_ASSIGN_OR_RETURN(PhaseResult result,
                             peer->StreamPhase(phase, [sums](SliceGram gram) {
                               if (sums != nullptr) sums->Add(std::move(gram));
                             }));
        results[ordinal] = std::move(result);
        return absl::OkStatus();
      },
      skipped);
  if (!status.ok()) return status;
  shard_seconds_.resize(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    shard_seconds_[i].Add(kind, results[i].seconds);
  }
  return results;
}

// The first half of a round: closing it, and the Grams of its rows.

// --- Closing -----------------------------------------------------------------

void RoundEngine::DropRow(const IncompleteRow& dropped, RoundReport* report) {
  const auto row = std::find_if(closed_.begin(), closed_.end(), [&](int i) {
    return rows_[i].rank == dropped.rank;
  });
  if (row == closed_.end()) return;  // known already, or never asked for
  closed_.erase(row);
  report->incomplete_rows.push_back(dropped);
}

bool RoundEngine::DropIncomplete(const std::vector<PhaseResult>& results,
                                 RoundReport* report) {
  const std::vector<int> asked = closed_;
  for (size_t shard = 0; shard < results.size(); ++shard) {
    for (const int32_t rank : results[shard].incomplete_ranks) {
      DropRow({rank, static_cast<int32_t>(shard)}, report);
    }
    // A shard that names incomplete ranks sends no checksums.
    const std::vector<uint32_t>& landed = results[shard].row_crc32c;
    for (size_t i = 0; i < landed.size() && i < asked.size(); ++i) {
      const std::vector<uint32_t>& committed =
          report->rows[asked[i]].row_crc32c;
      if (committed.empty() || committed[shard] == landed[i]) continue;
      const int32_t rank = rows_[asked[i]].rank;
      LogWarningOf(absl::StrCat("other bytes ", shard, " ", rank), "round ",
                   round_, ": shard ", shard, " has other bytes of rank ", rank,
                   " than its commit says");
      DropRow({rank, static_cast<int32_t>(shard), /*other_bytes=*/true},
              report);
    }
  }
  std::sort(report->incomplete_rows.begin(), report->incomplete_rows.end(),
            [](const IncompleteRow& a, const IncompleteRow& b) {
              return a.rank < b.rank;
            });
  return closed_.size() < asked.size();
}

absl::Status RoundEngine::Abandon() {
  offers_.assign(offers_.size(), nullptr);
  by_offer_.assign(by_offer_.size(), false);
  return RunOnAll(MakePhase(PhaseKind::kAbandon)).status();
}

absl::StatusOr<std::vector<PhaseResult>> RoundEngine::RunClose(GramSums* sums) {
  Phase close = MakePhase(PhaseKind::kClose);
  for (const int row : closed_) close.rows.push_back(rows_[row]);
  for (size_t shard = 0; shard < offers_.size(); ++shard) {
    by_offer_[shard] =
        offers_[shard] != nullptr && offers_[shard]->rows == close.rows;
  }
  absl::StatusOr<std::vector<PhaseResult>> results = RunEach(
      close.kind, [&close](int) { return close; }, sums, by_offer_);
  if (!results.ok()) return results;
  for (size_t shard = 0; shard < offers_.size(); ++shard) {
    if (!by_offer_[shard]) continue;
    const PhaseResult& offered = offers_[shard]->result;
    for (size_t i = 0; i < offered.grams.size(); ++i) {
      sums->Add(offered.grams[i]);
    }
    (*results)[shard].row_crc32c = offered.row_crc32c;
    shard_seconds_[shard].Add(close.kind, offered.seconds);
  }
  return results;
}

absl::Status RoundEngine::Close(RoundReport* report) {
  report->incomplete_rows.clear();
  closed_.clear();
  for (size_t i = 0; i < rows_.size(); ++i) {
    closed_.push_back(static_cast<int>(i));
  }
  // A shard that lacks slices of a row computes nothing and names the row. Its
  // bytes of other rows may differ from their commits. So this usually runs
  // once, and two or three times if rows are left out, each time with fewer.
  while (!closed_.empty()) {
    GramSums sums(plan_, AllTensors(), static_cast<int>(closed_.size()),
                  /*compensated=*/false);
    AGG_ASSIGN_OR_RETURN(std::vector<PhaseResult> results, RunClose(&sums));
    if (!DropIncomplete(results, report)) return Compact(&sums);
    LogWarningOf("closed again", "round ", round_,
                 " is closed again: ", report->incomplete_rows.size(),
                 " committed rows are left out");
    AGG_RETURN_IF_ERROR(Abandon());
  }
  // Nobody's row is left.
  input_ = CompactRound(row_infos_, closed_, {});
  input_.num_tensors = manifest_.tensors.size();
  return absl::OkStatus();
}

// --- Grams -------------------------------------------------------------------

std::vector<int32_t> RoundEngine::AllTensors() const {
  std::vector<int32_t> tensors(manifest_.tensors.size());
  std::iota(tensors.begin(), tensors.end(), 0);
  return tensors;
}

absl::Status RoundEngine::Compact(GramSums* sums) {
  AGG_ASSIGN_OR_RETURN(std::vector<GramMatrix> grams, sums->Take());
  input_ = CompactRound(row_infos_, closed_, std::move(grams));
  input_.group_of_tensor = group_of_tensor_;
  JudgeOutliers(combine_.outliers, &input_);
  return absl::OkStatus();
}

absl::Status RoundEngine::Compensate(const std::vector<int>& tensors) {
  Phase phase = MakePhase(PhaseKind::kCompensatedGram);
  phase.tensors.assign(tensors.begin(), tensors.end());
  GramSums sums(plan_, phase.tensors, static_cast<int>(closed_.size()),
                /*compensated=*/true);
  AGG_RETURN_IF_ERROR(RunOnAll(phase, &sums).status());
  AGG_ASSIGN_OR_RETURN(std::vector<GramMatrix> grams, sums.Take());
  ReplaceTensors(closed_, tensors, std::move(grams), &input_);
  return absl::OkStatus();
}

// What a RoundEngine keeps between rounds: for a new epoch, for the record, and
// the seed.

namespace {

// Each tensor's place among `groups`; none if there are no groups. A group that
// is not configured is refused by the shards.
std::vector<int32_t> GroupPlaces(const Manifest& manifest,
                                 const std::vector<std::string>& groups) {
  std::vector<int32_t> places;
  if (groups.empty()) return places;
  for (const TensorSpec& tensor : manifest.tensors) {
    const auto found = std::find(groups.begin(), groups.end(), tensor.group);
    places.push_back(found == groups.end()
                         ? 0
                         : static_cast<int32_t>(found - groups.begin()));
  }
  return places;
}

}  // namespace

absl::Status RoundEngine::Reset(uint64_t epoch, const Manifest& manifest) {
  AGG_DCHECK(ValidateManifest(manifest).ok());
  AGG_ASSIGN_OR_RETURN(ShardPlan plan, MakeShardPlan(manifest, peers_->size()));
  epoch_ = epoch;
  round_ = 0;
  manifest_ = manifest;
  plan_ = std::move(plan);
  waves_ = MakeWaves(manifest);
  group_of_tensor_ = GroupPlaces(manifest, combine_.step_scale.groups);
  tensors_of_shard_.assign(plan_.slices_of_shard.size(), {});
  for (size_t shard = 0; shard < plan_.slices_of_shard.size(); ++shard) {
    std::vector<int32_t>& tensors = tensors_of_shard_[shard];
    for (const int32_t slice : plan_.slices_of_shard[shard]) {
      const int32_t tensor = plan_.slices[slice].tensor;
      if (tensors.empty() || tensors.back() != tensor) {
        tensors.push_back(tensor);
      }
    }
  }
  auto names = std::make_shared<std::vector<std::string>>();
  for (const TensorSpec& tensor : manifest_.tensors) {
    names->push_back(tensor.name);
  }
  words_.tensors = std::move(names);
  num_steps_ = 0;
  num_batches_ = 0.0;
  renews_state_ = false;
  state_ = CombineState();
  rule_before_.clear();
  input_ = CompactedRound();
  unpublished_.reset();
  next_record_ = nullptr;
  return absl::OkStatus();
}

void RoundEngine::BeginEpoch(uint64_t epoch) {
  epoch_ = epoch;
  unpublished_.reset();
}

void RoundEngine::Restore(const JobRecord& record, const CombineOptions& now) {
  num_steps_ = record.num_steps;
  num_batches_ = options_.reset_moments ? record.num_batches : 0.0;
  combine_ = now;
  state_ = StateToGoOnWith(record, now, manifest_.tensors.size());
}

void RoundEngine::FillRecord(JobRecord* record) const {
  record->num_steps = num_steps_;
  record->num_batches = num_batches_;
  record->rule = combine_.rule;
  record->shadow_rules = combine_.shadow_rules;
  record->state = state_;
}

namespace {

// Whether two numbers of baseline batches are the same but for rounding
// (numpy's isclose, by which AdaptDL compares).
bool IsSameScale(double a, double b) { return std::abs(a - b) <= 1e-5 * b; }

}  // namespace

// All committed rows count, so that one with a NaN is no change of scale.
void RoundEngine::CompareBatches(RoundReport* report) {
  renews_state_ = false;
  report->num_batches = NumBaselineBatches(combine_.step_scale, row_infos_);
  if (!options_.reset_moments || !report->applied || num_batches_ == 0.0) {
    return;
  }
  if (IsSameScale(report->num_batches, num_batches_)) return;
  renews_state_ = true;
  report->moments_of = num_batches_;
}

void RoundEngine::CountSteps(const RoundReport& report, int64_t* num_steps,
                             double* num_batches) const {
  if (!report.applied) return;
  *num_steps = (report.moments_of.has_value() ? 0 : *num_steps) + 1;
  if (options_.reset_moments) *num_batches = report.num_batches;
}

void RoundEngine::Advance(RoundReport* report) {
  CountSteps(*report, &num_steps_, &num_batches_);
  rule_before_ = std::move(state_.rule);
  state_ = std::exchange(report->decision.next_state, CombineState());
}

std::optional<RoundReport> RoundEngine::TakeUnpublished() {
  std::optional<RoundReport> report = std::exchange(unpublished_, std::nullopt);
  if (report.has_value()) Advance(&*report);
  return report;
}

void RoundEngine::SetNextRecord(const RoundReport& report) {
  next_record_ = nullptr;
  if (!options_.replicated || make_record_ == nullptr) return;
  JobRecord record;
  FillRecord(&record);
  CountSteps(report, &record.num_steps, &record.num_batches);
  record.state = report.decision.next_state;
  next_record_ = std::make_shared<const std::string>(
      make_record_(report, std::move(record)));
}

void RoundEngine::SetCombination(const CombineOptions& combine) {
  CarryState(combine_, combine, &state_);
  combine_ = combine;
}

absl::Status RoundEngine::PublishSeed(uint64_t session, uint32_t attempt) {
  PublishPlan plan;
  plan.seed = true;
  plan.seed_session = session;
  plan.seed_attempt = attempt;
  if (options_.replicated) {
    // Nobody sees the seed before both copies of every part have it.
    RoundReport seeded;
    seeded.epoch = epoch_;
    SetNextRecord(seeded);
    AGG_RETURN_IF_ERROR(RunEach(
                            PhaseKind::kLoadSeed,
                            [&](int ordinal) {
                              Phase phase = MakePhase(PhaseKind::kLoadSeed);
                              phase.publish = plan;
                              if (ordinal == 0) phase.record = next_record_;
                              return phase;
                            },
                            nullptr)
                            .status());
    Phase fetch = MakePhase(PhaseKind::kFetch);
    fetch.id = {epoch_, 0};
    AGG_RETURN_IF_ERROR(RunOnAll(fetch).status());
  }
  return Publish(plan, nullptr);
}

// The second half of a round: the optimizer's step on all shards, after the
// norms that LARS and LAMB need.

double RoundEngine::WeightDecayOf(int32_t tensor) const {
  const std::string& group = manifest_.tensors[tensor].group;
  for (const auto& [name, weight_decay] : options_.group_weight_decay) {
    if (name == group) return static_cast<double>(weight_decay);
  }
  return static_cast<double>(options_.weight_decay);
}

void RoundEngine::FillScalars(const Decision& decision, StepPlan* step) const {
  step->per_tensor = decision.per_tensor;
  step->excluded_ranks = decision.excluded_ranks;
  step->learning_rate = decision.learning_rate;
  step->group_rates = decision.group_rates;
  // Bias correction counts applied steps only.
  step->step = (renews_state_ ? 0 : num_steps_) + 1;
  step->renews_state = renews_state_;
}

void RoundEngine::AddReplicaPlan(const Decision& decision,
                                 const std::vector<float>& trust, int ordinal,
                                 Phase* phase) const {
  const int part = (ordinal + peers_->size() - 1) % peers_->size();
  FillScalars(decision, &phase->replica_step);
  phase->replica_step.excluded_ranks.clear();  // they are about rows
  phase->replica_step.tensors = tensors_of_shard_[part];
  for (const int32_t tensor : phase->replica_step.tensors) {
    if (!trust.empty()) phase->replica_step.trust.push_back(trust[tensor]);
  }
  // Part 0 is at shard 0, its replica at shard 1.
  if (ordinal == 0 || part == 0) phase->record = next_record_;
}

absl::Status RoundEngine::PrepareUnchanged(const RoundReport& report) {
  if (!options_.replicated) return absl::OkStatus();
  return RunEach(
             PhaseKind::kUpdate,
             [&](int ordinal) {
               Phase phase = MakePhase(PhaseKind::kUpdate);
               phase.publish.version = report.version;
               phase.publish.unchanged = true;
               AddReplicaPlan(report.decision, {}, ordinal, &phase);
               return phase;
             },
             nullptr)
      .status();
}

Phase RoundEngine::StepPhase(PhaseKind kind, const Decision& decision,
                             const std::vector<float>& trust,
                             int ordinal) const {
  Phase phase = MakePhase(kind);
  StepPlan& step = phase.step;
  FillScalars(decision, &step);
  if (kind == PhaseKind::kUpdate && options_.replicated) {
    AddReplicaPlan(decision, trust, ordinal, &phase);
  } else if (kind == PhaseKind::kUpdate) {
    phase.publish.version = round_ + 1;
    phase.publishes = true;
  }
  const std::vector<int32_t>& tensors = tensors_of_shard_[ordinal];
  if (tensors.empty()) return phase;
  // The decision is about all committed rows; shards know the closed ones only.
  const auto add_segment = [&](size_t segment) {
    for (const int row : closed_) {
      step.coefficients.push_back(decision.coefficients[segment][row]);
    }
  };
  const size_t num_segments = step.per_tensor ? tensors.size() : 1;
  step.coefficients.reserve(num_segments * closed_.size());
  if (!step.per_tensor) add_segment(0);
  if (!step.per_tensor && trust.empty()) return phase;  // the same for all
  step.tensors = tensors;
  for (const int32_t tensor : tensors) {
    if (step.per_tensor) add_segment(static_cast<size_t>(tensor));
    if (!trust.empty()) step.trust.push_back(trust[tensor]);
  }
  return phase;
}

absl::StatusOr<std::vector<float>> RoundEngine::CollectTrust(
    const Decision& decision) {
  AGG_ASSIGN_OR_RETURN(std::vector<PhaseResult> results,
                       RunEach(
                           PhaseKind::kNorms,
                           [&](int ordinal) {
                             return StepPhase(PhaseKind::kNorms, decision, {},
                                              ordinal);
                           },
                           nullptr));
  // Shards answer for their own slices. They are put in the order of the
  // manifest before they are added, so that sums do not depend on placement.
  std::vector<SliceNorms> by_slice(plan_.slices.size(), {-1, 0.0, 0.0});
  for (const PhaseResult& result : results) {
    for (const SliceNorms& norms : result.norms) {
      if (norms.slice >= 0 &&
          norms.slice < static_cast<int32_t>(by_slice.size())) {
        by_slice[norms.slice] = norms;
      }
    }
  }
  std::vector<float> trust;
  for (size_t t = 0; t < manifest_.tensors.size(); ++t) {
    TensorNorms sum;
    for (int32_t slice : plan_.slices_of_tensor[t]) {
      if (by_slice[slice].slice != slice) {
        return absl::InternalError(
            absl::StrCat("the norms of slice ", slice, ", shard ",
                         plan_.slices[slice].shard, ", are missing"));
      }
      sum.parameter_norm_squared += by_slice[slice].parameter_norm_squared;
      sum.update_norm_squared += by_slice[slice].update_norm_squared;
    }
    trust.push_back(TrustRatio(options_.optimizer,
                               WeightDecayOf(static_cast<int32_t>(t)), sum));
  }
  return trust;
}

absl::Status RoundEngine::Step(RoundReport* report) {
  const Decision& decision = report->decision;
  std::vector<float> trust;
  absl::Time mark = absl::Now();
  if (OptimizerNeedsNorms(options_.optimizer.kind)) {
    absl::StatusOr<std::vector<float>> collected = CollectTrust(decision);
    Lap(&mark, &report->durations.norms);
    if (!collected.ok()) return collected.status();
    trust = *std::move(collected);
  }
  const absl::StatusOr<std::vector<PhaseResult>> results = RunEach(
      PhaseKind::kUpdate,
      [&](int ordinal) {
        return StepPhase(PhaseKind::kUpdate, decision, trust, ordinal);
      },
      nullptr);
  Lap(&mark, &report->durations.update);
  if (!results.ok()) return results.status();
  if (!options_.replicated) {
    NoteNotFinite(*results, report);
    NoteNarrowing(*results, report);
  }
  return absl::OkStatus();
}

void RoundEngine::NoteNarrowing(const std::vector<PhaseResult>& results,
                                RoundReport* report) const {
  // As below. A pipelined round comes here for each of its waves.
  NarrowedVersion* const narrowed = &report->narrowed;
  int32_t first = static_cast<int32_t>(plan_.slices.size());
  const bool had_one = !narrowed->tensor.empty();
  for (size_t shard = 0; shard < results.size(); ++shard) {
    const NarrowingLoss& loss = results[shard].narrowing;
    narrowed->num_infinite += loss.num_infinite;
    narrowed->num_compared += loss.num_compared;
    narrowed->num_vanished += loss.num_vanished;
    if (had_one || loss.slice < 0 || loss.slice >= first) continue;
    first = loss.slice;
    narrowed->tensor = manifest_.tensors[plan_.slices[first].tensor].name;
    narrowed->shard = static_cast<int32_t>(shard);
  }
}

void RoundEngine::NoteNotFinite(const std::vector<PhaseResult>& results,
                                RoundReport* report) const {
  // The first slice of all shards, so that the name does not depend on how
  // many there are.
  int32_t first = static_cast<int32_t>(plan_.slices.size());
  for (size_t shard = 0; shard < results.size(); ++shard) {
    const int32_t slice = results[shard].not_finite_slice;
    if (slice < 0 || slice >= first) continue;
    first = slice;
    report->not_finite = {manifest_.tensors[plan_.slices[slice].tensor].name,
                          static_cast<int32_t>(shard)};
  }
}

// A round that is published wave by wave (P43): close -> gram -> [compensated
// gram] -> coefficients -> update for each wave, then publish. Each tensor is
// decided about by itself, so that its bits are those of an atomic round.

void RoundEngine::BeginWaves(
    uint64_t round, const std::map<int32_t, Contribution>& contributions) {
  unpublished_.reset();
  waved_.emplace(
      Waves{Begin(round, contributions), WavedRound(contributions.size()), {}});
  waved_->report.loss = MeanLoss(contributions, {});
  next_record_ = nullptr;
}

// --- A wave's rows and Grams -------------------------------------------------

Phase RoundEngine::WavePhase(PhaseKind kind, int wave) const {
  Phase phase = MakePhase(kind);
  phase.wave = wave + 1;
  return phase;
}

std::vector<int32_t> RoundEngine::TensorsOf(int wave) const {
  std::vector<int32_t> tensors;
  for (int32_t t = waves_[wave].begin; t < waves_[wave].end; ++t) {
    tensors.push_back(t);
  }
  return tensors;
}

absl::StatusOr<std::vector<GramMatrix>> RoundEngine::CloseWave(
    int wave, const std::vector<int32_t>& ranks) {
  RoundReport* const report = &waved_->report;
  closed_.clear();
  for (size_t i = 0; i < rows_.size(); ++i) {
    const int32_t rank = rows_[i].rank;
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end() &&
        waved_->dropped.count(rank) == 0) {
      closed_.push_back(static_cast<int>(i));
    }
  }
  const std::vector<int32_t> tensors = TensorsOf(wave);
  for (;;) {
    Phase close = WavePhase(PhaseKind::kClose, wave);
    for (const int row : closed_) close.rows.push_back(rows_[row]);
    GramSums sums(plan_, tensors, static_cast<int>(closed_.size()),
                  /*compensated=*/false);
    AGG_ASSIGN_OR_RETURN(std::vector<PhaseResult> results,
                         RunOnAll(close, &sums));
    // A row that a shard lacks slices of, though all were told to be there, is
    // out from here on.
    if (!DropIncomplete(results, report)) {
      if (closed_.empty()) return std::vector<GramMatrix>(tensors.size());
      return sums.Take();
    }
    for (const IncompleteRow& row : report->incomplete_rows) {
      waved_->dropped.insert(row.rank);
    }
    AGG_RETURN_IF_ERROR(
        RunOnAll(WavePhase(PhaseKind::kAbandon, wave)).status());
  }
}

// --- Deciding ----------------------------------------------------------------

Decision RoundEngine::DecideTensor(const GramMatrix& gram) const {
  if (closed_.empty()) return SkipDecision("no row has it");
  return DecideCoefficients(combine_, state_, static_cast<int64_t>(round_),
                            CompactRound(row_infos_, closed_, {gram}));
}

absl::StatusOr<std::vector<Decision>> RoundEngine::DecideWave(
    int wave, std::vector<GramMatrix>* grams) {
  std::vector<Decision> decisions;
  Phase again = WavePhase(PhaseKind::kCompensatedGram, wave);
  for (size_t i = 0; i < grams->size(); ++i) {
    decisions.push_back(DecideTensor((*grams)[i]));
    if (decisions.back().kind == DecisionKind::kNeedsCompensated) {
      again.tensors.push_back(waves_[wave].begin + static_cast<int32_t>(i));
    }
  }
  if (again.tensors.empty()) return decisions;
  GramSums sums(plan_, again.tensors, static_cast<int>(closed_.size()),
                /*compensated=*/true);
  AGG_RETURN_IF_ERROR(RunOnAll(again, &sums).status());
  AGG_ASSIGN_OR_RETURN(std::vector<GramMatrix> exact, sums.Take());
  for (size_t i = 0; i < exact.size(); ++i) {
    const int32_t place = again.tensors[i] - waves_[wave].begin;
    (*grams)[place] = std::move(exact[i]);
    decisions[place] = DecideTensor((*grams)[place]);
    if (decisions[place].kind == DecisionKind::kNeedsCompensated) {
      return absl::InternalError("compensated Grams were asked for twice");
    }
  }
  return decisions;
}

// --- Stepping ----------------------------------------------------------------

std::vector<int> RoundEngine::UsedRows(const Decision& decision) const {
  std::vector<int> used;
  if (decision.kind != DecisionKind::kApply) return used;
  for (const int row : closed_) {
    const std::vector<int32_t>& excluded = decision.excluded_ranks;
    if (std::find(excluded.begin(), excluded.end(), rows_[row].rank) ==
        excluded.end()) {
      used.push_back(row);
    }
  }
  return used;
}

Phase RoundEngine::WaveUpdate(int wave, const std::vector<Decision>& decisions,
                              int ordinal) const {
  Phase phase = WavePhase(PhaseKind::kUpdate, wave);
  FillScalars(decisions.front(), &phase.step);
  phase.step.per_tensor = true;
  phase.step.excluded_ranks.clear();  // NaN says it, tensor by tensor
  for (const int32_t tensor : tensors_of_shard_[ordinal]) {
    if (tensor < waves_[wave].begin || tensor >= waves_[wave].end) continue;
    phase.step.tensors.push_back(tensor);
    const Decision& decision = decisions[tensor - waves_[wave].begin];
    const std::vector<int> used = UsedRows(decision);
    for (const int row : closed_) {
      const bool is_used = std::binary_search(used.begin(), used.end(), row);
      phase.step.coefficients.push_back(
          is_used ? decision.coefficients[0][row]
                  : std::numeric_limits<double>::quiet_NaN());
    }
  }
  return phase;
}

absl::Status RoundEngine::RunWave(int wave, const std::vector<int32_t>& ranks) {
  RoundReport* const report = &waved_->report;
  absl::Time mark = absl::Now();
  absl::StatusOr<std::vector<GramMatrix>> grams = CloseWave(wave, ranks);
  Lap(&mark, &report->durations.gram);
  if (!grams.ok()) return grams.status();
  const absl::StatusOr<std::vector<Decision>> decisions =
      DecideWave(wave, &*grams);
  Lap(&mark, &report->durations.decide);
  if (!decisions.ok()) return decisions.status();
  const absl::StatusOr<std::vector<PhaseResult>> results = RunEach(
      PhaseKind::kUpdate,
      [&](int ordinal) { return WaveUpdate(wave, *decisions, ordinal); },
      nullptr);
  Lap(&mark, &report->durations.update);
  if (!results.ok()) return results.status();
  if (!report->not_finite.has_value()) NoteNotFinite(*results, report);
  NoteNarrowing(*results, report);
  for (size_t i = 0; i < decisions->size(); ++i) {
    const Decision& decision = (*decisions)[i];
    waved_->tensors.Add(closed_, UsedRows(decision), std::move((*grams)[i]),
                        decision.skip_reason);
  }
  return absl::OkStatus();
}

// --- The end -----------------------------------------------------------------

void RoundEngine::DescribeWaves(RoundReport* report) {
  const WavedRound& tensors = waved_->tensors;
  report->applied = tensors.num_unchanged() < tensors.num_tensors();
  report->partial_rows = tensors.PartialRows(row_infos_);
  if (!report->applied) {
    report->message = tensors.why_unchanged();
  } else if (tensors.num_unchanged() > 0) {
    report->message =
        absl::StrCat(tensors.num_unchanged(), " of ", tensors.num_tensors(),
                     " tensors are as they were: ", tensors.why_unchanged());
  }
  // Of the rows that every tensor has. What needed compensated Grams has them.
  input_ = waved_->tensors.TakeWhole(row_infos_);
  CombineOptions exact = combine_;
  exact.rule.kappa_limit = std::numeric_limits<double>::infinity();
  report->decision =
      DecideCoefficients(exact, state_, static_cast<int64_t>(round_), input_);
  if (report->applied) report->decision.skip_reason.clear();
}

absl::StatusOr<RoundReport> RoundEngine::FinishWaves() {
  RoundReport report = std::move(waved_->report);
  DescribeWaves(&report);
  waved_.reset();
  const absl::Status status = PublishRound(&report);
  OrthogonalityTask(combine_.rule, input_, report.decision)
      .Finish(&report.decision);
  if (!status.ok()) {
    unpublished_.emplace(std::move(report));
    return status;
  }
  Advance(&report);
  report.shard_seconds = shard_seconds_;
  return report;
}

}  // namespace agg
