// The first half of a round: closing it, and the Grams of its rows.
#include <algorithm>
#include <numeric>
#include <utility>

#include "server/base/log.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/outliers.h"
#include "server/coordinator/round_engine.h"

namespace agg {

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
      const std::vector<uint32_t>& committed = row_crc32c_[asked[i]];
      if (committed.empty() || committed[shard] == landed[i]) continue;
      const int32_t rank = rows_[asked[i]].rank;
      LogWarning("round ", round_, ": shard ", shard,
                 " has other bytes of rank ", rank, " than its commit says");
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
    absl::StatusOr<std::vector<PhaseResult>> results = RunClose(&sums);
    if (!results.ok()) return results.status();
    if (!DropIncomplete(*results, report)) return Compact(&sums);
    LogWarning("round ", round_,
               " is closed again: ", report->incomplete_rows.size(),
               " committed rows are left out");
    absl::Status status = Abandon();
    if (!status.ok()) return status;
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
  absl::StatusOr<std::vector<GramMatrix>> grams = sums->Take();
  if (!grams.ok()) return grams.status();
  input_ = CompactRound(row_infos_, closed_, *std::move(grams));
  JudgeOutliers(combine_.outliers, &input_);
  return absl::OkStatus();
}

absl::Status RoundEngine::Compensate(const std::vector<int>& tensors) {
  Phase phase = MakePhase(PhaseKind::kCompensatedGram);
  phase.tensors.assign(tensors.begin(), tensors.end());
  GramSums sums(plan_, phase.tensors, static_cast<int>(closed_.size()),
                /*compensated=*/true);
  const absl::Status status = RunOnAll(phase, &sums).status();
  if (!status.ok()) return status;
  absl::StatusOr<std::vector<GramMatrix>> grams = sums.Take();
  if (!grams.ok()) return grams.status();
  ReplaceTensors(closed_, tensors, *std::move(grams), &input_);
  return absl::OkStatus();
}

}  // namespace agg
