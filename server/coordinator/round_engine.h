// One round, from closing to publication, over all shards: what
// deploy/docs/concepts.md tells of a round, as code.
//
//   close -> gram -> [compensated gram] -> coefficients
//         -> [norms -> trust] -> update -> publish
#ifndef AGG_SERVER_COORDINATOR_ROUND_ENGINE_H_
#define AGG_SERVER_COORDINATOR_ROUND_ENGINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/optimizer_step.h"
#include "proto/shard_plan.h"
#include "proto/wave_plan.h"
#include "server/base/dcheck.h"
#include "server/base/mutex.h"
#include "server/combine/adasum.h"
#include "server/combine/combination_rule.h"
#include "server/combine/compacted_round.h"
#include "server/combine/decision.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/options.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/job_record.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/peer_group.h"
#include "server/coordinator/round_reporter.h"
#include "server/coordinator/rule_processes.h"
#include "server/round/phase.h"
#include "server/round/round_report.h"

namespace agg {

// Squared norms of one tensor, summed over its slices in manifest order.
struct TensorNorms {
  double parameter_norm_squared = 0.0;
  double update_norm_squared = 0.0;  // kernels/backend.h, RangeNorms
};

// Returns the tensor's layer-wise trust ratio.
// lars (You, Gitman, Ginsburg 2017, eq. 6):
//   trust_coefficient * ||w|| / (||g|| + weight_decay * ||w|| + epsilon)
// lamb (You et al. 2020, algorithm 2, phi the identity): ||w|| / ||u||.
// 1 where ||w|| or the other norm is 0 (both papers' reference code), so that
// zero-initialised tensors learn; 1 for other optimizers.
float TrustRatio(const OptimizerOptions& optimizer, double weight_decay,
                 const TensorNorms& norms);

// The Gram matrices of a round's tensors, summed over their slices as these
// arrive from the shards. A tensor's slices are added in their order, whatever
// shard they come from and whenever (P8): the sum has the same bits for any
// number of shards. One that comes before its turn waits; else nothing is kept
// but the sums. Thread-safe.
class GramSums {
 public:
  // Sums the Grams of `tensors` (ascending) of the plan, which outlives it;
  // each is num_rows square.
  GramSums(const ShardPlan& plan, const std::vector<int32_t>& tensors,
           int num_rows, bool compensated);

  // Ignores what was not asked for, what has another size and what has come
  // before.
  void Add(SliceGram gram);

  // The sums, as the tensors were given; zeros for one without elements.
  // INTERNAL naming a slice that has not come. To be called once.
  absl::StatusOr<std::vector<GramMatrix>> Take();

 private:
  struct Sum {
    GramMatrix gram;
    size_t num_added = 0;  // of the tensor's slices
    std::map<int32_t, SliceGram> early;
  };

  bool Fits(const SliceGram& gram) const;
  void AddNext(SliceGram gram, Sum* sum) const;

  const ShardPlan& plan_;
  const std::vector<int32_t> tensors_;
  const int num_rows_;
  const bool compensated_;
  Mutex mutex_;
  std::vector<Sum> sums_ ABSL_GUARDED_BY(mutex_);  // as tensors_
};

// Measures how orthogonal a round's rows are, tensor by tensor, while the
// shards step the optimizer.
//
// Workers are told the orthogonality with the round's outcome, so that it is
// needed when the round ends, but not before its coefficients are sent. Used by
// one thread.
class OrthogonalityTask {
 public:
  // Starts threads if the decision lacks the orthogonality and the work is
  // worth it. The arguments outlive the task; `round` does not change
  // meanwhile.
  OrthogonalityTask(const RuleOptions& rule, const CompactedRound& round,
                    const Decision& decision);
  // Waits for the threads.
  ~OrthogonalityTask();
  OrthogonalityTask(const OrthogonalityTask&) = delete;
  OrthogonalityTask& operator=(const OrthogonalityTask&) = delete;

  // Waits for the result and writes it into *decision. The bits do not depend
  // on the number of threads.
  void Finish(Decision* decision);

 private:
  // Solves tensors until none is left; run by each thread and by Finish.
  void Work();
  void Join();

