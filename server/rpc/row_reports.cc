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
  held_back_ = false;
  if (epoch_ == epoch) {
    for (const auto& [rank, row] : rows_) untold_.insert(rank);
  }
  return ++stream_;
}

bool RowReports::IsPast(uint64_t epoch, uint64_t round) const {
  return epoch < epoch_ || (epoch == epoch_ && round < round_);
}

void RowReports::GoTo(uint64_t epoch, uint64_t round) {
  if (epoch == epoch_ && round == round_) return;
  // What is not told of a round that is over nobody waits for.
  rows_.clear();
  complete_at_.clear();
  untold_.clear();
  offer_ = nullptr;
  held_back_ = false;
  released_ = false;
  epoch_ = epoch;
  round_ = round;
}

RowReports::Wake RowReports::Release() {
  released_ = true;
  return std::exchange(held_back_, false) ? wake_ : nullptr;
}

bool RowReports::Keep(uint64_t epoch, int32_t rank, const CompleteRow& row) {
  const auto kept = rows_.find(rank);
  if (kept != rows_.end() && IsOlder(row, kept->second)) return false;
  rows_[rank] = row;
  complete_at_[rank] = clock_->Now();
  return stream_epoch_ == epoch;
}

// Who comes with `more` saw the round before its last row was complete, maybe
// long ago: no later report would bring this one.
void RowReports::Add(uint64_t epoch, int32_t rank, const CompleteRow& row,
                     bool more) {
  Wake wake;
  {
    MutexLock lock(&mutex_);
    if (IsPast(epoch, row.round)) return;
    GoTo(epoch, row.round);
    if (!more) wake = Release();
    if (Keep(epoch, rank, row)) {
      held_back_ = !released_ && (untold_.empty() || held_back_);
      untold_.insert(rank);
      if (!held_back_) wake = wake_;
    }
  }
  if (wake != nullptr) wake();
}

void RowReports::AddOffer(uint64_t epoch,
                          std::shared_ptr<const CloseOffer> offer) {
  MutexLock lock(&mutex_);
  if (IsPast(epoch, offer->round)) return;
  GoTo(epoch, offer->round);
  offer_ = std::move(offer);
}

void RowReports::Flush(uint64_t epoch, uint64_t round) {
  Wake wake;
  {
    MutexLock lock(&mutex_);
    if (IsPast(epoch, round)) return;
    GoTo(epoch, round);
    wake = Release();
  }
  if (wake != nullptr) wake();
}

void RowReports::Flush() {
  Wake wake;
  {
    MutexLock lock(&mutex_);
    wake = Release();
  }
  if (wake != nullptr) wake();
}

RowReport RowReports::Take(uint64_t number) {
  RowReport report;
  MutexLock lock(&mutex_);
  if (number != stream_ || held_back_ || untold_.empty()) return report;
  const absl::Time now = clock_->Now();
  for (const int32_t rank : untold_) {
    report.rows.push_back(rows_.at(rank));
    report.rows.back().ago = now - complete_at_.at(rank);
  }
  untold_.clear();
  report.offer = std::exchange(offer_, nullptr);
  return report;
}

}  // namespace agg
