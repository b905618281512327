// Which slices of which rows have landed (P5): what makes a repeated push
// harmless. Apart from the rows' memory, so that every order of events can be
// tested without it. Thread-compatible: its owner's lock protects it.
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

  // Makes the row (session, round)'s, forgetting what it held for others, and
  // returns true; also if it is theirs already. False while a former owner's
  // bytes are being copied: the caller waits and asks again.
  // REQUIRES: !HeldByAnother(row, session, round).
  bool Own(int row, uint64_t session, uint64_t round);

  // Busy, ClaimSlice, EndClaim. REQUIRES: Own(row, ...) was true under the lock
  // that is still held, or for the claim that ends.
  //
  // Whether another frame is copying the slice at this moment.
  bool Busy(int row, int slice) const;
  // Claims the slice; false if it has landed already.
  // REQUIRES: !Busy(row, slice).
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

  // Keeps the row's bytes for its round although their session is over, since
  // it has committed them. Does nothing if they are not of `session`.
  void Hold(int row, uint64_t session);
  // Whether the row is held for another session in this round or a later one.
  bool HeldByAnother(int row, uint64_t session, uint64_t round) const;

  // The session for which the row is held in `round`; 0: none.
  uint64_t HeldSession(int row, uint64_t round) const;

  // Forgets the row's bytes if they are of `session`. Bytes that are being
  // copied now are forgotten when the last claim of the row ends.
  void Erase(int row, uint64_t session);

 private:
  enum class State : uint8_t { kEmpty, kLanding, kLanded };
  struct Row {
    uint64_t session = 0;
    uint64_t round = 0;
    bool erased = false;  // forget it when num_landing is 0
    bool held = false;
    int num_landing = 0;
    int num_landed = 0;
    std::vector<State> slices;
  };
  void Reset(Row* row);
  // Keep num_rows_landed_: one slice of the row has landed, or all that have
  // are forgotten.
  void Count(const Row& row, int slice);
  void Discount(const Row& row);

  const int num_slices_;
  std::vector<Row> rows_;
  uint64_t newest_round_ = 0;
  std::vector<int> num_rows_landed_;  // by slice, of newest_round_
};

}  // namespace agg

#endif  // AGG_SERVER_INGEST_ARRIVAL_LEDGER_H_