  const RuleOptions& rule_;
  const CompactedRound& round_;
  std::vector<AdasumResult> results_;  // per tensor; empty: nothing to do
  std::atomic<size_t> next_{0};        // the first tensor that nobody has taken
  std::vector<std::thread> threads_;
};

// What the waves of a round have computed, and what is to be said of all of it
// (P43): a pure collection. Rows are indices of the round's committed rows,
// ascending. Thread-compatible.
class WavedRound {
 public:
  explicit WavedRound(size_t num_rows) : num_left_out_(num_rows) {}

  // Adds the next tensor of the manifest: the rows of its Gram, as pushed, and
  // those of them that are in its sum. If `used` is empty the tensor is as it
  // was, and `why` says why.
  void Add(const std::vector<int>& rows, const std::vector<int>& used,
           GramMatrix gram, const std::string& why);

  size_t num_tensors() const { return tensors_.size(); }
  size_t num_unchanged() const { return num_unchanged_; }
  // Reason why the first tensor that is as it was has not changed; "": there is
  // no such tensor.
  const std::string& why_unchanged() const { return why_unchanged_; }

  // Rows that some tensors lack, as the report names them.
  std::vector<PartialRow> PartialRows(absl::Span<const RowInfo> rows) const;
  // The round with the rows that all tensors have: the others are excluded.
  // To be called once, at the end.
  CompactedRound TakeWhole(absl::Span<const RowInfo> rows);

 private:
  struct Tensor {
    std::vector<int> rows;
    GramMatrix gram;
  };
  std::vector<Tensor> tensors_;
  std::vector<int> num_left_out_;  // by row: tensors without it
  size_t num_unchanged_ = 0;
  std::string why_unchanged_;
};

// Keeps from round to round what rules and step scales remember. Used by one
// thread.
class RoundEngine {
 public:
  // `peers` and `watch`, which hears of each phase, outlive it.
  RoundEngine(const CoordinatorOptions& options, PeerGroup* peers,
              PhaseWatch* watch)
      : options_(options),
        peers_(peers),
        watch_(watch),
        combine_(options.combine) {}

  // A new epoch of a job with this manifest: all state starts anew.
  // REQUIRES: ValidateManifest(manifest).ok().
  absl::Status Reset(uint64_t epoch, const Manifest& manifest);
  // A new epoch of the same job, which goes on from where this engine is.
  void BeginEpoch(uint64_t epoch);
  // Has the job go on from this record, after Reset, combined as `now`.
  void Restore(const JobRecord& record, const CombineOptions& now);
  // Fills in what of a JobRecord is known here, of the last version that was
  // published: all but history, started, outcomes and used rows.
  void FillRecord(JobRecord* record) const;
  // The round that was about to be published when its epoch ended; nothing:
  // there is none, or it was asked for before. With it the engine goes on as
  // after its publication.
  std::optional<RoundReport> TakeUnpublished();

  // Makes the text of a record from a round that is about to be prepared and
  // FillRecord's part as it will be after it. Needed with replication alone.
  using MakeRecord =
      std::function<std::string(const RoundReport& report, JobRecord record)>;
  void SetMakeRecord(MakeRecord make_record) {
    make_record_ = std::move(make_record);
  }

  // Asks the process of an external rule, and blocks until it has answered or
  // its time is over. Without it every answer is missing.
  using AskRule = std::function<ExternalAnswer(
      const CombineOptions& options, const RuleOptions& rule,
      const CompactedRound& round, absl::Span<const RuleState> states,
      const RoundWords& words)>;
  void SetAskRule(AskRule ask_rule) { ask_rule_ = std::move(ask_rule); }

  // How rounds are combined from the next Run on; job_record.h says what is
  // carried over.
  void SetCombination(const CombineOptions& combine);

  // Publishes version 0 from this seed, which has landed.
  absl::Status PublishSeed(uint64_t session, uint32_t attempt);

  // Runs `round` over the committed rows (rank order) and publishes version
  // round + 1, unchanged if the round is skipped (no rows: always). An error
  // before any coefficients were sent is retried once, then the round is
  // skipped; a later one is returned: the epoch is over (P9). An UNAVAILABLE
  // shard ends it in any case. The report lacks statistics. A shard whose offer
  // has just these rows is not asked to close (P44).
  absl::StatusOr<RoundReport> Run(
      uint64_t round, const std::map<int32_t, Contribution>& contributions,
      CloseOffers offers = {});

