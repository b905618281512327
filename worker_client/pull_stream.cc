// All shards' streams share one completion queue, and so one thread: the
// caller's.
#include "worker_client/pull_stream.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cstddef>
#include <list>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/optional.h"
#include "kernels/dtype.h"
#include "proto/agg.pb.h"
#include "proto/shard_plan.h"
#include "server/base/status_macros.h"
#include "worker_client/device_row.h"
#include "worker_client/retry.h"
#include "worker_client/shard_router.h"

namespace agg {

// A message of several slices is joined first: protobuf's parser takes one
// piece.

bool ParseMessage(const grpc::ByteBuffer& buffer,
                  google::protobuf::MessageLite* message) {
  grpc::Slice bytes;
  return buffer.DumpToSingleSlice(&bytes).ok() &&
         message->ParseFromArray(bytes.begin(), static_cast<int>(bytes.size()));
}

grpc::ByteBuffer SerializeMessage(
    const google::protobuf::MessageLite& message) {
  const grpc::Slice bytes(message.SerializeAsString());
  return grpc::ByteBuffer(&bytes, 1);
}

namespace {

constexpr char kPullMethod[] = "/agg.v1.Shard/Pull";
constexpr size_t kMaxPlaceFrameBytes = size_t{1} << 20;

// The pull from one shard: request, frames, status. At most one operation is
// under way at any time, so the stream itself is the completion queue's tag.
class PullStream {
 public:
  // `on_devices`: OnDevices's.
  PullStream(int shard, const v1::PullRequest& request,
             const PullSettings& settings, ParametersByDevice on_devices,
             absl::Time deadline, grpc::CompletionQueue* queue,
             ParameterSink* sink)
      : shard_(shard),
        request_(request),
        settings_(settings),
        deadline_(deadline),
        queue_(queue),
        sink_(sink),
        stub_(settings.channels[shard]),
        retries_(settings.reconnect_window),
        maps_versions_(!settings.regions.empty() &&
                       !settings.regions[shard]->versions.empty()),
        on_devices_(std::move(on_devices)) {}

  void Start() {
    request_.set_in_place(maps_versions_ || !on_devices_.empty());
    request_.set_on_device(!on_devices_.empty());
    released_ = false;
    sink_->Restart(shard_);
    landing_ = absl::OkStatus();
    restart_at_ = absl::InfiniteFuture();
    call_.emplace();
    call_->context.set_deadline(absl::ToChronoTime(deadline_));
    for (CancelSource* cancel : settings_.cancels) {
      call_->registrations.emplace_back(cancel, &call_->context);
    }
    call_->stream = stub_.PrepareCall(&call_->context, kPullMethod, queue_);
    step_ = Step::kStart;
    call_->stream->StartCall(this);
  }

  // Takes the end of the operation under way and begins the next one.
  void Run(bool ok) {
    if (step_ == Step::kFinish) return End();
    if (!ok) return Begin(Step::kFinish);
    switch (step_) {
      case Step::kStart:
        call_->connected_at = absl::Now();  // it takes a connection
        return Begin(Step::kWrite);
      case Step::kRead:
        if (landing_.ok() && !released_) landing_ = Land();
        frame_.Clear();
        // gRPC wants a stream read to its end before Finish, also a bad one.
        if (!landing_.ok() || released_) call_->context.TryCancel();
        return Begin(Step::kRead);
      default:
        return Begin(Step::kRead);
    }
  }

  bool running() const { return call_.has_value(); }
  // When to Start again; InfiniteFuture: never.
  absl::Time restart_at() const { return restart_at_; }
  bool done() const { return !running() && restart_at_ == kNever; }
  // The outcome when done.
  const absl::Status& status() const { return outcome_; }

  void Cancel() {
    restart_at_ = kNever;
    if (running()) call_->context.TryCancel();
  }

 private:
  static constexpr absl::Time kNever = absl::InfiniteFuture();

