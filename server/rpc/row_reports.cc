// Reports may overtake each other on their way to the sink: the coordinator
// takes the newest one.
#include "server/rpc/row_reports.h"

#include <utility>

namespace agg {
namespace {

// Threads may bring a row's reports in another order.
void Keep(const CompleteRow& row, CompleteRow* kept) {
  if (kept->session == row.session && kept->round == row.round) {
    if (row.attempt < kept->attempt) return;
    if (row.attempt == kept->attempt && row.waves < kept->waves) return;
  }
  *kept = row;
}

}  // namespace

void RowReports::Begin(uint64_t epoch, Sink sink) {
  std::vector<CompleteRow> missed;
  Sink to;
  {
    MutexLock lock(&mutex_);
    sink_epoch_ = epoch;
    sink_ = std::move(sink);
    to = sink_;
    if (epoch_ == epoch) {
      for (const auto& [rank, row] : rows_) missed.push_back(row);
    }
  }
  if (!missed.empty()) to(missed);
}

void RowReports::Add(uint64_t epoch, int32_t rank, const CompleteRow& row) {
  Sink to;
  {
    MutexLock lock(&mutex_);
    if (epoch < epoch_) return;
    if (epoch > epoch_ || row.round > round_) rows_.clear();
    if (rows_.empty() || row.round >= round_) {
      epoch_ = epoch;
      round_ = row.round;
      Keep(row, &rows_[rank]);
    }
    if (sink_epoch_ == epoch) to = sink_;
  }
  if (to != nullptr) to({row});
}

}  // namespace agg
