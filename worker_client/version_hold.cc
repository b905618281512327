// Blocking calls: a few small frames come from each shard, and then nothing.
#include "worker_client/version_hold.h"

#include <algorithm>
#include <cstddef>
#include <list>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "kernels/dtype.h"
#include "server/base/status_macros.h"
#include "worker_client/retry.h"
#include "worker_client/shard_router.h"

namespace agg {
namespace {

absl::Status NotShared(const ShardName& name) {
  return absl::FailedPreconditionError(absl::StrCat(
      ToString(name), " does not share this version's memory; Pull copies it"));
}

absl::Status Unexpected(absl::string_view what) {
  return absl::InternalError(absl::StrCat(
      "unexpected frame: ", what, "; check that client and server are of the ",
      "same version"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<VersionHold>> VersionHold::Take(
    const PullSettings& settings, const PullTarget& target,
    absl::Time deadline) {
  auto hold = absl::WrapUnique(new VersionHold());
  const ShardPlan& plan = settings.router->plan();
  hold->slices_.resize(plan.slices.size(), nullptr);
  v1::PullRequest request;
  request.set_epoch(target.epoch);
  request.set_version(target.version);
  request.set_dtype(static_cast<v1::DType>(target.dtype));
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
      return Unexpected("the pull ended before all slices had a place");
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
    return Unexpected("it is of another version");
  }
  call->region = region->second.get();
  call->generation = place.generation();
  const std::vector<Slice>& slices = router.plan().slices;
  for (int i = 0; i < meta.slices_size(); ++i) {
    const uint32_t index = meta.slices(i);
    if (index >= slices.size() || slices[index].shard != call->shard ||
        slices_[index] != nullptr) {
      return Unexpected("a slice is of another shard or came twice");
    }
    slices_[index] =
        call->region->At(place.offsets(i),
                         slices[index].num_elements * DTypeBytes(target.dtype));
    if (slices_[index] == nullptr) return Unexpected("a place is outside");
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