  enum class Step { kStart, kWrite, kRead, kFinish };
  struct Call {
    grpc::ClientContext context;
    std::list<CancelSource::Registration> registrations;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
    absl::Time connected_at = absl::InfiniteFuture();
  };

  // Copies what the frame brings, or what it says the place of.
  absl::Status Land() {
    v1::PullFrame frame;
    // A frame with payload has a longer way than parsing it twice.
    if (!request_.in_place() || frame_.Length() > kMaxPlaceFrameBytes ||
        !ParseMessage(frame_, &frame) || !frame.has_place()) {
      return sink_->Land(shard_, frame_);
    }
    const absl::Status status = LandPlaced(frame);
    released_ = status.ok() && sink_->CheckComplete(shard_).ok();
    return status;
  }

  absl::Status LandPlaced(const v1::PullFrame& frame) {
    const MappedRegions& mapped = *settings_.regions[shard_];
    const uint32_t number = frame.place().region();
    if (!on_devices_.empty() &&
        on_devices_.begin()->second->number() == number) {
      const absl::Status status = sink_->LandPlaced(shard_, frame, on_devices_);
      if (status.ok()) return status;
      on_devices_.clear();  // the host's memory has it, too
      return absl::UnavailableError(status.message());
    }
    const auto region = mapped.versions.find(number);
    if (region != mapped.versions.end()) {
      return sink_->LandPlaced(shard_, frame, *region->second);
    }
    // Made since this client asked: the bytes themselves will do.
    maps_versions_ = false;
    on_devices_.clear();
    return absl::UnavailableError("a region that is not mapped");
  }

  void Begin(Step step) {
    step_ = step;
    switch (step) {
      case Step::kWrite:
        return call_->stream->WriteLast(SerializeMessage(request_),
                                        grpc::WriteOptions(), this);
      case Step::kRead:
        return call_->stream->Read(&frame_, this);
      default:
        return call_->stream->Finish(&status_, this);
    }
  }

  void End() {
    const absl::Time now = absl::Now();
    const absl::Duration connected =
        std::max(absl::ZeroDuration(), now - call_->connected_at);
    call_.reset();
    // The version was held for this client until it cancelled the call.
    if (released_) status_ = grpc::Status::OK;
    if (landing_.ok() && status_.ok()) landing_ = sink_->CheckComplete(shard_);
    // If the sink refused a frame, the call was cancelled for that reason:
    // report the reason instead of CANCELLED.
    const grpc::Status failure =
        landing_.ok()
            ? status_
            : grpc::Status(static_cast<grpc::StatusCode>(landing_.code()),
                           std::string(landing_.message()));
    outcome_ = FromGrpc(failure, settings_.names[shard_], "Pull");
    if (outcome_.ok()) return;
    const absl::optional<absl::Duration> pause =
        retries_.AfterFailure(failure, now, connected);
    if (pause.has_value()) restart_at_ = now + *pause;
  }

  const int shard_;
  v1::PullRequest request_;
  const PullSettings& settings_;
  const absl::Time deadline_;
  grpc::CompletionQueue* const queue_;
  ParameterSink* const sink_;
  grpc::GenericStub stub_;
  RetryPolicy retries_;
  bool maps_versions_;
  ParametersByDevice on_devices_;  // of settings_.regions
  bool released_ = false;          // all is copied, and the call cancelled

