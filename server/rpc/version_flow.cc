// The watch on the snapshot lasts as long as the flow: also behind the last
// frame, whose bytes may still wait for a reader that does not read.
#include "server/rpc/version_flow.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/round/round_report.h"
#include "server/rpc/place_frames.h"

namespace agg {
namespace {

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
                         absl::Span<const uint32_t> first_slices,
                         std::function<void(const absl::Status&)> on_revoked)
    : engine_(engine),
      version_(version),
      dtype_(dtype),
      form_(IsPlace(form) ? FrameForm::kPullFrame : form),
      places_(IsPlace(form) ? MakePlaceFrames(version, dtype, first_slices,
                                              form == FrameForm::kDevicePlace,
                                              &on_device_)
                            : std::vector<grpc::ByteBuffer>()),
      frames_(in_place() ? nullptr : cache->Get(version, dtype)),
      order_(in_place() ? std::vector<size_t>()
                        : frames_->Order(first_slices)) {
  revoke_id_ = version_.snapshot->AddRevokeCallback(
      [engine, epoch = version.epoch, number = version.version,
       on_revoked = std::move(on_revoked)] {
        on_revoked(Revoked(engine, epoch, number));
      });
}

VersionFlow::~VersionFlow() {
  version_.snapshot->RemoveRevokeCallback(revoke_id_);
}

bool VersionFlow::ready() const {
  return version_.progress == nullptr ||
         version_.progress->Allows(frames_->end_slice(order_[next_]),
                                   next_ + 1 == order_.size());
}

grpc::ByteBuffer VersionFlow::Next() {
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
  engine_->CountPulledBytes(frames_->payload_bytes(frame));
  return frames_->MakeBuffer(frame, version_, form_);
}

}  // namespace agg
