// Each phase is computed at its first call; a repeat gets the stored result
// (P7).
#include "server/shard/closed_round.h"

#include <algorithm>
#include <utility>

#include "server/ingest/shard_layout.h"

namespace agg {
namespace {

// The positions in the layout of the slices of `tensors` (ascending).
std::vector<int32_t> SlicesOf(const ShardLayout& layout,
                              const std::vector<int32_t>& tensors) {
  std::vector<int32_t> slices;
  for (size_t i = 0; i < layout.slices.size(); ++i) {
    const int32_t tensor = layout.plan.slices[layout.slices[i]].tensor;
    if (std::binary_search(tensors.begin(), tensors.end(), tensor)) {
      slices.push_back(static_cast<int32_t>(i));
    }
  }
  return slices;
}

}  // namespace

ClosedRound::ClosedRound(std::vector<RoundRow> rows,
                         std::vector<uint32_t> row_crc32c,
                         std::vector<int32_t> incomplete_ranks)
    : rows_(std::move(rows)), row_crc32c_(std::move(row_crc32c)) {
  if (incomplete_ranks.empty()) return;
  // Kept as the result although nothing was computed: a repeat must not find
  // the rows complete meanwhile.
  close_.emplace();
  close_->incomplete_ranks = std::move(incomplete_ranks);
}

absl::StatusOr<PhaseResult> ClosedRound::Close(
    ShardCompute* compute, std::vector<std::optional<SliceGram>> early) {
  std::vector<int32_t> missing;
  for (size_t slice = 0; slice < early.size(); ++slice) {
    if (!early[slice].has_value()) {
      missing.push_back(static_cast<int32_t>(slice));
    }
  }
  absl::StatusOr<std::vector<SliceGram>> rest =
      compute->Gram(rows_, missing, /*compensated=*/false);
  if (!rest.ok()) return rest.status();
  std::vector<SliceGram> grams;
  grams.reserve(early.size());
  auto next = rest->begin();
  for (std::optional<SliceGram>& gram : early) {
    grams.push_back(gram.has_value() ? *std::move(gram) : std::move(*next++));
  }
  close_.emplace();
  close_->row_crc32c = row_crc32c_;
  close_->grams = std::move(grams);
  return *close_;
}

absl::StatusOr<PhaseResult> ClosedRound::CloseSlices(
    ShardCompute* compute, const std::vector<int32_t>& slices) {
  PhaseResult result;
  if (!rows_.empty()) {
    absl::StatusOr<std::vector<SliceGram>> grams =
        compute->Gram(rows_, slices, /*compensated=*/false);
    if (!grams.ok()) return grams.status();
    result.grams = *std::move(grams);
  }
  close_ = std::move(result);
  return *close_;
}

absl::StatusOr<PhaseResult> ClosedRound::CompensatedGram(
    ShardCompute* compute, const std::vector<int32_t>& tensors) {
  if (compensated_.has_value() && compensated_tensors_ == tensors) {
    return *compensated_;
  }
  absl::StatusOr<std::vector<SliceGram>> grams = compute->Gram(
      rows_, SlicesOf(*compute->layout(), tensors), /*compensated=*/true);
  if (!grams.ok()) return grams.status();
  compensated_tensors_ = tensors;
  compensated_.emplace();
  compensated_->grams = *std::move(grams);
  return *compensated_;
}

absl::StatusOr<PhaseResult> ClosedRound::Norms(ShardCompute* compute,
                                               const StepPlan& step) {
  if (norms_.has_value()) return *norms_;
  absl::StatusOr<std::vector<SliceNorms>> norms = compute->Norms(rows_, step);
  if (!norms.ok()) return norms.status();
  norms_.emplace();
  norms_->norms = *std::move(norms);
  return *norms_;
}

absl::Status ClosedRound::TakeMemory(ShardCompute* compute, int* num_revoked) {
  *num_revoked = 0;
  if (updated_ != nullptr || next_ != nullptr) return absl::OkStatus();
  absl::StatusOr<std::shared_ptr<Snapshot>> next =
      compute->store()->NextSnapshot(num_revoked);
  if (next.ok()) next_ = *std::move(next);
  return next.status();
}

absl::Status ClosedRound::Update(ShardCompute* compute, const StepPlan& step) {
  if (updated_ != nullptr) return absl::OkStatus();
  std::shared_ptr<Snapshot> snapshot = std::move(next_);
  absl::Status status =
      compute->Update(rows_, step, snapshot, &not_finite_slice_);
  if (status.ok()) updated_ = std::move(snapshot);
  return status;
}

}  // namespace agg
