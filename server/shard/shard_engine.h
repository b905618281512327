// One shard of the job: lands rows, runs the phases that the coordinator asks
// for on its slices, keeps the parameters and serves snapshots.
#ifndef AGG_SERVER_SHARD_SHARD_ENGINE_H_
#define AGG_SERVER_SHARD_SHARD_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "proto/shard_plan.h"
#include "server/ingest/frame.h"
#include "server/ingest/shard_layout.h"
#include "server/params/snapshot.h"
#include "server/round/round_report.h"
#include "server/round/shard_peer.h"
#include "server/shard/shard_compute.h"

namespace agg {

// One published version's slices, and what a reader needs to send them.
struct PublishedVersion {
  uint64_t epoch = 0;
  uint64_t version = 0;
  std::shared_ptr<const ShardLayout> layout;  // of this shard's slices
  std::shared_ptr<const Snapshot> snapshot;
};

// Thread-safe. Lock order: none is held while callbacks run.
class ShardEngine : public ShardPeer {
 public:
  // `backend` is used by this engine alone and outlives it. `on_device_lost`
  // is called at most once, from any thread, when the backend is of no more
  // use: the epoch is over then, but only a new process can help. Null: nobody
  // wants to know.
  ShardEngine(const ShardOptions& options, Backend* backend,
              std::function<void(absl::Status)> on_device_lost = nullptr);
  ~ShardEngine() override;

  // --- ShardPeer: the coordinator's calls ---------------------------------
  // `on_lost` is called when the backend's device is lost.
  absl::Status Attach(uint64_t epoch,
                      std::function<void(absl::Status)> on_lost) override;
  // Every waiting and later call gets `reason`, if `epoch` is still on (0:
  // whatever epoch is on).
  void Lose(uint64_t epoch, const absl::Status& reason) override;
  absl::Status SetManifest(uint64_t epoch, const Manifest& manifest) override;
  absl::Status ForgetManifest(uint64_t epoch) override;
  absl::Status SetSession(uint64_t epoch, const SessionChange& change) override;
  absl::StatusOr<PhaseResult> RunPhase(const Phase& phase) override;
  absl::Status CheckPushed(const PushedRow& row) const override;
  std::string name() const override;

  // --- Push ----------------------------------------------------------------
  // Checks a frame and claims memory for its slices. The caller copies (or
  // skips) each slice's bytes in order, sets `landed` where the checksum
  // matched, and calls EndFrame in any case. May wait for a duplicate that is
  // being copied at this moment. Errors (proto/README.md): INVALID_ARGUMENT
  // (malformed; names the field), ABORTED (stale epoch, superseded session),
  // NOT_FOUND (unknown session), FAILED_PRECONDITION (a round to come, no
  // manifest yet), ALREADY_EXISTS (seed by one without the role, or seeded),
  // UNAVAILABLE (epoch lost).
  absl::StatusOr<FrameLanding> BeginFrame(FrameHeader header);
  // DATA_LOSS naming the first slice whose checksum did not match; those that
  // matched have landed all the same.
  absl::StatusOr<FrameResult> EndFrame(const FrameLanding& landing);

  // --- Pull ----------------------------------------------------------------
  using PullCallback = std::function<void(absl::StatusOr<PublishedVersion>)>;
  // Calls back once, at once or when the version is published: the version
  // asked for (`latest`: the newest). epoch 0 means any. ABORTED (stale
  // epoch), OUT_OF_RANGE (version gone; says the current one), UNAVAILABLE
  // (epoch lost, shutting down). Returns an id for CancelPull.
  int64_t Pull(uint64_t epoch, uint64_t version, bool latest,
               PullCallback callback);
  // The callback will not be called any more, unless it already runs.
  void CancelPull(int64_t id);

  ShardStatus Status() const;
  // The same with the device's memory, for which a driver is asked.
  ShardStatus StatusWithDevice() const;
  void CountPulledBytes(int64_t num_bytes);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_SHARD_ENGINE_H_
