// Two ways in, frames and phases, and one lock for what they share. A frame's
// bytes are copied under it: a slice is a few MiB, and nobody else wants it but
// for a moment.
#include "server/shard/shard_replica.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/optimizer_step.h"
#include "server/shard/step_layout.h"

namespace agg {
namespace {

// Where a combined slice lands.
absl::StatusOr<int32_t> LocalSlice(const ShardLayout& layout,
                                   const CopySlice& slice) {
  const auto num_slices = static_cast<int32_t>(layout.local_slice.size());
  const bool known = slice.slice >= 0 && slice.slice < num_slices;
  const int32_t local = known ? layout.local_slice[slice.slice] : -1;
  if (local >= 0 && slice.array == CopyArray::kCombined &&
      static_cast<int64_t>(slice.values.size()) ==
          layout.ranges[local].num_elements) {
    return local;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("slice ", slice.slice, " with ", slice.values.size(),
                   " elements is none of part ", layout.ordinal));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardReplica>> ShardReplica::Create(
    const ShardOptions& options, Backend* backend, const Manifest& manifest) {
  const int32_t part =
      (options.ordinal + options.num_shards - 1) % options.num_shards;
  absl::StatusOr<ShardLayout> layout =
      MakeShardLayout(manifest, options.num_shards, part, options.push_dtype);
  if (!layout.ok()) return layout.status();
  absl::StatusOr<std::vector<GroupOptions>> groups =
      GroupsOf(options, manifest);
  if (!groups.ok()) return groups.status();
  std::unique_ptr<ShardReplica> replica(new ShardReplica(options, backend));
  replica->layout_ = std::make_shared<ShardLayout>(*std::move(layout));
  replica->group_of_tensor_ = *std::move(groups);
  MutexLock lock(&replica->mutex_);
  replica->copy_ = HeldCopy(part);
  replica->Clear();
  return replica;
}

absl::Status ShardReplica::Allocate() {
  const int64_t num_bytes =
      std::max(layout_->num_elements, kLayoutAlignment) * 4;
  const auto allocate = [&](BufferUse use, std::unique_ptr<Buffer>* to) {
    absl::StatusOr<std::unique_ptr<Buffer>> buffer =
        backend_->Allocate(use, num_bytes);
    if (buffer.ok()) *to = *std::move(buffer);
    return buffer.status();
  };
  absl::Status status = allocate(BufferUse::kSnapshot, &incoming_);
  for (int i = 0; i <= OptimizerStateArrays(options_.optimizer); ++i) {
    if (status.ok()) status = allocate(BufferUse::kState, &arrays_[i]);
  }
  return status;
}

HeldCopy ShardReplica::copy() const {
  MutexLock lock(&mutex_);
  return copy_;
}

// --- The neighbour's frames --------------------------------------------------

void ShardReplica::SetEpoch(uint64_t epoch, const absl::Status& end) {
  MutexLock lock(&mutex_);
  epoch_ = epoch;
  end_ = end;
  changed_.NotifyAll();
}

absl::StatusOr<bool> ShardReplica::Admit(const CopyHeader& header) {
  if (header.epoch != epoch_) {
    return absl::AbortedError(
        absl::StrCat("stale epoch ", header.epoch, "; current epoch ", epoch_));
  }
  if (!end_.ok()) return end_;
  if (copy_.At(header.id)) return true;
  // The sender has published what is only prepared here: so has everybody, and
  // the step may be taken (P17).
  const absl::Status behind = copy_.CheckStep(header.id);
  if (!behind.ok()) return behind;
  if (!released_) {
    released_ = true;
    if (wake_ != nullptr) wake_();
  }
  return false;
}

absl::Status ShardReplica::BeginPrepare(uint64_t epoch) {
  if (!copy_.prepared()) copy_.BeginPrepare(epoch);
  if (copy_.state().prepared_by == epoch) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "epoch ", epoch, " prepares another time: ", copy_.Describe()));
}

absl::Status ShardReplica::Land(const CopyHeader& header,
                                const CopySlice& slice) {
  MutexLock lock(&mutex_);
  absl::StatusOr<bool> admitted = Admit(header);
  while (admitted.ok() && !*admitted) {
    changed_.Wait(&mutex_);
    admitted = Admit(header);
  }
  if (!admitted.ok()) return admitted.status();
  const absl::StatusOr<int32_t> local_slice = LocalSlice(*layout_, slice);
  if (!local_slice.ok()) return local_slice.status();
  const int32_t local = *local_slice;
  const absl::Status status = BeginPrepare(header.epoch);
  // A repeat brings the same bytes: an epoch has one plan for each round.
  if (!status.ok() || landed_[local]) return status;
  if (!slice.values.empty()) {
    std::memcpy(incoming_->host() + layout_->ranges[local].begin * 4,
                slice.values.data(), slice.values.size() * sizeof(float));
  }
  landed_[local] = true;
  ++num_landed_;
  EndPrepareIfWhole();
  return absl::OkStatus();
}

bool ShardReplica::AllLanded() const { return num_landed_ == landed_.size(); }

absl::Status ShardReplica::CheckLanded(const CopyHeader& header) const {
  MutexLock lock(&mutex_);
  const bool current = header.epoch == epoch_ && end_.ok();
  if (current && copy_.At(header.id) && AllLanded()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      num_landed_, " of ", landed_.size(), " slices have landed in epoch ",
      epoch_, ": ", copy_.Describe()));
}

