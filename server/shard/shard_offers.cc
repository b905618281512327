// A close before it is asked for (P44): when the last row of a small round
// lands, the shard computes what the close would answer, on the thread that
// landed it. Nothing is decided here: the round stays open until the
// coordinator closes it, with these rows or with others.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/time/clock.h"
#include "server/ingest/shard_layout.h"
#include "server/shard/shard_engine.h"
#include "server/shard/shard_replication.h"

namespace agg {
namespace {

// A frame's thread computes it, with the engine's lock: some 0.1 ms at most.
// What is larger gains nothing by a trip less.
constexpr int64_t kMaxProducts = int64_t{1} << 20;
// Numbers of all its Grams: it travels in one message with the reports.
constexpr int64_t kMaxNumbers = 4096;
// Of all rows: so much a parked copy of them takes.
constexpr int64_t kMaxRowBytes = int64_t{1} << 20;

bool IsSmall(const ShardLayout& layout, int64_t row_bytes, int64_t num_rows) {
  const int64_t num_pairs = num_rows * (num_rows + 1) / 2;
  return num_pairs * layout.num_elements <= kMaxProducts &&
         num_pairs * static_cast<int64_t>(layout.slices.size()) <=
             kMaxNumbers &&
         num_rows * row_bytes <= kMaxRowBytes;
}

}  // namespace

void ShardEngine::OfferClose(uint64_t epoch) {
  if (on_offer_ == nullptr || options_.pipelined) return;
  // Who has it may keep it for long, and this thread must not wait: then the
  // round is closed in a phase of its own.
  if (!turn_.TryLock()) return;
  std::shared_ptr<const CloseOffer> offer;
  std::shared_ptr<ShardCompute> compute;
  {
    MutexLock lock(&mutex_);
    offer = MakeOffer(epoch);
    compute = compute_;
  }
  // As the close would: the neighbour's frames, which may come next, wait for
  // it (P17). If it fails, the close comes, and the update finds it void.
  if (offer != nullptr && !Replication::StepReplica(compute.get()).ok()) {
    MutexLock lock(&mutex_);
    DropOffer();
    offer = nullptr;
  }
  turn_.Unlock();
  ReportLostDevice();
  if (offer != nullptr) on_offer_(epoch, std::move(offer));
}

std::shared_ptr<const CloseOffer> ShardEngine::MakeOffer(uint64_t epoch) {
  if (epoch_.number() != epoch || !epoch_.open() || open_round_ == nullptr ||
      offered_ || backend_.memory_needs(1).on_device) {
    return nullptr;
  }
  std::vector<RoundRow> rows = open_round_->CompleteRound();
  const ShardLayout& layout = *compute_->layout();
  if (rows.empty() || !IsSmall(layout, compute_->rows()->row_bytes(),
                               static_cast<int64_t>(rows.size()))) {
    return nullptr;
  }
  const absl::Time start = absl::Now();
  std::vector<int32_t> slices(layout.slices.size());
  std::iota(slices.begin(), slices.end(), 0);
  absl::StatusOr<std::vector<SliceGram>> grams =
      compute_->Gram(rows, slices, /*compensated=*/false);
  if (!grams.ok()) return nullptr;  // the close tries again, and says it
  auto offer = std::make_shared<CloseOffer>();
  offer->round = open_round_->version();
  for (const RoundRow& row : rows) {
    offer->result.row_crc32c.push_back(open_round_->RowCrc32c(row));
  }
  offer->rows = std::move(rows);
  offer->result.grams = *std::move(grams);
  offer->result.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  offered_ = true;
  offer_ = offer;
  return offer;
}

absl::Status ShardEngine::ParkOffered(const FrameLanding& landing) {
  const FrameHeader& header = landing.header;
  if (offer_ == nullptr || landing.closed ||
      header.kind != PushKind::kGradient) {
    return absl::OkStatus();
  }
  for (const RoundRow& row : offer_->rows) {
    if (row.rank != landing.rank || row.session != header.session ||
        row.attempt >= header.attempt ||
        row.attempt != open_round_->AttemptOf(row)) {
      continue;
    }
    return compute_->rows()->Park(row.rank, row.session, row.attempt);
  }
  return absl::OkStatus();
}

bool ShardEngine::Offered(const std::vector<RoundRow>& rows) const {
  return offer_ != nullptr && offer_->rows == rows;
}

void ShardEngine::TakeOffer() {
  const std::shared_ptr<const CloseOffer> offer = std::move(offer_);
  offer_ = nullptr;
  open_round_->Close();
  const int num_slices = static_cast<int>(compute_->layout()->slices.size());
  open_round_->early()->TakeResults(offer->rows, num_slices);
  closed_round_ = ClosedRound(*offer);
  totals_.early_grams += num_slices;
}

bool ShardEngine::IsQuick(const Phase& phase) const {
  if (phase.kind != PhaseKind::kUpdate || options_.replicated) return false;
  MutexLock lock(&mutex_);
  return Offered(phase.rows);
}

void ShardEngine::ForgetOffered(uint64_t session) {
  if (offer_ == nullptr) return;
  const bool named = std::any_of(
      offer_->rows.begin(), offer_->rows.end(),
      [session](const RoundRow& row) { return row.session == session; });
  if (!named) return;
  DropOffer();
  offered_ = false;  // the others' rows may be offered
}

void ShardEngine::DropOffer() {
  offer_ = nullptr;
  if (compute_ != nullptr) compute_->rows()->Unpark();
}

}  // namespace agg
