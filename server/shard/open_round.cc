// Three parts: frames, rows that phases and commits ask about, and which rows
// the early Grams expect.
#include "server/shard/open_round.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/row_format.h"
#include "server/base/dcheck.h"
#include "server/base/status_macros.h"
#include "server/ingest/frame.h"

namespace agg {

// A row's count only grows while it is the same gradient, so that each look
// begins where the last one has ended.

bool RowWaves::Complete(int wave, const HasLanded& has_landed) const {
  AGG_DCHECK(wave >= 1 && wave <= size());
  const WaveSlices& slices = waves_[wave - 1];
  for (size_t slice = slices.begin; slice < slices.end; ++slice) {
    if (!has_landed(static_cast<int32_t>(slice))) return false;
  }
  return true;
}

int RowWaves::News(int32_t rank, const GradientName& name, bool again,
                   const HasLanded& has_landed) {
  Known& known = known_[rank];
  if (!(known.name == name)) known = {name, 0};
  const int before = known.waves;
  while (known.waves < size() && Complete(known.waves + 1, has_landed)) {
    ++known.waves;
  }
  return known.waves == before && !again ? 0 : known.waves;
}

absl::Status RowWaves::CheckAttempt(int32_t rank,
                                    const GradientName& name) const {
  for (const RoundRow& row : pinned_) {
    if (row.rank != rank || row.session != name.session ||
        row.attempt == name.attempt) {
      continue;
    }
    return absl::FailedPreconditionError(
        absl::StrCat("attempt ", name.attempt, " of round ", name.round,
                     ", which is being published with attempt ", row.attempt));
  }
  return absl::OkStatus();
}

// A batch is taken under the caller's lock and computed without it; results
// of a round that has changed meanwhile are dropped.

namespace {

// The row of `rank`, or null. `rows` ascends by rank.
const RoundRow* FindRank(const std::vector<RoundRow>& rows, int32_t rank) {
  const auto found = std::lower_bound(
      rows.begin(), rows.end(), rank,
      [](const RoundRow& row, int32_t r) { return row.rank < r; });
  return found == rows.end() || found->rank != rank ? nullptr : &*found;
}

}  // namespace

int64_t EarlyGrams::Bytes(int64_t num_slices) {
  // complete_ has a bit per slice, in words; ready_ doubles as it grows.
  constexpr int64_t kWordBits = 64;
  const int64_t words = (num_slices + kWordBits - 1) / kWordBits;
  return num_slices * static_cast<int64_t>(sizeof(std::optional<SliceGram>) +
                                           2 * sizeof(int32_t)) +
         words * (kWordBits / 8);
}

int64_t EarlyGrams::bytes() const {
  return static_cast<int64_t>(
      results_.capacity() * sizeof(std::optional<SliceGram>) +
      ready_.capacity() * sizeof(int32_t) + complete_.capacity() / 8);
}

void EarlyGrams::Expect(std::vector<RoundRow> rows, int num_slices) {
  rows_ = std::move(rows);
  complete_.assign(num_slices, false);
  ready_.clear();
  results_.assign(num_slices, std::nullopt);
  reading_is_stale_ = true;
}

void EarlyGrams::SliceComplete(int32_t slice) {
  if (complete_[slice]) return;
  complete_[slice] = true;
  ready_.push_back(slice);
}

EarlyGrams::Batch EarlyGrams::Take(const std::vector<ElementRange>& ranges,
                                   double max_products) {
  AGG_DCHECK(any_ready() && !reading_.has_value());
  const double num_pairs =
      static_cast<double>(rows_.size()) * (rows_.size() + 1) / 2;
  Batch batch;
  batch.rows = rows_;
  int64_t num_elements = 0;  // of a row
  for (const int32_t slice : ready_) {
    num_elements += ranges[slice].num_elements;
    const bool full =
        num_elements > kMaxElements ||
        num_pairs * static_cast<double>(num_elements) > max_products;
    if (full && !batch.slices.empty()) break;
    batch.slices.push_back(slice);
  }
  ready_.erase(ready_.begin(), ready_.begin() + batch.slices.size());
  std::sort(batch.slices.begin(), batch.slices.end());
  reading_ = batch;
  reading_is_stale_ = false;
  return batch;
}

void EarlyGrams::Finish(std::vector<SliceGram> grams) {
  const Batch batch = *std::move(reading_);
  reading_.reset();
  if (reading_is_stale_) return;
  for (size_t i = 0; i < grams.size(); ++i) {
    results_[batch.slices[i]] = std::move(grams[i]);
  }
}

void EarlyGrams::GiveUp() {
  reading_.reset();
  ready_.clear();
  complete_.assign(complete_.size(), true);
}

bool EarlyGrams::Reading(int32_t rank, int32_t slice) const {
  return reading_.has_value() && FindRank(reading_->rows, rank) != nullptr &&
         std::binary_search(reading_->slices.begin(), reading_->slices.end(),
                            slice);
}

std::vector<std::optional<SliceGram>> EarlyGrams::TakeResults(
    const std::vector<RoundRow>& rows, int num_slices) {
  std::vector<std::optional<SliceGram>> results;
  if (rows == rows_) results = std::move(results_);
  results.resize(num_slices);
  Expect({}, num_slices);
  return results;
}

namespace {

GradientName NameOf(const FrameHeader& header) {
  return {header.session, header.round, header.attempt};
}

// Nobody has summed up what is in place: it counts as an absent slice does.
uint32_t SliceCrc32c(const FrameHeader& header, size_t i) {
  return header.in_place ? 0 : header.crc32c[i];
}

// A slice of a landed gradient comes with other bytes.
absl::Status OtherBytes(const FrameHeader& header, uint32_t slice,
                        uint32_t landed, uint32_t pushed) {
  return absl::FailedPreconditionError(absl::StrCat(
      "slice ", slice, " of round ", header.round, ", attempt ", header.attempt,
      ", has landed with CRC32C 0x", absl::Hex(landed, absl::kZeroPad8),
      "; this push brings 0x", absl::Hex(pushed, absl::kZeroPad8),
      " (absent: 0); a row is one gradient: push another one with a higher "
      "`attempt`, all of its slices"));
}

}  // namespace

OpenRound::OpenRound(const ShardOptions& options,
                     std::shared_ptr<const ShardLayout> layout,
                     const SessionTable* sessions)
    : options_(options),
      layout_(std::move(layout)),
      sessions_(sessions),
      ledger_(options.max_workers + 1,  // and the seed
              static_cast<int>(layout_->slices.size())),
      waves_(options.pipelined ? WaveSlicesOf(*layout_)
                               : std::vector<WaveSlices>()) {}

void OpenRound::ChangeSession(const SessionChange& change) {
  AGG_DCHECK(change.session == 0 ||
             sessions_->Rank(change.session).ok() == !change.remove);
  const uint64_t ended = change.remove ? change.session : change.replaces;
  if (ended != 0) {
    if (change.keep_row) {
      ledger_.Hold(change.rank, ended);
    } else {
      ledger_.Erase(change.rank, ended);
    }
    if (seed_session_ == ended) seed_session_ = 0;
    if (change.remove) ranks_.erase(change.rank);
  }
  if (!change.remove && change.seed_role) seed_session_ = change.session;
  UpdateExpected();
}

// --- Frames ------------------------------------------------------------------

int OpenRound::RowOf(const FrameLanding& landing) const {
  return landing.header.kind == PushKind::kSeed ? seed_row() : landing.rank;
}

absl::Status OpenRound::CheckSeed(const FrameHeader& header) const {
  if (published_) {
    return absl::AlreadyExistsError(
        absl::StrCat("the job is seeded; Pull its current version ", version_));
  }
  if (header.round != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("meta.round is ", header.round, " in a seed; allowed: 0"));
  }
  if (header.session != seed_session_) {
    return absl::AlreadyExistsError(
        "another worker has the seed role; Pull version 0 instead");
  }
  if (closed_ && !SeedComplete(header.session, header.attempt)) {
    return absl::AlreadyExistsError(absl::StrCat(
        "attempt ", header.attempt,
        " of a seed, of which another attempt is being published; Pull version "
        "0 instead"));
  }
  return absl::OkStatus();
}

