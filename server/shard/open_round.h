// The open round of one shard as bookkeeping: who takes part, what has landed,
// which Grams may be computed early, whether it is closed. It decides; memory,
// threads and waiting are its owner's (shard_engine.h).
#ifndef AGG_SERVER_SHARD_OPEN_ROUND_H_
#define AGG_SERVER_SHARD_OPEN_ROUND_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/buffer.h"
#include "server/base/dcheck.h"
#include "server/ingest/arrival_ledger.h"
#include "server/ingest/frame.h"
#include "server/ingest/shard_layout.h"
#include "server/round/phase.h"
#include "server/round/session_table.h"
#include "server/round/shard_options.h"
#include "server/round/shard_peer.h"

namespace agg {

// What a shard knows about the rows of a pipelined round, wave by wave (P43):
// how far each one is, and which attempts count once the first wave is closed.
// Waves count from 1. Thread-compatible: its owner's lock protects it.
class RowWaves {
 public:
  // Takes the waves' slices; none: the job is not pipelined.
  explicit RowWaves(std::vector<WaveSlices> waves) : waves_(std::move(waves)) {}

  int size() const { return static_cast<int>(waves_.size()); }
  // REQUIRES: 1 <= wave <= size().
  const WaveSlices& slices(int wave) const {
    AGG_DCHECK(wave >= 1 && wave <= size());
    return waves_[wave - 1];
  }

  using HasLanded = std::function<bool(int32_t slice)>;
  // Whether the row has all slices of the wave. REQUIRES: as slices().
  bool Complete(int wave, const HasLanded& has_landed) const;
  // How many of the first waves of the rank's row, which `name` names, are
  // complete: 0 if that is none, or as many as at the last call for that row
  // and not `again`.
  int News(int32_t rank, const GradientName& name, bool again,
           const HasLanded& has_landed);

  // Notes that these rows are in the round's first wave: no other attempt of
  // theirs may come any more.
  void Pin(std::vector<RoundRow> rows) { pinned_ = std::move(rows); }
  void Unpin() { pinned_.clear(); }
  // FAILED_PRECONDITION if another attempt of the rank's row is pinned.
  absl::Status CheckAttempt(int32_t rank, const GradientName& name) const;

 private:
  struct Known {
    GradientName name;
    int waves = 0;
  };
  const std::vector<WaveSlices> waves_;
  std::map<int32_t, Known> known_;  // by rank
  std::vector<RoundRow> pinned_;
};

// Which slices' Grams can be computed before their round closes, and the
// results: bookkeeping alone, without a thread or a backend. A slice is
// complete when all expected rows have landed it. The expected rows are those
// with which the open round will probably close. If it closes with others, the
// early results are thrown away, and nothing else is lost. Slices are positions
// in the shard's layout. Thread-compatible: its owner's lock protects it.
class EarlyGrams {
 public:
  // A batch has at most so many elements of each row, which two float32 rows
  // give an H100 for 0.2 ms and a CPU for some 10: phases wait for it. It takes
  // what is complete: the first one of a round is small, and the rows of the
  // next are copied while a device computes one. A call costs as much as 60 MB
  // of rows on that card: few and large ones are faster.
  static constexpr int64_t kMaxElements = int64_t{1} << 26;

  // What the bookkeeping of so many slices takes. The Grams themselves become
  // those of Close, and are counted there.
  static int64_t Bytes(int64_t num_slices);
  // What it takes now, without the numbers in the Grams.
  int64_t bytes() const;

  struct Batch {
    std::vector<RoundRow> rows;
    std::vector<int32_t> slices;  // ascending
  };

  // A round begins or its expected rows change: forgets all slices and
  // results. `rows` ascends by rank; if it is empty, nothing is early.
  void Expect(std::vector<RoundRow> rows, int num_slices);
  const std::vector<RoundRow>& rows() const { return rows_; }

  // Must be called when all of rows() have landed the slice; may be repeated.
  void SliceComplete(int32_t slice);

