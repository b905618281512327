// The engine may answer at once or on another thread; flows are destroyed
// without the lock, since they let go of snapshots.
#include "server/rpc/stream_pulls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace agg {

StreamPulls::~StreamPulls() {
  // Its callback holds a weak_ptr, so one that already runs does no harm.
  if (pull_id_ != 0) engine_->CancelPull(pull_id_);
}

absl::Status StreamPulls::Ask(const PullQuery& query) {
  {
    MutexLock lock(&mutex_);
    if (waiting_.has_value()) {
      if (waiting_->version == query.version &&
          waiting_->dtype == query.dtype) {
        return absl::OkStatus();
      }
      return absl::FailedPreconditionError(absl::StrCat(
          "pull of version ", query.version, " in dtype ",
          static_cast<int>(query.dtype), "; this stream waits for version ",
          waiting_->version, " in dtype ", static_cast<int>(waiting_->dtype)));
    }
    if (flows_.size() >= kMaxFlows) {
      return absl::ResourceExhaustedError(
          absl::StrCat("pull of version ", query.version, "; ", flows_.size(),
                       " versions are on this stream, which is not being "
                       "read"));
    }
    waiting_ = query;
  }
  const int64_t id = engine_->Pull(
      query.epoch, query.version, /*latest=*/false,
      [weak = weak_from_this(),
       query](const absl::StatusOr<PublishedVersion>& version) {
        if (auto pulls = weak.lock()) pulls->OnVersion(query, version);
      },
      /*partial=*/true);
  if (id == 0) return absl::OkStatus();
  MutexLock lock(&mutex_);
  pull_id_ = id;
  return absl::OkStatus();
}

void StreamPulls::OnVersion(const PullQuery& query,
                            const absl::StatusOr<PublishedVersion>& version) {
  absl::Status status = version.status();
  if (status.ok() && version->snapshot->data(query.dtype) == nullptr) {
    status = UnknownPullDType(static_cast<int>(query.dtype));
  }
  if (!status.ok()) return stream_.end(status);
  VersionFlow::Events events;
  events.revoked = stream_.end;
  if (stream_.overtaken != nullptr) {
    events.overtaken = [overtaken = stream_.overtaken,
                        number = version->version](bool cut) {
      overtaken(number, cut);
    };
  }
  auto flow = std::make_unique<VersionFlow>(
      engine_, cache_, *version, query.dtype, FrameForm::kPushAck,
      /*first_slices=*/absl::Span<const uint32_t>(), std::move(events));
  {
    MutexLock lock(&mutex_);
    waiting_.reset();
    flows_.push_back(std::move(flow));
  }
  const auto go_on = [stream = stream_](const absl::Status& failure) {
    if (failure.ok()) {
      stream.wake();
    } else {
      stream.end(failure);
    }
  };
  // What waves write can be read as far as they say.
  if (version->progress == nullptr) {
    version->snapshot->WhenReadable(query.dtype, go_on);
  } else {
    version->progress->Listen(go_on);
  }
}

std::optional<grpc::ByteBuffer> StreamPulls::Next() {
  MutexLock lock(&mutex_);
  if (flows_.empty() || !flows_.front()->ready()) return std::nullopt;
  return flows_.front()->Next();
}

void StreamPulls::Written() {
  std::unique_ptr<VersionFlow> sent;
  MutexLock lock(&mutex_);
  if (flows_.empty() || !flows_.front()->done()) return;
  sent = std::move(flows_.front());
  flows_.pop_front();
}

}  // namespace agg