absl::Status OpenRound::FinishedError() const {
  AGG_DCHECK(finished());
  return absl::FailedPreconditionError(
      absl::StrCat("the job has finished at version ", version_));
}

absl::Status OpenRound::Admit(FrameLanding* landing) const {
  const FrameHeader& header = landing->header;
  AGG_RETURN_IF_ERROR(CheckFrame(header, *layout_, options_.push_dtype));
  if (header.kind == PushKind::kSeed) {
    AGG_RETURN_IF_ERROR(CheckSeed(header));
    const absl::Status attempt = CheckAttempt(*landing);
    return attempt.ok() ? CheckLanded(*landing) : attempt;
  }
  if (!published_ || header.round > version_) {
    return absl::FailedPreconditionError(
        absl::StrCat("push for round ", header.round, "; ",
                     published_ ? absl::StrCat("current version ", version_)
                                : "no version is published yet"));
  }
  // An acknowledgement would promise an outcome that never comes.
  if (finished_ && header.round == version_) return FinishedError();
  landing->closed = header.round < version_ || closed_;
  if (!landing->closed &&
      ledger_.HeldByAnother(landing->rank, header.session, header.round)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "push for round ", header.round, ", in which a former session of rank ",
        landing->rank, " has committed; this one takes part from round ",
        header.round + 1));
  }
  if (landing->closed) return absl::OkStatus();
  AGG_RETURN_IF_ERROR(waves_.CheckAttempt(landing->rank, NameOf(header)));
  const absl::Status attempt = CheckAttempt(*landing);
  return attempt.ok() ? CheckLanded(*landing) : attempt;
}