  // Run in parts, for a job that is pipelined (P43): BeginWaves, each of the
  // waves in turn, counted from 0, with the committed rows of these ranks, and
  // FinishWaves, which publishes. The first error, which is returned, ends the
  // epoch; BeginWaves may begin another round then.
  void BeginWaves(uint64_t round,
                  const std::map<int32_t, Contribution>& contributions);
  int num_waves() const { return static_cast<int>(waves_.size()); }
  absl::Status RunWave(int wave, const std::vector<int32_t>& ranks);
  // Ranks whose rows a shard lacked in a wave. REQUIRES: within such a round.
  const std::set<int32_t>& dropped() const {
    AGG_DCHECK(waved_.has_value());
    return waved_->dropped;
  }
  absl::StatusOr<RoundReport> FinishWaves();

  // What the statistics of the last Run are made of, for a RoundReporter. To be
  // called once after each Run that did not fail.
  RoundFacts TakeFacts();

 private:
  RoundReport Begin(uint64_t round,
                    const std::map<int32_t, Contribution>& contributions);

  // --- Deciding. TryDecide, tried twice; a skip if it fails for another reason
  // than a lost shard.
  absl::Status DecideOrSkip(RoundReport* report);
  // Grams and the decision, asking for compensated ones where it must.
  absl::Status TryDecide(RoundReport* report);
  Decision SkipDecision(const std::string& reason) const;
  // Has the process of an external rule answer about input_.
  void AskExternalRule();
  // Closes the round with the rows that are complete on all shards, and makes
  // input_ of their Grams. A row that a shard lacks slices of, though it was
  // committed, is left out by name, as a row that is not finite would be.
  absl::Status Close(RoundReport* report);
  // Runs kClose with closed_ on all shards, except those that have offered it.
  absl::StatusOr<std::vector<PhaseResult>> RunClose(GramSums* sums);
  // Opens the round again on all shards; offers do not stand any more.
  absl::Status Abandon();
  // Takes out of closed_ the rows that shards have named, and those of which a
  // shard has other bytes than the commit says. Returns whether there are any.
  bool DropIncomplete(const std::vector<PhaseResult>& results,
                      RoundReport* report);
  void DropRow(const IncompleteRow& row, RoundReport* report);
  std::vector<int32_t> AllTensors() const;
  // Makes input_ of the Grams of closed_.
  absl::Status Compact(GramSums* sums);
  // Fetches the compensated Grams of these tensors (kCompensatedGram on all
  // shards) into input_.
  absl::Status Compensate(const std::vector<int>& tensors);

  // --- Stepping. Norms (if needed) and the update.
  // Without second copies the same message has all shards publish (P10).
  absl::Status Step(RoundReport* report);
  // Fills in report->not_finite from what an update has answered. Not when one
  // answer was lost: then a round that goes on in the next epoch is without it.
  void NoteNarrowing(const std::vector<PhaseResult>& results,
                     RoundReport* report) const;
  void NoteNotFinite(const std::vector<PhaseResult>& results,
                     RoundReport* report) const;
  // Each tensor's trust ratio.
  absl::StatusOr<std::vector<float>> CollectTrust(const Decision& decision);
  double WeightDecayOf(int32_t tensor) const;

  // --- Waves.
  struct Waves {
    RoundReport report;
    WavedRound tensors;
    std::set<int32_t> dropped;  // ranks that some shard lacks slices of
  };
  Phase WavePhase(PhaseKind kind, int wave) const;
  std::vector<int32_t> TensorsOf(int wave) const;
  // Closes the wave with the committed rows of `ranks`, which become closed_.
  // Returns the Gram of each tensor of the wave; all are empty without rows.
  absl::StatusOr<std::vector<GramMatrix>> CloseWave(
      int wave, const std::vector<int32_t>& ranks);
  Decision DecideTensor(const GramMatrix& gram) const;
  // Decides each tensor of the wave; in *grams, compensated ones take the place
  // of those that are not enough.
  absl::StatusOr<std::vector<Decision>> DecideWave(
      int wave, std::vector<GramMatrix>* grams);
  // The rows of closed_ that are in the sum.
  std::vector<int> UsedRows(const Decision& decision) const;
  Phase WaveUpdate(int wave, const std::vector<Decision>& decisions,
                   int ordinal) const;
  void DescribeWaves(RoundReport* report);

