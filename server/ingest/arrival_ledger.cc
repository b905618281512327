// A row that is erased while bytes are being copied into it stays as it is
// until the last claim has ended, since the copies go on: only then is it
// reset.
#include "server/ingest/arrival_ledger.h"

#include <algorithm>
#include <utility>

#include "proto/crc32c.h"
#include "server/base/dcheck.h"

namespace agg {

ArrivalLedger::ArrivalLedger(int num_rows, int num_slices)
    : num_slices_(num_slices), rows_(num_rows), num_rows_landed_(num_slices) {
  for (Row& row : rows_) {
    row.slices.assign(num_slices, State::kEmpty);
  }
}

int64_t ArrivalLedger::Bytes(int64_t num_rows, int64_t num_slices,
                             int64_t pushed) {
  const auto bytes = [](size_t of_one) { return static_cast<int64_t>(of_one); };
  const int64_t per_row =
      bytes(sizeof(Row)) + num_slices * bytes(sizeof(State));
  const int64_t crc32c = num_slices * bytes(sizeof(uint32_t));
  const int64_t counts = num_slices * bytes(sizeof(int));
  return num_rows * per_row + pushed * crc32c + counts;
}

int64_t ArrivalLedger::bytes() const {
  size_t bytes = rows_.capacity() * sizeof(Row) +
                 num_rows_landed_.capacity() * sizeof(int);
  for (const Row& row : rows_) {
    bytes += row.slices.capacity() * sizeof(State) +
             row.crc32c.capacity() * sizeof(uint32_t);
  }
  return static_cast<int64_t>(bytes);
}

void ArrivalLedger::Discount(const Row& row) {
  if (row.name.round != newest_round_ || row.num_landed == 0) return;
  for (int slice = 0; slice < num_slices_; ++slice) {
    if (row.slices[slice] == State::kLanded) --num_rows_landed_[slice];
  }
}

void ArrivalLedger::Count(const Row& row, int slice) {
  if (row.name.round < newest_round_) return;
  // The first slice of a new round: what rows hold of the round before it is
  // not counted any more.
  if (row.name.round > newest_round_) {
    newest_round_ = row.name.round;
    std::fill(num_rows_landed_.begin(), num_rows_landed_.end(), 0);
  }
  ++num_rows_landed_[slice];
}

void ArrivalLedger::Reset(Row* row) {
  if (!row->erased) Discount(*row);
  row->name = GradientName();
  row->next_attempt = 0;
  row->erased = false;
  row->held = false;
  row->num_landed = 0;
  std::fill(row->slices.begin(), row->slices.end(), State::kEmpty);
}

bool ArrivalLedger::AnyBusy() const {
  return std::any_of(rows_.begin(), rows_.end(),
                     [](const Row& row) { return row.num_landing > 0; });
}

bool ArrivalLedger::Own(int index, const GradientName& name) {
  AGG_DCHECK(!HeldByAnother(index, name.session, name.round));
  AGG_DCHECK(!NewerAttempt(index, name).has_value());
  Row& row = rows_[index];
  // A row that nobody has had yet has no room for checksums, and the name of a
  // caller who leaves it out.
  const bool had = row.crc32c.size() == static_cast<size_t>(num_slices_);
  if (row.name == name && !row.erased && had) return true;
  if (row.num_landing > 0) {
    if (Has(row, name.session, name.round)) {
      row.next_attempt = std::max(row.next_attempt, name.attempt);
    }
    return false;
  }
  Reset(&row);
  row.name = name;
  // Not for ranks that never push: many slices times all ranks is much memory.
  row.crc32c.resize(num_slices_);
  return true;
}

std::optional<uint32_t> ArrivalLedger::NewerAttempt(
    int index, const GradientName& name) const {
  const Row& row = rows_[index];
  if (!Has(row, name.session, name.round)) return std::nullopt;
  const uint32_t newest = std::max(row.name.attempt, row.next_attempt);
  if (newest <= name.attempt) return std::nullopt;
  return newest;
}

uint32_t ArrivalLedger::AttemptOf(int index, uint64_t session,
                                  uint64_t round) const {
  const Row& row = rows_[index];
  return Has(row, session, round) ? row.name.attempt : 0;
}

bool ArrivalLedger::Busy(int index, int slice) const {
  AGG_DCHECK(slice >= 0 && slice < num_slices_);
  return rows_[index].slices[slice] == State::kLanding;
}

bool ArrivalLedger::ClaimSlice(int index, int slice) {
  AGG_DCHECK(!Busy(index, slice));
  Row& row = rows_[index];
  if (row.slices[slice] == State::kLanded) return false;
  row.slices[slice] = State::kLanding;
  ++row.num_landing;
  return true;
}

void ArrivalLedger::EndClaim(int index, int slice, bool landed,
                             uint32_t crc32c) {
  AGG_DCHECK(Busy(index, slice));
  Row& row = rows_[index];
  row.crc32c[slice] = crc32c;
  row.slices[slice] = landed ? State::kLanded : State::kEmpty;
  --row.num_landing;
  if (landed) ++row.num_landed;
  if (landed && !row.erased) Count(row, slice);
  if (row.erased && row.num_landing == 0) Reset(&row);
}

bool ArrivalLedger::Complete(int index, const GradientName& name) const {
  if (num_slices_ == 0) return true;
  const Row& row = rows_[index];
  return row.name == name && !row.erased && row.num_landed == num_slices_;
}

uint32_t ArrivalLedger::RowCrc32c(int index) const {
  AGG_DCHECK(Complete(index, rows_[index].name));
  return Crc32cOfWords(rows_[index].crc32c);
}

bool ArrivalLedger::Landed(int index, const GradientName& name,
                           int slice) const {
  const Row& row = rows_[index];
  return row.name == name && !row.erased && row.slices[slice] == State::kLanded;
}

uint32_t ArrivalLedger::SliceCrc32c(int index, int slice) const {
  return rows_[index].crc32c[slice];
}

void ArrivalLedger::Hold(int index, uint64_t session) {
  Row& row = rows_[index];
  if (row.name.session == session && !row.erased) row.held = true;
}

bool ArrivalLedger::HeldByAnother(int index, uint64_t session,
                                  uint64_t round) const {
  const Row& row = rows_[index];
  return row.held && row.name.session != session && round <= row.name.round;
}

void ArrivalLedger::ReleaseAll() {
  for (size_t index = 0; index < rows_.size(); ++index) {
    Row& row = rows_[index];
    // At once, also where copies under way keep it from being reset.
    if (std::exchange(row.held, false)) {
      Erase(static_cast<int>(index), row.name.session);
    }
  }
}

uint64_t ArrivalLedger::HeldSession(int index, uint64_t round) const {
  const Row& row = rows_[index];
  return row.held && row.name.round == round ? row.name.session : 0;
}

void ArrivalLedger::Erase(int index, uint64_t session) {
  Row& row = rows_[index];
  if (row.name.session != session) return;
  if (row.num_landing > 0) {
    if (!row.erased) Discount(row);
    row.erased = true;
  } else {
    Reset(&row);
  }
}

}  // namespace agg