// --- Rounds ------------------------------------------------------------------

absl::Status ShardReplica::Prepare(const Phase& phase) {
  MutexLock lock(&mutex_);
  if (!copy_.held() || copy_.id().version != phase.round) {
    return absl::FailedPreconditionError(absl::StrCat(
        "round ", phase.round, " cannot be prepared: ", copy_.Describe()));
  }
  const absl::Status status = BeginPrepare(phase.epoch);
  if (!status.ok() || copy_.whole()) return status;
  plan_ = {true, phase.publish.unchanged, WithoutRows(phase.replica_step),
           phase.record};
  EndPrepareIfWhole();
  return absl::OkStatus();
}

void ShardReplica::EndPrepareIfWhole() {
  if (plan_.known && (plan_.unchanged || AllLanded())) {
    copy_.EndPrepare(plan_.record);
  }
}

absl::Status ShardReplica::CheckPrepared(uint64_t version) const {
  MutexLock lock(&mutex_);
  const uint64_t at = copy_.id().version;
  if (copy_.held() && (at == version || (copy_.whole() && at + 1 == version))) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "version ", version, " has no second copy: ", copy_.Describe()));
}

void ShardReplica::Release() {
  MutexLock lock(&mutex_);
  released_ = copy_.held() && copy_.whole();
}

void ShardReplica::Hold() {
  MutexLock lock(&mutex_);
  released_ = false;
}

void ShardReplica::Clear() {
  landed_.assign(layout_->slices.size(), false);
  num_landed_ = 0;
  plan_ = Plan();
  released_ = false;
  changed_.NotifyAll();
}

absl::Status ShardReplica::StepIfReleased() {
  {
    MutexLock lock(&mutex_);
    if (!released_) return absl::OkStatus();
  }
  return TakeStep();
}

absl::Status ShardReplica::TakeStep() {
  Plan plan;
  {
    MutexLock lock(&mutex_);
    plan = plan_;
  }
  // Without the lock: frames of the next round wait, since the copy is not at
  // their version yet.
  const absl::Status status =
      plan.unchanged ? absl::OkStatus() : StepArrays(plan.step);
  MutexLock lock(&mutex_);
  if (status.ok()) {
    copy_.Step();
  } else {
    copy_.Void();  // it may be between two versions
  }
  Clear();
  return status;
}

absl::Status ShardReplica::StepArrays(const StepPlan& step) {
  if (layout_->slices.empty()) return absl::OkStatus();
  const absl::StatusOr<std::vector<UpdateRange>> ranges =
      StepRanges(step, *layout_, group_of_tensor_, 0, 0, {});
  if (!ranges.ok()) return ranges.status();
  UpdateRequest request;
  request.optimizer = options_.optimizer;
  request.step = step.step;
  request.ranges = *ranges;
  request.master = arrays_[0].get();
  request.state0 = arrays_[1].get();
  request.state1 = arrays_[2].get();
  request.combined = incoming_.get();
  return backend_->Step(request);
}

}  // namespace agg