  // --- Phases.
  absl::Status PublishRound(RoundReport* report);
  absl::Status Publish(const PublishPlan& plan, RoundReport* report);
  Phase MakePhase(PhaseKind kind) const;
  // Norms or the update as one shard needs it: with its own tensors alone.
  Phase StepPhase(PhaseKind kind, const Decision& decision,
                  const std::vector<float>& trust, int ordinal) const;
  // Runs one phase on all shards; Grams go to *sums, which may be null. Results
  // are by ordinal.
  absl::StatusOr<std::vector<PhaseResult>> RunOnAll(const Phase& phase,
                                                    GramSums* sums = nullptr);
  // Runs a phase on all shards, made for each one on the thread that calls it.
  // A shard that `skipped` names is left out; its result is empty.
  absl::StatusOr<std::vector<PhaseResult>> RunEach(
      PhaseKind kind, const std::function<Phase(int)>& make_phase,
      GramSums* sums, const std::vector<bool>& skipped = {});
  // What the phase of the update brings for replicas.
  void AddReplicaPlan(const Decision& decision, const std::vector<float>& trust,
                      int ordinal, Phase* phase) const;
  // Fills in the part of StepPhase that needs no trust ratio.
  void FillScalars(const Decision& decision, StepPlan* step) const;
  // Prepares a skipped round, too, if there is replication; else does nothing.
  absl::Status PrepareUnchanged(const RoundReport& report);
  void SetNextRecord(const RoundReport& report);
  // Says in *report whether the optimizer's moments begin anew with it.
  void CompareBatches(RoundReport* report);
  // What is counted after this round.
  void CountSteps(const RoundReport& report, int64_t* num_steps,
                  double* num_batches) const;
  // The round is published: what rules remember moves on.
  void Advance(RoundReport* report);
  // Mean over the rows but incomplete ones that came with a finite loss,
  // weighted by their examples; NaN if there is none.
  static double MeanLoss(const std::map<int32_t, Contribution>& contributions,
                         const std::vector<IncompleteRow>& incomplete);
  // Adds the time since *mark to *duration and moves the mark.
  static void Lap(absl::Time* mark, absl::Duration* duration);

  const CoordinatorOptions options_;  // except options_.combine
  PeerGroup* const peers_;
  PhaseWatch* const watch_;
  CombineOptions combine_;  // of the next round
  uint64_t epoch_ = 0;
  uint64_t round_ = 0;
  Manifest manifest_;
  ShardPlan plan_;
  // Tensors of which each shard has slices, by ordinal, ascending.
  std::vector<std::vector<int32_t>> tensors_of_shard_;
  std::vector<Wave> waves_;
  std::vector<int32_t> group_of_tensor_;  // CompactedRound's
  int64_t num_steps_ = 0;  // applied since the optimizer's state was new
  // Baseline batches of the last applied round; 0: not known, or moments stay.
  double num_batches_ = 0.0;
  bool renews_state_ = false;  // the round in execution
  // State before the round in execution. Shadow rules' states are the
  // reporter's.
  CombineState state_;
  std::vector<RuleState> rule_before_;  // before the last finished round
  // Grams and rows of the round in execution, or of the last one until its
  // facts are taken.
  CompactedRound input_;
  std::vector<RowInfo> row_infos_;  // committed
  std::vector<RoundRow> rows_;      // parallel to row_infos_
  std::vector<int> closed_;         // indices of the rows that the round has
  CloseOffers offers_;              // of the round in execution
  // Shards, by ordinal, whose offer was taken: they close the round with the
  // next phase that names the rows.
  std::vector<bool> by_offer_;
  std::vector<ShardSeconds> shard_seconds_;  // by ordinal
  MakeRecord make_record_;
  AskRule ask_rule_;
  RoundWords words_;                                // of the round in execution
  std::shared_ptr<const std::string> next_record_;  // with replication
  std::optional<RoundReport> unpublished_;
  std::optional<Waves> waved_;  // of the round that goes wave by wave
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_ROUND_ENGINE_H_
