// The first half of a round: closing it, and the Grams of its rows.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "server/base/log.h"
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

absl::Status RoundEngine::Close(RoundReport* report) {
  report->incomplete_rows.clear();
  closed_.clear();
  for (size_t i = 0; i < rows_.size(); ++i) {
    closed_.push_back(static_cast<int>(i));
  }
  Phase close = MakePhase(PhaseKind::kClose);
  for (size_t t = 0; t < manifest_.tensors.size(); ++t) {
    close.tensors.push_back(static_cast<int32_t>(t));
  }
  // A shard that lacks slices of a row computes nothing and names the row. Its
  // bytes of other rows may differ from their commits. So this usually runs
  // once, and two or three times if rows are left out, each time with fewer.
  for (;;) {
    if (closed_.empty()) return AddGrams(close, {});
    close.rows.clear();
    for (const int row : closed_) close.rows.push_back(rows_[row]);
    absl::StatusOr<std::vector<PhaseResult>> results = RunOnAll(close);
    if (!results.ok()) return results.status();
    if (!DropIncomplete(*results, report)) return AddGrams(close, *results);
    LogWarning("round ", round_,
               " is closed again: ", report->incomplete_rows.size(),
               " committed rows are left out");
    absl::Status status = RunOnAll(MakePhase(PhaseKind::kAbandon)).status();
    if (!status.ok()) return status;
  }
}

// --- Grams -------------------------------------------------------------------

GramMatrix RoundEngine::OverCommittedRows(const GramMatrix& closed) const {
  const int num_rows = static_cast<int>(rows_.size());
  if (closed.num_rows() == num_rows) return closed;
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  GramMatrix all(num_rows, closed.compensated());
  for (int i = 0; i < num_rows; ++i) {
    for (int j = i; j < num_rows; ++j) all.Set(i, j, kNaN);
  }
  for (int i = 0; i < closed.num_rows(); ++i) {
    for (int j = i; j < closed.num_rows(); ++j) {
      all.Set(closed_[i], closed_[j], closed(i, j), closed.lo(i, j));
    }
  }
  return all;
}

absl::StatusOr<GramMatrix> RoundEngine::SumTensor(
    const std::vector<const SliceGram*>& by_slice, int32_t tensor,
    bool compensated) const {
  const int num_rows = static_cast<int>(closed_.size());
  if (num_rows == 0) return OverCommittedRows(GramMatrix(0));
  const size_t packed = PackedGramSize(num_rows);
  // In the order of the slices, whatever shard they come from (P8): the sum has
  // the same bits for any number of shards.
  GramMatrix sum(num_rows, compensated);
  for (int32_t slice : plan_.slices_of_tensor[tensor]) {
    const SliceGram* gram = by_slice[slice];
    if (gram == nullptr || gram->hi.size() != packed ||
        gram->lo.size() != (compensated ? packed : 0)) {
      return absl::InternalError(absl::StrCat(
          "the partial Gram of slice ", slice, ", shard ",
          plan_.slices[slice].shard, ", is missing or has another size"));
    }
    sum.Add(GramMatrix::FromPacked(num_rows, gram->hi, gram->lo));
  }
  return OverCommittedRows(sum);
}

absl::Status RoundEngine::AddGrams(const Phase& phase,
                                   const std::vector<PhaseResult>& results) {
  std::vector<const SliceGram*> by_slice(plan_.slices.size(), nullptr);
  for (const PhaseResult& result : results) {
    for (const SliceGram& gram : result.grams) {
      if (gram.slice >= 0 &&
          gram.slice < static_cast<int32_t>(by_slice.size())) {
        by_slice[gram.slice] = &gram;
      }
    }
  }
  for (int32_t tensor : phase.tensors) {
    absl::StatusOr<GramMatrix> sum =
        SumTensor(by_slice, tensor, phase.kind == PhaseKind::kCompensatedGram);
    if (!sum.ok()) return sum.status();
    input_.tensors[tensor] = *std::move(sum);
  }
  return absl::OkStatus();
}

absl::Status RoundEngine::CollectGrams(const Phase& phase) {
  absl::StatusOr<std::vector<PhaseResult>> results = RunOnAll(phase);
  if (!results.ok()) return results.status();
  return AddGrams(phase, *results);
}

}  // namespace agg
