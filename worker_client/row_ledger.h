// What a worker has pushed, and what it still owes to which shard (P27). Pure:
// no calls, no clock, no locks, so that a test can play every loss.
//
//   NONE -> PUSHING(attempt) -> ACKED(life per shard) -> COMMITTED -> KNOWN
//   a new epoch: ACKED, COMMITTED -> PUSHING, if a shard has lost the row
//   rewound, or another session: -> NONE
#ifndef AGG_WORKER_CLIENT_ROW_LEDGER_H_
#define AGG_WORKER_CLIENT_ROW_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "server/base/mutex.h"

namespace agg {

// Names a gradient's bytes (P5): one push of one round by one session.
struct RowName {
  bool seed = false;
  uint64_t round = 0;    // of a gradient
  uint64_t session = 0;  // 0: nothing was pushed
  uint32_t attempt = 0;
  bool operator==(const RowName& other) const {
    return seed == other.seed && round == other.round &&
           session == other.session && attempt == other.attempt;
  }
};

// The shards of one epoch: who has the row that it acknowledged.
struct ShardLives {
  uint64_t epoch = 0;
  std::vector<uint64_t> lives;  // by ordinal; 0, or left out: not known
};

// One worker's rows, of which the newest is the one that may be owed.
// Thread-compatible.
class RowLedger {
 public:
  enum class State { kNone, kPushing, kAcked, kCommitted, kKnown };
  // Number of rows that are remembered by name: as many as the server keeps
  // outcomes.
  static constexpr size_t kMaxNames = 16;

  // `holds_slices`: by ordinal, whether the shard has a part of a row.
  explicit RowLedger(std::vector<bool> holds_slices);

  // Begins another gradient of the round, or other bytes for the seed: a higher
  // attempt than any before of the session. kPushing: all shards lack it.
  RowName Begin(bool seed, uint64_t round, uint64_t session);
  // Notes that a shard has the row, as it said in `epoch`, which may be over by
  // now: what is owed is judged by the newest epoch that NewEpoch was told of.
  // Not `landed`: it dropped the bytes because the round is closed, which
  // counts in this epoch alone: the round may be opened again. `crc32c`: the
  // shard's number in CommitRequest.row_crc32c; nothing: not known.
  void Acknowledge(int shard, const ShardLives& epoch, bool landed,
                   absl::optional<uint32_t> crc32c);
  // Notes the row's CommitRequest.absent_tensors.
  void NoteAbsent(std::string tensors) { absent_tensors_ = std::move(tensors); }
  // Notes that the row was committed, if the shards have it. A worker may ask
  // to commit what it has not pushed: the server refuses that by name.
  void Commit();
  // Notes that the round's outcome is known: nothing is owed.
  void Know();
  // Notes that the job has gone back, or the session is another one: nothing is
  // owed. Attempts go on from where they were.
  void Forget();
  // Notes what the shards of a new epoch still have, as ShardLives says.
  // Ascending epochs.
  void NewEpoch(const ShardLives& epoch);

  State state() const { return state_; }
  const RowName& row() const { return row_; }
  // Returns the shards that lack the row, ascending; none unless kPushing. In
  // the newest epoch, if `epoch` is an older one: so a row that is lost() is
  // owed.
  std::vector<int> Owed(const ShardLives& epoch) const;
  // Whether all shards had the row, and one has lost it since.
  bool lost() const { return lost_; }
  // Returns CommitRequest.row_crc32c; empty: not all are known.
  std::vector<uint32_t> row_crc32c() const;
  // Returns what NoteAbsent was told.
  const std::string& absent_tensors() const { return absent_tensors_; }

  // Returns the last push of a round (P6), by whichever session; session 0:
  // none.
  RowName Find(bool seed, uint64_t round) const;

 private:
  struct Receipt {
    bool acknowledged = false;
    bool landed = false;
    uint64_t epoch = 0;
    uint64_t life = 0;
    absl::optional<uint32_t> crc32c;
  };
  bool Has(int shard, const ShardLives& epoch) const;
  const ShardLives& Newest(const ShardLives& epoch) const {
    return epoch.epoch < newest_.epoch ? newest_ : epoch;
  }

  const std::vector<bool> holds_slices_;
  State state_ = State::kNone;
  RowName row_;
  bool lost_ = false;
  std::string absent_tensors_;  // of row_
  ShardLives newest_;
  std::vector<Receipt> receipts_;  // of row_, by ordinal
  std::deque<RowName> names_;      // the newest is last
};

// A row that was pushed, and its outcome as the worker knows it.
struct AuditedPush {
  int rank = 0;
  RowName row;
  // CommitRequest.row_crc32c of proto/agg.proto; empty: not known.
  std::vector<uint32_t> row_crc32c;
  bool included = false;
  uint64_t version = 0;  // of the outcome; 0: not known
  uint64_t made = 0;     // the epoch that made it; 0: not known
  // The round was given up before the worker heard of its end: `included` says
  // nothing then.
  bool rewound = false;
};

// One line of JSON, without a newline.
std::string ToLine(const AuditedPush& push);

// A worker's own log of what it pushed and what it was told of it: the other
// half of `agg_report --audit` (server/tools/README.md).
// Appends lines to a regular file. What was written survives the end of the
// process (not of the machine: nothing is synced). The first error is said and
// ends the log, never the training. Thread-safe.
class AuditLog {
 public:
  // Goes on at the end of the file at `path`, on a line of its own; "": writes
  // nothing. `on_error` is called once at most, from here or from Add.
  AuditLog(const std::string& path,
           std::function<void(const std::string&)> on_error);
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // Twice of one row, since a round that was cancelled has gone on: once,
  // unless it says that the round was rewound.
  void Add(const AuditedPush& push);

 private:
  // "" or why it cannot be done.
  std::string Open();
  std::string Write(absl::string_view line)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const std::function<void(const std::string&)> on_error_;
  Mutex mutex_;
  int fd_ ABSL_GUARDED_BY(mutex_) = -1;  // -1: nothing is written
  RowName last_ ABSL_GUARDED_BY(mutex_);
};

// Whether a worker writes its next row into shared memory itself (P39). Pure:
// no memory, no calls, so that a test can play every loss.
//
// The placement of rows in one region: of one session at one life of a shard. A
// worker that pushes knows that the round before is over, so that nobody reads
// its last row any more. What it may not know is whether the shard still
// writes: the bytes of a push that was never acknowledged, or the zeros of
// tensors that it left out. Then, and for a second gradient of a round, or one
// of an earlier round than the last, while the shard may be reading that, the
// row is sent, and the shard writes it when it can. Thread-compatible.
class RowPlacement {
 public:
  // Begins a push of `row`, perhaps again with the same bytes. Returns whether
  // they are written in place. `leaves_out`: the shard may have to write zeros.
  bool Begin(const RowName& row, bool leaves_out) {
    if (row == row_) return in_place_;
    const bool later = row_.session == 0 || row_.seed || row.round > row_.round;
    row_ = row;
    in_place_ = later && !row.seed && row.attempt == 0 && !shard_writes_;
    shard_writes_ |= !in_place_ || leaves_out;
    return in_place_;
  }

  // Notes that the shard has all of the row.
  void Land(const RowName& row) {
    if (row == row_) shard_writes_ = false;
  }

 private:
  RowName row_;  // of the last push; session 0: none
  bool in_place_ = false;
  bool shard_writes_ = false;  // or may still do so
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_ROW_LEDGER_H_
