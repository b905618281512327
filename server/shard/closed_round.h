// A round from its close on: with which rows it was closed, and what the phases
// have computed about them.
#ifndef AGG_SERVER_SHARD_CLOSED_ROUND_H_
#define AGG_SERVER_SHARD_CLOSED_ROUND_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/params/snapshot.h"
#include "server/round/phase.h"
#include "server/shard/shard_compute.h"

namespace agg {

// Each result is kept, so that a repeated phase gives the same bytes (P7); an
// error is not kept, so that the phase may be tried again. Errors are those of
// ShardCompute. Thread-compatible: to be used with the turn (compute_turn.h).
// A default-constructed one stands for a round that is not closed.
class ClosedRound {
 public:
  ClosedRound() = default;
  // Makes a round closed as was offered, with the offer's result.
  explicit ClosedRound(const CloseOffer& offer)
      : rows_(offer.rows),
        row_crc32c_(offer.result.row_crc32c),
        close_(offer.result) {}
  // Makes a round closed with `rows`, and their checksums
  // (PhaseResult::row_crc32c). If slices of `incomplete_ranks` are missing
  // here, these ranks are the result of Close, and no other phase may follow.
  ClosedRound(std::vector<RoundRow> rows, std::vector<uint32_t> row_crc32c,
              std::vector<int32_t> incomplete_ranks);

  const std::vector<RoundRow>& rows() const { return rows_; }
  // Close's result, once there is one.
  const std::optional<PhaseResult>& close_result() const { return close_; }
  // Whether the phases after Close may run.
  bool has_grams() const {
    return close_.has_value() && close_->incomplete_ranks.empty();
  }

  // Computes the Grams of all slices: those in `early` (by slice of the layout)
  // are taken as they are, the others are computed.
  // REQUIRES: !close_result().has_value().
  absl::StatusOr<PhaseResult> Close(
      ShardCompute* compute, std::vector<std::optional<SliceGram>> early);
  // Computes the Grams of these slices alone (positions in the layout), as
  // Close does.
  absl::StatusOr<PhaseResult> CloseSlices(ShardCompute* compute,
                                          const std::vector<int32_t>& slices);
  // Computes compensated Grams of all slices of these tensors (ascending).
  absl::StatusOr<PhaseResult> CompensatedGram(
      ShardCompute* compute, const std::vector<int32_t>& tensors);
  absl::StatusOr<PhaseResult> Norms(ShardCompute* compute,
                                    const StepPlan& step);
  // What Update writes into. Apart from it, since an error has changed nothing
  // yet. *num_revoked and errors: as ParameterStore::NextSnapshot; 0 and OK in
  // a repeat.
  absl::Status TakeMemory(ShardCompute* compute, int* num_revoked);
  // REQUIRES: TakeMemory was OK since the Update before.
  absl::Status Update(ShardCompute* compute, const StepPlan& step);
  // What Update has written; null before.
  std::shared_ptr<const Snapshot> updated() const { return updated_; }
  // First slice with a parameter that is not finite, as ShardCompute::Update
  // says; -1 before.
  int32_t not_finite_slice() const { return not_finite_slice_; }

 private:
  std::vector<RoundRow> rows_;
  std::vector<uint32_t> row_crc32c_;
  std::optional<PhaseResult> close_;
  std::vector<int32_t> compensated_tensors_;
  std::optional<PhaseResult> compensated_;
  std::optional<PhaseResult> norms_;
  std::shared_ptr<Snapshot> next_;
  std::shared_ptr<const Snapshot> updated_;
  int32_t not_finite_slice_ = -1;
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_CLOSED_ROUND_H_