  absl::optional<Call> call_;
  Step step_ = Step::kStart;
  grpc::ByteBuffer frame_;
  grpc::Status status_;
  absl::Status landing_;
  absl::Status outcome_;
  absl::Time restart_at_ = kNever;
};

v1::PullRequest RequestOf(const PullTarget& target) {
  v1::PullRequest request;
  request.set_epoch(target.epoch);
  request.set_version(target.version);
  request.set_dtype(static_cast<v1::DType>(target.dtype));
  return request;
}

// Of the tensors that are wanted first (P42).
std::vector<int32_t> FirstSlices(const PullSettings& settings, int shard) {
  constexpr size_t kMaxFirstSlices = 200;
  const ShardPlan& plan = settings.router->plan();
  std::vector<int32_t> first;
  for (const int tensor : settings.first) {
    for (const int32_t slice : plan.slices_of_tensor[tensor]) {
      if (plan.slices[slice].shard != shard) continue;
      if (first.size() == kMaxFirstSlices) return first;
      first.push_back(slice);
    }
  }
  return first;
}

// The shard's parameters as the devices of its targets see them (P48); none if
// one of these is the host, or has no way to them.
ParametersByDevice OnDevices(const PullSettings& settings, int shard,
                             DType dtype, const BoundTargets& bound) {
  ParametersByDevice found;
  if (settings.regions.empty() || dtype != DType::kF32) return found;
  const ShardPlan& plan = settings.router->plan();
  for (const int32_t slice : plan.slices_of_shard[shard]) {
    const int device = bound.device(plan.slices[slice].tensor);
    if (found.count(device) > 0) continue;
    const DeviceParameters* const parameters =
        settings.regions[shard]->ParametersOn(device);
    if (parameters == nullptr) return {};
    found[device] = parameters;
  }
  return found;
}

// Runs the streams to their ends. After the first failure all are cancelled.
absl::Status RunAll(const PullSettings& settings, grpc::CompletionQueue* queue,
                    std::list<PullStream>* streams) {
  absl::Status status;
  while (true) {
    absl::Time until = absl::InfiniteFuture();
    bool running = false;
    absl::Status failure;
    for (PullStream& stream : *streams) {
      if (stream.done() && failure.ok()) failure = stream.status();
    }
    // Read after the streams' states: if a source cancelled a call, its reason
    // is set by now, and says more than the call's CANCELLED.
    if (status.ok()) status = FirstReason(settings.cancels);
    if (status.ok()) status = failure;
    for (PullStream& stream : *streams) {
      if (!status.ok()) stream.Cancel();
      if (stream.restart_at() <= absl::Now()) stream.Start();
      running |= !stream.done();
      until = std::min(until, stream.restart_at());
    }
    if (!running) return status;
    void* tag;
    bool ok;
    if (queue->AsyncNext(&tag, &ok, absl::ToChronoTime(until)) ==
        grpc::CompletionQueue::GOT_EVENT) {
      static_cast<PullStream*>(tag)->Run(ok);
    }
  }
}

}  // namespace

absl::Status PullVersion(const PullSettings& settings, const PullTarget& target,
                         const BoundTargets& bound, absl::Time deadline) {
  AGG_RETURN_IF_ERROR(FirstReason(settings.cancels));
  ParameterSink sink(settings.router, bound, target, settings.arrivals,
                     settings.copies);
  grpc::CompletionQueue queue;
  std::list<PullStream> streams;
  for (size_t i = 0; i < settings.names.size(); ++i) {
    if (settings.router->plan().slices_of_shard[i].empty()) continue;
    const int shard = static_cast<int>(i);
    v1::PullRequest request = RequestOf(target);
    for (const int32_t slice : FirstSlices(settings, shard)) {
      request.add_first_slices(static_cast<uint32_t>(slice));
    }
    streams.emplace_back(shard, request, settings,
                         OnDevices(settings, shard, target.dtype, bound),
                         deadline, &queue, &sink);
    streams.back().Start();
  }
  absl::Status status = RunAll(settings, &queue, &streams);
  Drain(&queue);
  return status;
}

// Blocking calls: a few small frames come from each shard, and then nothing.

namespace {

absl::Status NotShared(const ShardName& name) {
  return absl::FailedPreconditionError(absl::StrCat(
      ToString(name), " does not share this version's memory; Pull copies it"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<VersionHold>> VersionHold::Take(
    const PullSettings& settings, const PullTarget& target,
    absl::Time deadline) {
  auto hold = absl::WrapUnique(new VersionHold());
  const ShardPlan& plan = settings.router->plan();
  hold->slices_.resize(plan.slices.size(), nullptr);
  v1::PullRequest request = RequestOf(target);
  request.set_in_place(true);
  std::list<CancelSource::Registration> registrations;
  for (int shard = 0; shard < plan.num_shards; ++shard) {
    if (plan.slices_of_shard[shard].empty()) continue;
    if (settings.regions[shard]->versions.empty()) {
      return NotShared(settings.names[shard]);
    }
    hold->calls_.push_back(std::make_unique<Call>());
    Call* const call = hold->calls_.back().get();
    call->shard = shard;
    call->regions = settings.regions[shard];
    call->context.set_deadline(absl::ToChronoTime(deadline));
    for (CancelSource* cancel : settings.cancels) {
      registrations.emplace_back(cancel, &call->context);
    }
    call->stub = v1::Shard::NewStub(settings.channels[shard]);
    call->reader = call->stub->Pull(&call->context, request);
  }
  for (const auto& call : hold->calls_) {
    const absl::Status status = hold->Read(settings, target, call.get());
    if (status.ok()) continue;
    const absl::Status reason = FirstReason(settings.cancels);
    return reason.ok() ? status : reason;
  }
  return hold;
}

VersionHold::~VersionHold() {
  for (const auto& call : calls_) call->context.TryCancel();
  // gRPC wants each call read to its end.
  v1::PullFrame frame;
  for (const auto& call : calls_) {
    if (call->finished) continue;
    while (call->reader->Read(&frame)) {
    }
    call->reader->Finish();
  }
}

absl::Status VersionHold::Read(const PullSettings& settings,
                               const PullTarget& target, Call* call) {
  const size_t num_slices =
      settings.router->plan().slices_of_shard[call->shard].size();
  size_t num_read = 0;
  v1::PullFrame frame;
  while (num_read < num_slices) {
    const ShardName& name = settings.names[call->shard];
    if (!call->reader->Read(&frame)) {
      call->finished = true;
      const grpc::Status status = call->reader->Finish();
      if (!status.ok()) return FromGrpc(status, name, "Pull");
      return UnexpectedFrame("the pull ended before all slices had a place");
    }
    if (!frame.has_place()) return NotShared(name);
    AGG_RETURN_IF_ERROR(TakeFrame(*settings.router, target, frame, call));
    num_read += static_cast<size_t>(frame.meta().slices_size());
  }
  return absl::OkStatus();
}

absl::Status VersionHold::TakeFrame(const ShardRouter& router,
                                    const PullTarget& target,
                                    const v1::PullFrame& frame, Call* call) {
  const v1::FrameMeta& meta = frame.meta();
  const v1::SnapshotPlace& place = frame.place();
  const auto region = call->regions->versions.find(place.region());
  if (region == call->regions->versions.end()) {
    return absl::FailedPreconditionError(
        "the version is in memory that this client has not mapped; Pull "
        "copies it");
  }
  if (meta.epoch() != target.epoch || meta.round() != target.version ||
      static_cast<int>(meta.dtype()) != static_cast<int>(target.dtype) ||
      meta.slices_size() != place.offsets_size() || meta.slices_size() == 0 ||
      (call->region != nullptr && (call->region != region->second.get() ||
                                   call->generation != place.generation()))) {
    return UnexpectedFrame("it is of another version");
  }
  call->region = region->second.get();
  call->generation = place.generation();
  const std::vector<Slice>& slices = router.plan().slices;
  for (int i = 0; i < meta.slices_size(); ++i) {
    const uint32_t index = meta.slices(i);
    if (index >= slices.size() || slices[index].shard != call->shard ||
        slices_[index] != nullptr) {
      return UnexpectedFrame("a slice is of another shard or came twice");
    }
    slices_[index] =
        call->region->At(place.offsets(i),
                         slices[index].num_elements * DTypeBytes(target.dtype));
    if (slices_[index] == nullptr) return UnexpectedFrame("a place is outside");
  }
  return absl::OkStatus();
}

bool VersionHold::valid() const {
  return std::all_of(calls_.begin(), calls_.end(),
                     [](const std::unique_ptr<Call>& call) {
                       return call->region->Holds(call->generation);
                     });
}

}  // namespace agg