absl::Status OpenRound::CheckAttempt(const FrameLanding& landing) const {
  const FrameHeader& header = landing.header;
  const std::optional<uint32_t> newer =
      ledger_.NewerAttempt(RowOf(landing), NameOf(header));
  if (!newer.has_value()) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("attempt ", header.attempt,
                                         " of round ", header.round,
                                         " was replaced by attempt ", *newer));
}

absl::Status OpenRound::CheckLanded(const FrameLanding& landing) const {
  const FrameHeader& header = landing.header;
  const int row = RowOf(landing);
  const auto check = [&](uint32_t slice, uint32_t crc32c) -> absl::Status {
    const int32_t local = layout_->local_slice[slice];
    if (!ledger_.Landed(row, NameOf(header), local) ||
        ledger_.SliceCrc32c(row, local) == crc32c) {
      return absl::OkStatus();
    }
    return OtherBytes(header, slice, ledger_.SliceCrc32c(row, local), crc32c);
  };
  for (size_t i = 0; i < header.slices.size(); ++i) {
    AGG_RETURN_IF_ERROR(check(header.slices[i], SliceCrc32c(header, i)));
  }
  for (const uint32_t slice : header.absent_slices) {
    AGG_RETURN_IF_ERROR(check(slice, 0));
  }
  return absl::OkStatus();
}

bool OpenRound::AnyBusy(int row, const FrameHeader& header) const {
  for (const auto* list : {&header.slices, &header.absent_slices}) {
    for (const uint32_t index : *list) {
      const int32_t slice = layout_->local_slice[index];
      if (ledger_.Busy(row, slice)) return true;
      // An early Gram still reads the bytes of a former session or attempt. If
      // the slice has landed for this one, nothing will be written: no need to
      // wait.
      if (row != seed_row() && early_.Reading(row, slice) &&
          !ledger_.Landed(row, NameOf(header), slice)) {
        return true;
      }
    }
  }
  return false;
}

bool OpenRound::Own(int row, const FrameHeader& header) {
  const uint32_t before = ledger_.AttemptOf(row, header.session, header.round);
  if (!ledger_.Own(row, NameOf(header))) return false;
  // The round will close with this attempt: what was computed early about
  // another one is void.
  if (before != header.attempt && row != seed_row()) UpdateExpected();
  return true;
}