  bool any_ready() const { return !ready_.empty(); }
  // The slices that became complete first. Their bytes are being read until
  // Finish or GiveUp. `ranges`: where each slice of the layout lies.
  // `max_products`: of a batch of several slices at most
  // (Backend::gram_products_at_once), since a phase and a new session's frames
  // wait for it. REQUIRES: any_ready(), and no batch is being read.
  Batch Take(const std::vector<ElementRange>& ranges, double max_products);
  // `grams`: one per slice of the batch, in its order. They are thrown away if
  // Expect was called since Take.
  void Finish(std::vector<SliceGram> grams);
  // The batch has failed: no more are taken in this round, and its Close
  // computes what is missing.
  void GiveUp();
  // Whether the rank's bytes of the slice are being read at this moment.
  bool Reading(int32_t rank, int32_t slice) const;

  // The round closes with `rows`: nothing is ready any more. Moves out the
  // results for these rows, by slice; empty where there is none.
  std::vector<std::optional<SliceGram>> TakeResults(
      const std::vector<RoundRow>& rows, int num_slices);

 private:
  std::vector<RoundRow> rows_;
  std::vector<bool> complete_;  // by slice
  std::vector<int32_t> ready_;  // in the order of completion, not yet taken
  std::vector<std::optional<SliceGram>> results_;  // by slice
  std::optional<Batch> reading_;
  bool reading_is_stale_ = false;
};

// Made for a manifest, before the seed. Each Publish ends a round and opens the
// next one, which has the published version's number. Slices are positions
// in the layout, unless they come from a frame. Thread-compatible: its owner's
// lock protects it, and `sessions` too.
class OpenRound {
 public:
  // `sessions` outlives it.
  OpenRound(const ShardOptions& options,
            std::shared_ptr<const ShardLayout> layout,
            const SessionTable* sessions);

  bool published() const { return published_; }  // not before the seed
  uint64_t version() const { return version_; }  // also the round's number
  bool closed() const { return closed_; }
  bool finished() const { return finished_; }
  // Whether no worker relies on the manifest, so that it may still change.
  bool unused() const { return !published_ && !sessions_->any_alive(); }
  EarlyGrams* early() { return &early_; }

  // Follows a change of a session. REQUIRES: `sessions` has it already.
  void ChangeSession(const SessionChange& change);

  // --- Frames --------------------------------------------------------------
  // Checks a frame of session landing->header.session, which has the rank
  // landing->rank. Sets landing->closed. Errors as ShardEngine::BeginFrame.
  absl::Status Admit(FrameLanding* landing) const;
  // Where the payload of a slice of the frame lands.
  using Destination = std::function<SlicePlace(int32_t slice)>;
  // Claims all slices of the frame that have not landed yet, and fills in
  // landing->slices and landing->absent; nothing is claimed in a closed round.
  // False if the frame has to wait, for another frame that copies now or for
  // an early Gram that reads now: ask again when one of these has ended.
  // REQUIRES: Admit was OK under the same lock.
  bool TryClaim(const Destination& destination, FrameLanding* landing);
  // Ends the claims as the landing says. Of a pipelined job: what is new of the
  // row's waves; else 0.
  int EndClaims(const FrameLanding& landing);
  // Whether all slices of the frame's row (or seed) have landed. ABORTED if a
  // higher attempt has taken the row meanwhile.
  absl::StatusOr<bool> Complete(const FrameLanding& landing) const;

  // The waves of a round, counted from 1. REQUIRES: there is such a wave.
  bool HasWave(const RoundRow& row, int wave) const;
  int num_waves() const { return waves_.size(); }
  const WaveSlices& slices_of(int wave) const { return waves_.slices(wave); }
  // Its slices of these rows are read from here on; with the first wave other
  // attempts are refused, with the last one the round is closed.
  void CloseWave(int wave, const std::vector<RoundRow>& rows);
  void ReopenWave(int wave);
  // Whether nobody but the session has to do with the rank's row: none is held
  // for another one, and no bytes are being copied into it.
  bool RowIsFree(int32_t rank, uint64_t session) const;
  // The attempt that the row's place has in the open round, for its session.
  uint32_t AttemptOf(const RoundRow& row) const {
    return ledger_.AttemptOf(row.rank, row.session, version_);
  }
  // The session whose bytes the rank's row has, of any round; 0: none.
  uint64_t OwnerOf(int32_t rank) const { return ledger_.OwnerOf(rank); }
  // The session whose row is held in the open round; 0: none.
  uint64_t HeldSession(int32_t rank) const;

