// The engine may answer at once or on another thread; flows are destroyed
// without the lock, since they let go of snapshots.
#include "server/rpc/stream_pulls.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/agg.pb.h"
#include "proto/byte_buffer_frame.h"
#include "proto/crc32c.h"
#include "proto/shard_plan.h"
#include "server/base/dcheck.h"
#include "server/ingest/shard_layout.h"
#include "server/round/round_report.h"

namespace agg {

// Parses the request itself: Pull's reactor gets bytes, since its frames
// must not be copied.

namespace {

// A PullRequest has some 30 bytes, and up to 5 for a first slice. A longer
// message is refused before its slices are joined, which would cost a copy of
// it.
constexpr size_t kMaxRequestBytes = 64 + 6 * kMaxFirstSlices;

bool ParseRequest(const grpc::ByteBuffer& buffer, v1::PullRequest* request) {
  std::vector<grpc::Slice> slices;
  if (buffer.Length() > kMaxRequestBytes || !buffer.Dump(&slices).ok()) {
    return false;
  }
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return request->ParseFromString(bytes);
}

}  // namespace

absl::StatusOr<PullQuery> ParsePullQuery(const grpc::ByteBuffer& buffer) {
  v1::PullRequest request;
  if (!ParseRequest(buffer, &request)) {
    return absl::InvalidArgumentError("malformed PullRequest");
  }
  return QueryOf(request);
}

absl::StatusOr<PullQuery> QueryOf(const v1::PullRequest& request) {
  if (request.dtype() < v1::F32 || request.dtype() > v1::F16) {
    return UnknownPullDType(request.dtype());
  }
  if (request.first_slices_size() > kMaxFirstSlices) {
    return absl::InvalidArgumentError(
        absl::StrCat("first_slices has ", request.first_slices_size(),
                     " slices; allowed: at most ", kMaxFirstSlices));
  }
  if (request.on_device() && !request.in_place()) {
    return absl::InvalidArgumentError(
        "on_device is set without in_place; allowed: with it");
  }
  PullQuery query;
  query.epoch = request.epoch();
  query.version = request.version();
  query.latest = request.latest();
  query.dtype = static_cast<DType>(request.dtype());
  query.first_slices.assign(request.first_slices().begin(),
                            request.first_slices().end());
  query.in_place = request.in_place();
  query.on_device = request.on_device();
  return query;
}

absl::Status UnknownPullDType(int dtype) {
  return absl::InvalidArgumentError(absl::StrCat(
      "dtype is ", dtype, "; allowed: F32 (1) and the job's pull_dtype"));
}

// Frames have no payload, so that they may name many slices.

namespace {

constexpr size_t kMaxPlacesPerFrame = 1 << 14;

grpc::ByteBuffer Serialize(const v1::PullFrame& frame) {
  const grpc::Slice slice(frame.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

// The positions of the shard's slices.
std::vector<size_t> Order(const ShardLayout& layout,
                          absl::Span<const uint32_t> first_slices) {
  std::vector<size_t> order;
  std::vector<bool> taken(layout.slices.size());
  const auto take = [&](size_t position) {
    if (!taken[position]) order.push_back(position);
    taken[position] = true;
  };
  for (const uint32_t slice : first_slices) {
    if (slice >= layout.local_slice.size()) continue;
    const int32_t position = layout.local_slice[slice];
    if (position >= 0) take(static_cast<size_t>(position));
  }
  for (size_t i = 0; i < taken.size(); ++i) take(i);
  return order;
}

}  // namespace

std::vector<grpc::ByteBuffer> MakePlaceFrames(
    const PublishedVersion& version, DType dtype,
    absl::Span<const uint32_t> first_slices, bool takes_device,
    bool* on_device) {
  std::vector<grpc::ByteBuffer> frames;
  const auto& snapshot = *version.snapshot;
  auto region = snapshot.master_head();
  // Of a version on its way not all is there yet.
  if (!takes_device || dtype != DType::kF32 || version.progress != nullptr) {
    region = nullptr;
  }
  *on_device = region != nullptr;
  if (region == nullptr) region = snapshot.region(dtype);
  if (region == nullptr) return frames;
  // As it was when the version was made: it may have been lost meanwhile.
  const uint64_t generation =
      *on_device ? snapshot.master_generation() : region->generation();
  const std::vector<size_t> order = Order(*version.layout, first_slices);
  size_t next = 0;
  do {
    v1::PullFrame frame;
    frame.mutable_meta()->set_epoch(version.epoch);
    frame.mutable_meta()->set_round(version.version);
    frame.mutable_meta()->set_dtype(static_cast<v1::DType>(dtype));
    frame.mutable_place()->set_region(region->number());
    frame.mutable_place()->set_generation(generation);
    const size_t end = std::min(next + kMaxPlacesPerFrame, order.size());
    for (; next < end; ++next) {
      frame.mutable_meta()->add_slices(
          static_cast<uint32_t>(version.layout->slices[order[next]]));
      frame.mutable_place()->add_offsets(static_cast<uint64_t>(
          version.layout->ranges[order[next]].begin * DTypeBytes(dtype)));
    }
    frames.push_back(Serialize(frame));
  } while (next < order.size());
  return frames;
}

// Frames are planned once for each version and dtype, and each one's
// header, with the checksums, is made once. Buffers point into the snapshot and
// hold it.

namespace {

// Without it a frame of 4 MiB could name a million slices of one element, and
// its meta would be larger than its payload.
constexpr size_t kMaxSlicesPerFrame = 1024;

absl::string_view SliceBytes(const PublishedVersion& version, size_t position,
                             DType dtype) {
  const auto& range = version.layout->ranges[position];
  return absl::string_view(
      version.snapshot->data(dtype) + range.begin * DTypeBytes(dtype),
      static_cast<size_t>(range.num_elements * DTypeBytes(dtype)));
}

}  // namespace

PullFrames::PullFrames(const PublishedVersion& version, DType dtype)
    : epoch_(version.epoch),
      version_(version.version),
      dtype_(dtype),
      layout_(version.layout) {
  AGG_DCHECK(version.snapshot->data(dtype) != nullptr);
  Frame frame;
  for (size_t i = 0; i < layout_->ranges.size(); ++i) {
    const int64_t bytes = layout_->ranges[i].num_elements * DTypeBytes(dtype);
    if (frame.end > frame.first &&
        (frame.bytes + bytes > kMaxFramePayloadBytes ||
         frame.end - frame.first == kMaxSlicesPerFrame)) {
      frames_.push_back(frame);
      frame = Frame();
      frame.first = frame.end = i;
    }
    frame.end = i + 1;
    frame.bytes += bytes;
  }
  frames_.push_back(frame);
  once_ = std::make_unique<std::once_flag[]>(frames_.size());
}

void PullFrames::MakeHeaders(absl::Span<const absl::string_view> pieces,
                             size_t index) {
  Frame& frame = frames_[index];
  v1::PushAck ack;
  v1::FrameMeta& meta = *ack.mutable_meta();
  meta.set_epoch(epoch_);
  meta.set_round(version_);
  meta.set_dtype(static_cast<v1::DType>(dtype_));
  const std::vector<int32_t>& slices = layout_->slices;
  for (size_t i = frame.first; i < frame.end; ++i) {
    meta.add_slices(static_cast<uint32_t>(slices[i]));
  }
  for (absl::string_view piece : pieces) meta.add_crc32c(Crc32c(piece));
  ack.set_last(index + 1 == frames_.size());
  frame.headers[static_cast<int>(FrameForm::kPullFrame)] =
      MakeFrameHeader(meta, frame.bytes);
  frame.headers[static_cast<int>(FrameForm::kPushAck)] =
      MakeFrameHeader(ack, frame.bytes);
}

std::vector<size_t> PullFrames::Order(
    absl::Span<const uint32_t> first_slices) const {
  std::vector<size_t> order;
  std::vector<bool> ordered(frames_.size());
  for (const uint32_t slice : first_slices) {
    if (slice >= layout_->local_slice.size()) continue;
    const int32_t position = layout_->local_slice[slice];
    if (position < 0) continue;
    const auto found = std::upper_bound(
        frames_.begin(), frames_.end(), static_cast<size_t>(position),
        [](size_t at, const Frame& frame) { return at < frame.end; });
    const auto frame = static_cast<size_t>(found - frames_.begin());
    if (!ordered[frame]) order.push_back(frame);
    ordered[frame] = true;
  }
  for (size_t frame = 0; frame < frames_.size(); ++frame) {
    if (!ordered[frame]) order.push_back(frame);
  }
  return order;
}

grpc::ByteBuffer PullFrames::MakeBuffer(size_t index,
                                        const PublishedVersion& version,
                                        FrameForm form) {
  AGG_DCHECK(Matches(version, dtype_));
  AGG_DCHECK(!IsPlace(form));
  Frame& frame = frames_[index];
  std::vector<absl::string_view> pieces;
  pieces.reserve(frame.end - frame.first);
  for (size_t i = frame.first; i < frame.end; ++i) {
    pieces.push_back(SliceBytes(version, i, dtype_));
  }
  std::call_once(once_[index], [&] { MakeHeaders(pieces, index); });
  return MakeFrame(frame.headers[static_cast<int>(form)], pieces,
                   LendBytes(version.snapshot));
}

std::shared_ptr<PullFrames> PullFrameCache::Get(const PublishedVersion& version,
                                                DType dtype) {
  MutexLock lock(&mutex_);
  for (const auto& entry : entries_) {
    if (entry->Matches(version, dtype)) return entry;
  }
  if (entries_.size() == kMaxEntries) entries_.pop_front();
  entries_.push_back(std::make_shared<PullFrames>(version, dtype));
  return entries_.back();
}

// The watch on the snapshot lasts as long as the flow: also behind the last
// frame, whose bytes may still wait for a reader that does not read.

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
  AGG_DCHECK(version.snapshot->data(dtype) != nullptr);
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
  AGG_DCHECK(!done());
  const std::shared_ptr<const Snapshot> held = snapshot();
  if (held == nullptr) return false;
  if (!on_device_ && !held->readable(dtype_)) return false;
  return version_.progress == nullptr ||
         version_.progress->Allows(frames_->end_slice(order_[next_]),
                                   next_ + 1 == order_.size());
}

std::optional<grpc::ByteBuffer> VersionFlow::Next() {
  AGG_DCHECK(!done());
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
