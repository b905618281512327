// A map of what is known and a set of what is not told yet.
#include "server/rpc/row_reports.h"

#include <utility>

namespace agg {
namespace {

// Threads may bring reports in another order. Of a rank's sessions the highest
// is the newest (P26), and no row of another one is waited for.
bool IsOlder(const CompleteRow& row, const CompleteRow& kept) {
  if (kept.round != row.round) return false;
  if (kept.session != row.session) return row.session < kept.session;
  return row.attempt < kept.attempt ||
         (row.attempt == kept.attempt && row.waves < kept.waves);
}

}  // namespace

uint64_t RowReports::Begin(uint64_t epoch, Wake wake) {
  MutexLock lock(&mutex_);
  stream_epoch_ = epoch;
  wake_ = std::move(wake);
  untold_.clear();
  if (epoch_ == epoch) {
    for (const auto& [rank, row] : rows_) untold_.insert(rank);
  }
  return ++stream_;
}

void RowReports::Add(uint64_t epoch, int32_t rank, const CompleteRow& row) {
  Wake wake;
  {
    MutexLock lock(&mutex_);
    if (epoch < epoch_ || (epoch == epoch_ && row.round < round_)) return;
    if (epoch > epoch_ || row.round > round_) {
      // What is not told of a round that is over nobody waits for.
      rows_.clear();
      untold_.clear();
    }
    epoch_ = epoch;
    round_ = row.round;
    const auto kept = rows_.find(rank);
    if (kept != rows_.end() && IsOlder(row, kept->second)) return;
    rows_[rank] = row;
    if (stream_epoch_ != epoch) return;
    untold_.insert(rank);
    wake = wake_;
  }
  if (wake != nullptr) wake();
}

std::vector<CompleteRow> RowReports::Take(uint64_t number) {
  std::vector<CompleteRow> rows;
  MutexLock lock(&mutex_);
  if (number != stream_) return rows;
  for (const int32_t rank : untold_) rows.push_back(rows_.at(rank));
  untold_.clear();
  return rows;
}

}  // namespace agg