bool OpenRound::TryClaim(const Destination& destination,
                         FrameLanding* landing) {
  const FrameHeader& header = landing->header;
  const int row = RowOf(*landing);
  if (!landing->closed && (!Own(row, header) || AnyBusy(row, header))) {
    return false;
  }
  for (size_t i = 0; i < header.slices.size(); ++i) {
    const int32_t local = layout_->local_slice[header.slices[i]];
    SliceLanding slice;
    slice.slice = static_cast<int32_t>(header.slices[i]);
    slice.crc32c = SliceCrc32c(header, i);
    const int64_t num_elements = layout_->ranges[local].num_elements;
    slice.num_bytes = PayloadBytes(header.dtype, num_elements);
    slice.scale_bytes = ScaleBytes(header.dtype, num_elements);
    if (!landing->closed && ledger_.ClaimSlice(row, local)) {
      const SlicePlace place = destination(local);
      slice.destination = place.elements;
      slice.scale_destination = place.scales;
    }
    landing->slices.push_back(slice);
  }
  if (landing->closed) return true;
  for (const uint32_t index : header.absent_slices) {
    const int32_t local = layout_->local_slice[index];
    if (ledger_.ClaimSlice(row, local)) landing->absent.push_back(local);
  }
  return true;
}

int OpenRound::EndClaims(const FrameLanding& landing) {
  const int row = RowOf(landing);
  const auto end = [&](int32_t local, bool landed, uint32_t crc32c) {
    ledger_.EndClaim(row, local, landed, crc32c);
    if (row != seed_row()) NoteIfComplete(local);
  };
  for (const SliceLanding& slice : landing.slices) {
    if (slice.destination == nullptr) continue;  // it was not claimed
    end(layout_->local_slice[slice.slice], slice.landed, slice.crc32c);
  }
  for (const int32_t local : landing.absent) end(local, true, 0);
  return WaveNews(landing);
}

// --- Rows --------------------------------------------------------------------

absl::StatusOr<bool> OpenRound::Complete(const FrameLanding& landing) const {
  AGG_RETURN_IF_ERROR(CheckAttempt(landing));
  return ledger_.Complete(RowOf(landing), NameOf(landing.header));
}

bool OpenRound::RowIsFree(int32_t rank, uint64_t session) const {
  return !ledger_.HeldByAnother(rank, session, version_) &&
         !ledger_.AnyBusyIn(rank);
}

uint64_t OpenRound::HeldSession(int32_t rank) const {
  return ledger_.HeldSession(rank, version_);
}

std::vector<RoundRow> OpenRound::CompleteRound() const {
  std::vector<RoundRow> rows;
  if (!published_ || closed_ || finished_) return rows;
  // In the order of the ranks. A row that is held counts, and the new session
  // of its rank does not yet.
  const std::map<int32_t, uint64_t>& alive = sessions_->alive();
  for (int32_t rank = 0; rank < options_.max_workers; ++rank) {
    uint64_t session = ledger_.HeldSession(rank, version_);
    if (session == 0) {
      const auto live = alive.find(rank);
      if (live == alive.end()) continue;
      session = live->second;
      if (sessions_->FirstRound(session) > version_) continue;
    }
    const RoundRow row{rank, session,
                       ledger_.AttemptOf(rank, session, version_)};
    if (!RowComplete(row)) return {};
    rows.push_back(row);
  }
  return rows;
}

bool OpenRound::RowComplete(const RoundRow& row) const {
  return row.rank >= 0 && row.rank < options_.max_workers &&
         ledger_.Complete(row.rank, {row.session, version_, row.attempt});
}

uint32_t OpenRound::RowCrc32c(const RoundRow& row) const {
  AGG_DCHECK(RowComplete(row));
  return ledger_.RowCrc32c(row.rank);
}

bool OpenRound::SeedComplete(uint64_t session, uint32_t attempt) const {
  return ledger_.Complete(seed_row(), {session, 0, attempt});
}

bool OpenRound::LacksSlices(const PushedRow& pushed, int32_t rank) const {
  if (pushed.kind == PushKind::kSeed) {
    return !published_ && pushed.session == seed_session_ &&
           !SeedComplete(pushed.session, pushed.attempt);
  }
  return published_ && pushed.round == version_ &&
         !RowComplete({rank, pushed.session, pushed.attempt});
}