  // The rows with which the round closes if all workers take part that can, by
  // rank; none while one of these is incomplete, or nobody is in.
  std::vector<RoundRow> CompleteRound() const;
  bool RowComplete(const RoundRow& row) const;
  // The CRC32C over the CRC32Cs of the row's slices. REQUIRES:
  // RowComplete(row).
  uint32_t RowCrc32c(const RoundRow& row) const;
  bool SeedComplete(uint64_t session, uint32_t attempt) const;
  // Whether the open round (or the seed that is awaited) lacks slices of this
  // push. Nothing is known, hence false, about other rounds and sessions.
  bool LacksSlices(const PushedRow& pushed, int32_t rank) const;

  // --- Phases --------------------------------------------------------------
  // No frame of the round (before the first version: of the seed) may land any
  // more.
  void Close() { closed_ = true; }
  // The round is tried again.
  void Reopen() {
    closed_ = false;
    waves_.Unpin();
  }
  // Whether bytes are being copied into a row.
  bool landing() const { return ledger_.AnyBusy(); }
  void Publish(uint64_t version);      // the next round is open
  void Finish() { finished_ = true; }  // no round and no version follows
  // An epoch opens. Its coordinator says again whether the job has finished. It
  // has forgotten the commits that rows were held for (P25), and whoever
  // brought them has gone: held any longer, they would keep the next sessions
  // of their ranks out of a round that waits for these.
  void BeginEpoch() {
    finished_ = false;
    ledger_.ReleaseAll();
    ExpectAlive();
  }
  // FAILED_PRECONDITION. REQUIRES: finished().
  absl::Status FinishedError() const;

 private:
  // The ledger's row of the seed, behind those of the ranks.
  int seed_row() const { return options_.max_workers; }
  int RowOf(const FrameLanding& landing) const;
  absl::Status CheckSeed(const FrameHeader& header) const;
  // P5: ABORTED for an attempt that was replaced, FAILED_PRECONDITION for other
  // bytes than those that have landed.
  absl::Status CheckAttempt(const FrameLanding& landing) const;
  absl::Status CheckLanded(const FrameLanding& landing) const;
  int WaveNews(const FrameLanding& landing);
  bool AnyBusy(int row, const FrameHeader& header) const;
  // Makes the row the frame's; false while copies into it are under way.
  bool Own(int row, const FrameHeader& header);
  // The rows with which the open round will probably close; none if no Gram
  // is to be computed early.
  std::vector<RoundRow> ExpectedRows() const;
  // The sessions of now are those that the open round is expected to have.
  void ExpectAlive();
  // Must be called whenever ExpectedRows may have changed.
  void UpdateExpected();
  // Notes the slice as complete if all expected rows have landed it.
  void NoteIfComplete(int32_t slice);

  const ShardOptions options_;
  const std::shared_ptr<const ShardLayout> layout_;
  const SessionTable* const sessions_;
  ArrivalLedger ledger_;
  EarlyGrams early_;
  RowWaves waves_;             // none unless the job is pipelined
  uint64_t seed_session_ = 0;  // has the seed role; 0: none
  // Ranks with a session since the open round began. A row of one that joins
  // later is not expected: if it takes part (min_workers), the Gram is computed
  // when the round closes.
  std::set<int32_t> ranks_;
  bool published_ = false;
  uint64_t version_ = 0;
  bool closed_ = false;
  bool finished_ = false;
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_OPEN_ROUND_H_
