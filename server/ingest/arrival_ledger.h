// Which slices of which rows have landed (P5): the state behind idempotent
// pushes. Thread-compatible: its owner's lock protects it.
#ifndef AGG_SERVER_INGEST_ARRIVAL_LEDGER_H_
#define AGG_SERVER_INGEST_ARRIVAL_LEDGER_H_

#include <cstdint>
#include <vector>

namespace agg {

// Per slice: empty -> landing (claimed, being copied) -> landed. Invariants:
//  1. A landed slice is never claimed again for the same (session, round).
//  2. While any slice of a row is landing the row keeps its (session, round).
class ArrivalLedger {
 public:
  ArrivalLedger(int num_rows, int num_slices);

  // Whether `row` now belongs to (session, round): it already did, or it was
  // idle and was reset for them. False while a former owner's copy is under
  // way: the caller waits and asks again. REQUIRES: !HeldByAnother(..).
  bool Own(int row, uint64_t session, uint64_t round);

  // REQUIRES (these three): Own(row, ...) was true under the same lock.
  // Whether another frame is copying the slice at this moment.
  bool Busy(int row, int slice) const;
  // Claims it; false if it has landed already. REQUIRES: !Busy(row, slice).
  bool ClaimSlice(int row, int slice);
  // Ends a claim: to landed, or back to empty.
  void EndClaim(int row, int slice, bool landed);

  // All slices of the row have landed for (session, round); true for a shard
  // without slices.
  bool Complete(int row, uint64_t session, uint64_t round) const;

  // Whether the slice has landed for (session, round).
  bool Landed(int row, uint64_t session, uint64_t round, int slice) const;

  // Rows that have landed the slice for the newest round that any row has.
  int NumLanded(int slice) const { return num_rows_landed_[slice]; }

  // Keeps the row's bytes for its round, though their session is over (it has
  // committed them); nothing if they are not of `session`.
  void Hold(int row, uint64_t session);
  // Whether (session, round) may not have the row because it is held.
  bool HeldByAnother(int row, uint64_t session, uint64_t round) const;

  // The session that it is held for in `round`; 0: none.
  uint64_t HeldSession(int row, uint64_t round) const;

  // Forgets the row's bytes if they are of `session`; those being copied are
  // forgotten when their claim ends.
  void Erase(int row, uint64_t session);

 private:
  enum class State : uint8_t { kEmpty, kLanding, kLanded };
  struct Row {
    uint64_t session = 0;
    uint64_t round = 0;
    bool erased = false;  // while copies were under way
    bool held = false;
    int num_landing = 0;
    int num_landed = 0;
    std::vector<State> slices;
  };
  void Reset(Row* row);
  // The row's slices, or one, no longer count, or do.
  void Discount(const Row& row);
  void Count(const Row& row, int slice);

  const int num_slices_;
  std::vector<Row> rows_;
  uint64_t newest_round_ = 0;
  std::vector<int> num_rows_landed_;  // by slice, of newest_round_
};

}  // namespace agg

#endif  // AGG_SERVER_INGEST_ARRIVAL_LEDGER_H_
