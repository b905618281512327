// Which slices of which rows have landed (P5): what makes a repeated push
// harmless. Apart from the rows' memory, so that all orders of events are
// tested without it. Thread-compatible: its owner's lock protects it.
#ifndef AGG_SERVER_INGEST_ARRIVAL_LEDGER_H_
#define AGG_SERVER_INGEST_ARRIVAL_LEDGER_H_

#include <cstdint>
#include <optional>
#include <vector>

namespace agg {

// Names a gradient's bytes, or a seed's: retries repeat it, and another
// gradient of the same session and round has a higher attempt.
struct GradientName {
  uint64_t session = 0;
  uint64_t round = 0;
  uint32_t attempt = 0;
};

inline bool operator==(const GradientName& a, const GradientName& b) {
  return a.session == b.session && a.round == b.round && a.attempt == b.attempt;
}

// A slice goes: empty -> landing (claimed, being copied) -> landed. Invariants:
//  1. A landed slice is never claimed again for the same gradient.
//  2. While any slice of a row is landing the row keeps its gradient.
//  3. A row never goes back to a lower attempt of its session and round.
class ArrivalLedger {
 public:
  ArrivalLedger(int num_rows, int num_slices);

  // What it takes now; and with `pushed` of its rows pushed to.
  int64_t bytes() const;
  static int64_t Bytes(int64_t num_rows, int64_t num_slices, int64_t pushed);

  // Makes the row the gradient's, forgetting what it held for others, and
  // returns true; also if it is its already. False while another one's bytes
  // are being copied: the caller waits and asks again; lower attempts are
  // replaced from here on, so that they cannot keep it waiting.
  // REQUIRES: !HeldByAnother(row, name.session, name.round), and no
  // NewerAttempt(row, name).
  bool Own(int row, const GradientName& name);
  // The higher attempt of the same session and round that the row has or waits
  // for, if there is one.
  std::optional<uint32_t> NewerAttempt(int row, const GradientName& name) const;
  // The attempt whose bytes the row has for (session, round); 0 if it has none.
  uint32_t AttemptOf(int row, uint64_t session, uint64_t round) const;

  // Busy, ClaimSlice, EndClaim. REQUIRES: Own(row, ...) was true under the lock
  // that is still held, or for the claim that ends.

  // Whether another frame is copying the slice at this moment.
  bool Busy(int row, int slice) const;
  bool AnyBusy() const;  // any slice of any row
  bool AnyBusyIn(int row) const { return rows_[row].num_landing > 0; }
  // The session whose gradient the row is; 0: none.
  uint64_t OwnerOf(int row) const { return rows_[row].name.session; }
  // Claims the slice; false if it has landed already.
  // REQUIRES: !Busy(row, slice).
  bool ClaimSlice(int row, int slice);
  // Ends a claim: to landed, or back to empty. `crc32c`: of what has landed; 0
  // for an absent slice.
  void EndClaim(int row, int slice, bool landed, uint32_t crc32c = 0);

  // All slices of the row have landed for the gradient; true for a shard
  // without slices.
  bool Complete(int row, const GradientName& name) const;
  // CRC32C over the slices' CRC32Cs in order, 4 bytes little endian each.
  // REQUIRES: Complete(row, ...).
  uint32_t RowCrc32c(int row) const;

  // Whether the slice has landed for the gradient; its CRC32C, if it has.
  bool Landed(int row, const GradientName& name, int slice) const;
  uint32_t SliceCrc32c(int row, int slice) const;

  // Rows that have landed the slice for the newest round that any row has.
  int NumLanded(int slice) const { return num_rows_landed_[slice]; }

  // Keeps the row's bytes for its round although their session is over, since
  // it has committed them. Does nothing if they are not of `session`.
  void Hold(int row, uint64_t session);
  // Whether the row is held for another session in this round or a later one.
  bool HeldByAnother(int row, uint64_t session, uint64_t round) const;
  // Forgets all rows that are held, as Erase does.
  void ReleaseAll();
  // The session for which the row is held in `round`; 0: none.
  uint64_t HeldSession(int row, uint64_t round) const;

  // Forgets the row's bytes if they are of `session`. Bytes that are being
  // copied now are forgotten when the last claim of the row ends.
  void Erase(int row, uint64_t session);

 private:
  enum class State : uint8_t { kEmpty, kLanding, kLanded };
  struct Row {
    GradientName name;
    uint32_t next_attempt = 0;  // waits until num_landing is 0; 0: none
    bool erased = false;        // forget it when num_landing is 0
    bool held = false;
    int num_landing = 0;
    int num_landed = 0;
    std::vector<State> slices;
    std::vector<uint32_t> crc32c;  // by slice; of those that have landed
  };
  // Whether the row has bytes of this session and round, of any attempt.
  static bool Has(const Row& row, uint64_t session, uint64_t round) {
    return row.name.session == session && row.name.round == round &&
           !row.erased;
  }
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
