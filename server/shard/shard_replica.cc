// Two ways in, frames and phases, and one lock for what they share. A frame's
// bytes are copied under it: a slice is a few MiB, and nobody else wants it but
// for a moment.
#include "server/shard/shard_replica.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/optimizer_step.h"
#include "server/base/process_memory.h"
#include "server/base/status_macros.h"
#include "server/shard/step_layout.h"

namespace agg {

// The receiver knows which slice comes next, so that one that is lost or sent
// twice is noticed at once.

namespace {

CopyArray ArrayOf(int array) {
  if (array == 0) return CopyArray::kParameters;
  return array == 1 ? CopyArray::kState0 : CopyArray::kState1;
}

}  // namespace

absl::Status SendArrays(
    const ShardLayout& layout, int num_arrays,
    const std::function<absl::Status(int array, absl::Span<float> to)>& read,
    const std::function<absl::Status(const CopySlice&)>& sink) {
  std::vector<float> values;
  absl::Status status = TryResize(layout.num_elements, &values);
  for (int array = 0; array < num_arrays && status.ok(); ++array) {
    status = read(array, absl::MakeSpan(values));
    for (size_t i = 0; i < layout.slices.size() && status.ok(); ++i) {
      const ElementRange& range = layout.ranges[i];
      status = sink({ArrayOf(array), layout.slices[i],
                     absl::MakeConstSpan(values).subspan(
                         static_cast<size_t>(range.begin),
                         static_cast<size_t>(range.num_elements))});
    }
  }
  return status;
}

absl::Status ArrayReceiver::Take(const CopySlice& slice) {
  if (array_ == num_arrays_ || layout_->slices.empty() ||
      slice.array != ArrayOf(array_) ||
      slice.slice != layout_->slices[position_]) {
    return absl::InternalError(absl::StrCat("slice ", slice.slice, " of array ",
                                            static_cast<int>(slice.array),
                                            " was not expected"));
  }
  const ElementRange& range = layout_->ranges[position_];
  if (static_cast<int64_t>(slice.values.size()) != range.num_elements) {
    return absl::InternalError(
        absl::StrCat("slice ", slice.slice, " has ", slice.values.size(),
                     " elements; allowed: ", range.num_elements));
  }
  AGG_ASSIGN_OR_RETURN(const absl::Span<float> to,
                       target_->Destination(array_));
  std::copy(slice.values.begin(), slice.values.end(), to.begin() + range.begin);
  if (++position_ < layout_->slices.size()) return absl::OkStatus();
  position_ = 0;
  return target_->Finish(array_++);
}

absl::Status ArrayReceiver::Finish() const {
  if (array_ == num_arrays_ || layout_->slices.empty()) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat("the copy ends before slice ",
                                          layout_->slices[position_],
                                          " of array ", array_));
}

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
  AGG_ASSIGN_OR_RETURN(
      ShardLayout layout,
      MakeShardLayout(manifest, options.num_shards, part, options.push_dtype));
  AGG_ASSIGN_OR_RETURN(std::vector<GroupOptions> groups,
                       GroupsOf(options, manifest));
  std::unique_ptr<ShardReplica> replica(new ShardReplica(options, backend));
  replica->layout_ = std::make_shared<ShardLayout>(std::move(layout));
  replica->group_of_tensor_ = std::move(groups);
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
  AGG_RETURN_IF_ERROR(copy_.CheckStep(header.id));
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
  AGG_ASSIGN_OR_RETURN(const int32_t local, LocalSlice(*layout_, slice));
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
  AGG_ASSIGN_OR_RETURN(const std::vector<UpdateRange> ranges,
                       StepRanges(step, *layout_, group_of_tensor_, 0, 0, {}));
  UpdateRequest request;
  request.optimizer = options_.optimizer;
  request.step = step.step;
  request.ranges = ranges;
  request.master = arrays_[0].get();
  request.state0 = arrays_[1].get();
  request.state1 = arrays_[2].get();
  request.combined = incoming_.get();
  if (step.renews_state) {
    AGG_RETURN_IF_ERROR(RenewState(options_.optimizer, backend_,
                                   arrays_[1].get(), arrays_[2].get()));
  }
  return backend_->Step(request);
}

// A replica from one epoch to the next: what is prepared is dropped or stepped,
// and what is lost comes from the home.

namespace {

// Fetched arrays go straight to the backend: nobody pulls from a replica.
class ReplicaTarget : public ArrayTarget {
 public:
  ReplicaTarget(const ShardLayout& layout, Backend* backend,
                const std::unique_ptr<Buffer>* arrays)
      : num_elements_(layout.num_elements),
        backend_(backend),
        arrays_(arrays) {}
  absl::StatusOr<absl::Span<float>> Destination(int /*array*/) override {
    AGG_RETURN_IF_ERROR(TryResize(num_elements_, &values_));
    return absl::MakeSpan(values_);
  }
  absl::Status Finish(int array) override {
    return backend_->Write(values_, arrays_[array].get());
  }

 private:
  const int64_t num_elements_;
  std::vector<float> values_;
  Backend* const backend_;
  const std::unique_ptr<Buffer>* const arrays_;
};

}  // namespace

absl::Status ShardReplica::Recover(CopyAction action, const VersionId& target,
                                   bool repeated) {
  {
    MutexLock lock(&mutex_);
    const bool there = copy_.At(target);
    if (action == CopyAction::kVoid && !(repeated && there)) copy_.Void();
    if (action == CopyAction::kVoid || there) {
      copy_.Drop();
      Clear();
      return absl::OkStatus();
    }
    const absl::Status status = copy_.CheckStep(target);
    if (action != CopyAction::kStep || !status.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the replica cannot be brought to ",
                       DescribeVersion(target), ": ", copy_.Describe()));
    }
  }
  return TakeStep();
}

absl::Status ShardReplica::Fetch(const CopyHeader& header, NeighbourPeer* peer,
                                 Progress* progress) {
  {
    MutexLock lock(&mutex_);
    copy_.Void();
    Clear();
  }
  ReplicaTarget target(*layout_, backend_, arrays_);
  ArrayReceiver receiver(layout_.get(),
                         1 + OptimizerStateArrays(options_.optimizer), &target);
  RecordText record;
  CopySink sink;
  sink.slice = [&](const CopySlice& slice) {
    progress->Note();
    return receiver.Take(slice);
  };
  sink.record = [&](std::string text) {
    record = std::make_shared<const std::string>(std::move(text));
    return absl::OkStatus();
  };
  absl::Status status = peer->Fetch(header, sink);
  if (status.ok()) status = receiver.Finish();
  if (!status.ok()) return status;
  MutexLock lock(&mutex_);
  copy_.Hold(header.id, std::move(record));
  return status;
}

absl::Status ShardReplica::Read(int array, absl::Span<float> to) const {
  if (to.empty()) return absl::OkStatus();
  return backend_->Read(*arrays_[array], to);
}

}  // namespace agg
