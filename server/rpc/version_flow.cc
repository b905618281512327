// The watch on the snapshot lasts as long as the flow: also behind the last
// frame, whose bytes may still wait for a reader that does not read.
#include "server/rpc/version_flow.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/round/round_report.h"
#include "server/rpc/place_frames.h"

namespace agg {
namespace {

PublishedVersion Without(PublishedVersion version) {
  version.snapshot = nullptr;
  return version;
}

absl::Status Revoked(ShardEngine* engine, uint64_t epoch, uint64_t version) {
  const ShardStatus now = engine->Status();
  return absl::AbortedError(
      now.epoch == epoch
          ? absl::StrCat("version ", version,
                         " was replaced while it was being pulled; current "
                         "version ",
                         now.version)
          : absl::StrCat("stale epoch ", epoch, "; current epoch ", now.epoch,
                         ": it began while version ", version,
                         " was being pulled"));
}

}  // namespace

VersionFlow::VersionFlow(ShardEngine* engine, PullFrameCache* cache,
                         const PublishedVersion& version, DType dtype,
                         FrameForm form,
                         absl::Span<const uint32_t> first_slices, Events events)
    : engine_(engine),
      version_(Without(version)),
      dtype_(dtype),
      form_(IsPlace(form) ? FrameForm::kPullFrame : form),
      places_(IsPlace(form) ? MakePlaceFrames(version, dtype, first_slices,
                                              form == FrameForm::kDevicePlace,
                                              &on_device_)
                            : std::vector<grpc::ByteBuffer>()),
      frames_(in_place() ? nullptr : cache->Get(version, dtype)),
      order_(in_place() ? std::vector<size_t>() : frames_->Order(first_slices)),
      readers_(version.snapshot->readers()) {
  {
    MutexLock lock(&held_->mutex);
    held_->snapshot = version.snapshot;
  }
  SnapshotReaders::Reader reader;
  reader.revoke = [engine, epoch = version.epoch, number = version.version,
                   held = held_, revoked = std::move(events.revoked)] {
    std::shared_ptr<const Snapshot> let_go;  // where no lock is held
    {
      MutexLock lock(&held->mutex);
      let_go = std::move(held->snapshot);
    }
    let_go = nullptr;
    revoked(Revoked(engine, epoch, number));
  };
  if (events.overtaken != nullptr && !in_place()) {
    reader.overtake = [held = held_,
                       overtaken = std::move(events.overtaken)](bool freed) {
      bool complete;
      {
        MutexLock lock(&held->mutex);
        complete = held->complete;
      }
      overtaken(complete || freed);
    };
  }
  reader_id_ = readers_->Add(std::move(reader));
}

VersionFlow::~VersionFlow() { readers_->Remove(reader_id_); }

std::shared_ptr<const Snapshot> VersionFlow::snapshot() const {
  MutexLock lock(&held_->mutex);
  return held_->snapshot;
}

bool VersionFlow::ready() const {
  const std::shared_ptr<const Snapshot> held = snapshot();
  if (held == nullptr) return false;
  if (!on_device_ && !held->readable(dtype_)) return false;
  return version_.progress == nullptr ||
         version_.progress->Allows(frames_->end_slice(order_[next_]),
                                   next_ + 1 == order_.size());
}

std::optional<grpc::ByteBuffer> VersionFlow::Next() {
  PublishedVersion version = version_;
  version.snapshot = snapshot();
  if (version.snapshot == nullptr) return std::nullopt;
  if (in_place()) {
    const grpc::ByteBuffer frame = places_[next_++];
    if (done()) {
      engine_->CountPulledBytes(
          version_.layout->num_parameters * DTypeBytes(dtype_),
          /*in_place=*/true, on_device_);
    }
    return frame;
  }
  const size_t frame = order_[next_++];
  if (done()) {
    MutexLock lock(&held_->mutex);
    held_->complete = true;
  }
  engine_->CountPulledBytes(frames_->payload_bytes(frame));
  return frames_->MakeBuffer(frame, version, form_);
}

}  // namespace agg
