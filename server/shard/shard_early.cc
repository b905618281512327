// Grams of slices whose rows are complete while others still arrive: the
// computation hides behind the network. The round's Close takes what fits its
// rows and computes the rest; results have the same bits either way, since a
// slice's Gram depends on its rows alone (kernels/backend.h).
#include <map>
#include <utility>

#include "server/base/log.h"
#include "server/shard/shard_engine_impl.h"

namespace agg {

ShardEngine::Impl::Impl(const ShardOptions& options, Backend* backend,
                        std::function<void(absl::Status)> on_device_lost)
    : options_(options),
      backend_(backend),
      on_device_lost_(std::move(on_device_lost)) {
  if (!options_.early_gram) return;
  early_thread_ = std::thread([this] { ComputeEarlyGrams(); });
}

ShardEngine::Impl::~Impl() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    early_wanted_.NotifyAll();
  }
  if (early_thread_.joinable()) early_thread_.join();
}

ShardEngine::Impl::PhaseLock::PhaseLock(Impl* impl)
    ABSL_NO_THREAD_SAFETY_ANALYSIS : impl_(impl) {
  {
    MutexLock lock(&impl_->mutex_);
    ++impl_->num_phases_;
  }
  impl_->phase_mutex_.Lock();
}

ShardEngine::Impl::PhaseLock::~PhaseLock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  impl_->phase_mutex_.Unlock();
  MutexLock lock(&impl_->mutex_);
  --impl_->num_phases_;
  impl_->early_wanted_.NotifyAll();
}

std::vector<RoundRow> ShardEngine::Impl::RowsOfOpenRound() const {
  std::vector<RoundRow> rows;
  if (!options_.early_gram || !published_ || closed_) return rows;
  std::map<int32_t, uint64_t> session_of_rank = sessions_.alive();
  // A row that is held counts, and its rank's new session does not yet.
  for (int32_t rank = 0; rank < options_.max_workers; ++rank) {
    const uint64_t held = ledger_->HeldSession(rank, version_);
    if (held != 0) session_of_rank[rank] = held;
  }
  const bool starting = version_ == 0;
  for (const auto& [rank, session] : session_of_rank) {
    if (starting || round_ranks_.count(rank) > 0) {
      rows.push_back({rank, session});
    }
  }
  // Until all workers are there, every Gram would be computed again.
  if (starting && static_cast<int32_t>(rows.size()) < options_.workers) {
    rows.clear();
  }
  return rows;
}

void ShardEngine::Impl::ExpectRows() {
  std::vector<RoundRow> rows = RowsOfOpenRound();
  if (SameRows(rows, early_.rows())) return;
  const int num_slices = static_cast<int>(compute_->layout()->slices.size());
  early_.Expect(std::move(rows), num_slices);
  for (int32_t slice = 0; slice < num_slices; ++slice) {
    CompleteIfLanded(slice);
  }
}

void ShardEngine::Impl::CompleteIfLanded(int32_t slice) {
  const std::vector<RoundRow>& rows = early_.rows();
  // Quickly, for most: other rows than the expected ones may count, too.
  if (rows.empty() ||
      ledger_->NumLanded(slice) < static_cast<int>(rows.size())) {
    return;
  }
  for (const RoundRow& row : rows) {
    if (!ledger_->Landed(row.rank, row.session, version_, slice)) return;
  }
  early_.SliceComplete(slice);
  early_wanted_.NotifyAll();
}

bool ShardEngine::Impl::EarlyGramWanted() const {
  return lost_.ok() && num_phases_ == 0 && early_.any_ready();
}

void ShardEngine::Impl::ComputeEarlyGrams() {
  for (;;) {
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && !EarlyGramWanted()) early_wanted_.Wait(&mutex_);
      if (stopping_) return;
    }
    {
      MutexLock phase_lock(&phase_mutex_);
      ComputeEarlyBatch();
    }
    ReportLostDevice();
  }
}

void ShardEngine::Impl::ComputeEarlyBatch() {
  EarlyGrams::Batch batch;
  std::shared_ptr<ShardCompute> compute;
  {
    MutexLock lock(&mutex_);
    if (!lost_.ok() || !early_.any_ready()) return;  // a phase was quicker
    compute = compute_;
    batch = early_.Take(compute->layout()->ranges);
  }
  absl::StatusOr<std::vector<SliceGram>> grams =
      compute->Gram(batch.rows, batch.slices, /*compensated=*/false);
  MutexLock lock(&mutex_);
  if (grams.ok()) {
    early_.Finish(*std::move(grams));
  } else {
    // Close tries again, and its error is the round's.
    LogWarning("early Gram: ", grams.status().ToString());
    early_.GiveUp();
  }
  claims_ended_.NotifyAll();
}

absl::StatusOr<std::vector<SliceGram>> ShardEngine::Impl::ClosingGrams(
    const std::vector<RoundRow>& rows) {
  std::vector<std::optional<SliceGram>> early;
  {
    MutexLock lock(&mutex_);
    early = early_.TakeResults(
        rows, static_cast<int>(compute_->layout()->slices.size()));
  }
  std::vector<int32_t> missing;
  for (size_t slice = 0; slice < early.size(); ++slice) {
    if (!early[slice].has_value()) {
      missing.push_back(static_cast<int32_t>(slice));
    }
  }
  absl::StatusOr<std::vector<SliceGram>> rest =
      phase_compute_->Gram(rows, missing, /*compensated=*/false);
  if (!rest.ok()) return rest.status();
  std::vector<SliceGram> grams;
  auto next = rest->begin();
  for (std::optional<SliceGram>& gram : early) {
    grams.push_back(gram.has_value() ? *std::move(gram) : std::move(*next++));
  }
  MutexLock lock(&mutex_);
  counters_.grams_at_close += static_cast<int64_t>(missing.size());
  counters_.early_grams += static_cast<int64_t>(grams.size() - missing.size());
  return grams;
}

}  // namespace agg
