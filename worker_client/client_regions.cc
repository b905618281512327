// Where rows and versions lie: in the caller's memory and in the shards'.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "proto/shard_plan.h"
#include "worker_client/client_core.h"
#include "worker_client/tensor_places.h"
#include "worker_client/version_hold.h"

namespace agg {

absl::StatusOr<PullInto> ClientCore::IntoOf(
    absl::Span<const MutableTensorView> parameters) {
  auto bound = router_->Bind(parameters);
  if (!bound.ok()) return bound.status();
  PullInto into;
  into.bound = *std::move(bound);
  auto device_of = devices_.DevicesOf(into.bound);
  if (!device_of.ok()) return device_of.status();
  into.device_of = *std::move(device_of);
  into.devices = &devices_;
  const absl::Status marked = MarkTargets(&into);
  if (!marked.ok()) return marked;
  return into;
}

absl::Status ClientCore::MarkTargets(PullInto* into) {
  const auto marks = devices_.MarksOf(into->device_of);
  if (!marks.ok()) return marks.status();
  into->marks.clear();
  for (const auto& [device, mark] : *marks) into->marks.push_back(mark);
  return absl::OkStatus();
}

namespace {

std::vector<std::string> TransportsOf(const JobView& view) {
  std::vector<std::string> transports;
  for (size_t i = 0; i < view.names().size(); ++i) {
    transports.push_back(view.transport(i));
  }
  return transports;
}

}  // namespace

JobDescription ClientCore::Describe(const JobView& view,
                                    ShardRegions* regions) {
  const v1::JoinReply& reply = view.reply();
  JobDescription job;
  job.job = reply.job();
  job.rule = reply.rule();
  job.scope = reply.scope();
  job.step_scale = reply.step_scale();
  job.optimizer = reply.optimizer();
  job.workers = reply.workers();
  job.shards.assign(reply.shards().begin(), reply.shards().end());
  for (size_t i = 0; i < view.names().size(); ++i) {
    regions->Get(view, static_cast<int>(i));
  }
  job.transports = TransportsOf(view);
  job.push_dtype = static_cast<DType>(reply.push_dtype());
  job.pull_dtype = static_cast<DType>(reply.pull_dtype());
  return job;
}

JobDescription ClientCore::JobNow() const {
  JobDescription job = job_;
  job.transports = TransportsOf(*membership_->view());
  return job;
}

absl::StatusOr<std::vector<const char*>> ClientCore::RowSlices() {
  if (options_.observer) {
    return absl::FailedPreconditionError(
        "observers only pull; use memory of your own");
  }
  const View view = membership_->view();
  std::vector<std::shared_ptr<const MappedRegions>> owners;
  std::vector<const char*> slices(router_->plan().slices.size(), nullptr);
  for (int shard = 0; shard < router_->num_shards(); ++shard) {
    if (router_->plan().slices_of_shard[shard].empty()) continue;
    owners.push_back(regions_.Get(*view, shard));
    if (owners.back()->row == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          ToString(view->names()[shard]),
          " shares no row with this worker; use memory of your own"));
    }
    for (const int32_t slice : router_->plan().slices_of_shard[shard]) {
      slices[slice] = owners.back()->row->Address(slice);
    }
  }
  MutexLock lock(&custody_mutex_);
  for (auto& owner : owners) {
    if (std::find(row_owners_.begin(), row_owners_.end(), owner) ==
        row_owners_.end()) {
      row_owners_.push_back(std::move(owner));
    }
  }
  return slices;
}

absl::StatusOr<std::vector<MutableTensorView>> ClientCore::RowTensors() {
  if (job_.push_dtype != DType::kF32) {
    return absl::FailedPreconditionError(
        "the job's rows are not float32; use RowViews, or memory of your own");
  }
  const absl::StatusOr<std::vector<const char*>> slices = RowSlices();
  if (!slices.ok()) return slices.status();
  const absl::StatusOr<std::vector<const float*>> places =
      TensorPlaces(*router_, *slices);
  if (!places.ok()) return places.status();
  std::vector<MutableTensorView> views;
  for (size_t i = 0; i < places->size(); ++i) {
    // The worker's own row: only its versions are read-only.
    views.emplace_back(absl::MakeSpan(
        const_cast<float*>((*places)[i]),
        static_cast<size_t>(NumElements(router_->manifest().tensors[i]))));
  }
  return views;
}

absl::StatusOr<std::vector<RowView>> ClientCore::RowViews() {
  if (job_.push_dtype == DType::kI8) {
    return absl::FailedPreconditionError(
        "the job's rows are int8, and 256 elements share a scale; Push rounds "
        "float32 in memory of your own to where the row lies");
  }
  const absl::StatusOr<std::vector<const char*>> slices = RowSlices();
  if (!slices.ok()) return slices.status();
  return RowViewsOf(*router_, job_.push_dtype, *slices);
}

absl::StatusOr<std::unique_ptr<VersionView>> ClientCore::PullView(
    uint64_t version) {
  const CallLimit limit(absl::Now() + options_.round_timeout, nullptr);
  std::shared_ptr<const VersionHold> hold;
  const absl::Status status =
      membership_->Persist(limit, [&](const View& view) -> absl::Status {
        absl::Status status = CheckAwaited(*view, version);
        absl::Time end;
        if (status.ok()) status = AwaitPublished(view, version, limit, &end);
        if (!status.ok()) return status;
        PullTarget target;
        target.epoch = view->epoch();
        target.version = version;
        absl::StatusOr<std::unique_ptr<VersionHold>> held =
            VersionHold::Take(SettingsFor(view), target, end);
        if (!held.ok()) return held.status();
        if (!membership_->NoteHeld(*view, version)) {
          return view->over()->status();
        }
        hold = *std::move(held);
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  const absl::StatusOr<std::vector<const float*>> places =
      TensorPlaces(*router_, hold->slices());
  if (!places.ok()) return places.status();
  version_ = version;
  std::vector<TensorView> tensors;
  for (size_t i = 0; i < places->size(); ++i) {
    tensors.emplace_back(absl::MakeConstSpan(
        (*places)[i],
        static_cast<size_t>(NumElements(router_->manifest().tensors[i]))));
  }
  return std::make_unique<VersionView>(version, std::move(tensors),
                                       [hold] { return hold->valid(); });
}

}  // namespace agg