void OpenRound::Publish(uint64_t version) {
  published_ = true;
  version_ = version;
  Reopen();
  // The rows may be the same ones, but their slices have to land again.
  early_.Expect({}, static_cast<int>(layout_->slices.size()));
  ExpectAlive();
}

void OpenRound::ExpectAlive() {
  ranks_.clear();
  for (const auto& [rank, session] : sessions_->alive()) ranks_.insert(rank);
  UpdateExpected();
}

// --- Waves -------------------------------------------------------------------

int OpenRound::WaveNews(const FrameLanding& landing) {
  if (waves_.size() == 0 || landing.closed ||
      landing.header.kind != PushKind::kGradient) {
    return 0;
  }
  const GradientName name = NameOf(landing.header);
  const bool repeat = landing.absent.empty() &&
                      std::none_of(landing.slices.begin(), landing.slices.end(),
                                   [](const SliceLanding& slice) {
                                     return slice.destination != nullptr;
                                   });
  return waves_.News(landing.rank, name, repeat, [&](int32_t slice) {
    return ledger_.Landed(landing.rank, name, slice);
  });
}

bool OpenRound::HasWave(const RoundRow& row, int wave) const {
  AGG_DCHECK(wave >= 1 && wave <= num_waves());
  const GradientName name = {row.session, version_, row.attempt};
  return row.rank >= 0 && row.rank < options_.max_workers &&
         waves_.Complete(wave, [&](int32_t slice) {
           return ledger_.Landed(row.rank, name, slice);
         });
}

void OpenRound::CloseWave(int wave, const std::vector<RoundRow>& rows) {
  if (wave == 1) waves_.Pin(rows);
  if (wave == waves_.size()) closed_ = true;
}

void OpenRound::ReopenWave(int wave) {
  if (wave == 1) waves_.Unpin();
  closed_ = false;
}

// --- Early Grams -------------------------------------------------------------

std::vector<RoundRow> OpenRound::ExpectedRows() const {
  std::vector<RoundRow> rows;
  const bool worth_it = layout_->num_elements >= options_.min_early_elements;
  if (!options_.early_gram || !worth_it || !published_ || closed_) return rows;
  std::map<int32_t, uint64_t> session_of_rank = sessions_->alive();
  // A row that is held counts, and the new session of its rank does not yet.
  for (int32_t rank = 0; rank < options_.max_workers; ++rank) {
    const uint64_t held = ledger_.HeldSession(rank, version_);
    if (held != 0) session_of_rank[rank] = held;
  }
  const bool starting = version_ == 0;
  for (const auto& [rank, session] : session_of_rank) {
    if (!starting && ranks_.count(rank) == 0) continue;
    rows.push_back({rank, session, ledger_.AttemptOf(rank, session, version_)});
  }
  // Until all workers are there, every Gram would be computed again.
  if (starting && static_cast<int32_t>(rows.size()) < options_.workers) {
    rows.clear();
  }
  return rows;
}

void OpenRound::UpdateExpected() {
  std::vector<RoundRow> rows = ExpectedRows();
  if (rows == early_.rows()) return;
  const int num_slices = static_cast<int>(layout_->slices.size());
  early_.Expect(std::move(rows), num_slices);
  for (int32_t slice = 0; slice < num_slices; ++slice) NoteIfComplete(slice);
}

void OpenRound::NoteIfComplete(int32_t slice) {
  const std::vector<RoundRow>& rows = early_.rows();
  // The count answers most calls without a look at each row. It may include
  // rows that are not expected, so it can only show that rows are missing.
  if (rows.empty() ||
      ledger_.NumLanded(slice) < static_cast<int>(rows.size())) {
    return;
  }
  for (const RoundRow& row : rows) {
    if (!ledger_.Landed(row.rank, {row.session, version_, row.attempt},
                        slice)) {
      return;
    }
  }
  early_.SliceComplete(slice);
}

}  // namespace agg
