// The second copy of each part (P15): what a ShardEngine sends to its buddy and
// takes from the shard before it, and how copies that are lost come back.
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/params/parameter_store.h"
#include "server/shard/array_loader.h"
#include "server/shard/combined_sender.h"
#include "server/shard/copy_transfer.h"
#include "server/shard/shard_checkpoint.h"
#include "server/shard/shard_engine.h"
#include "server/shard/shard_replica.h"
#include "server/shard/step_layout.h"

namespace agg {

void ShardEngine::SetNeighbours(NeighbourPeer* buddy, NeighbourPeer* before) {
  buddy_ = buddy;
  before_ = before;
}

// --- For the neighbours ------------------------------------------------------

absl::StatusOr<std::shared_ptr<ShardCompute>> ShardEngine::ReplicaFor(
    const CopyHeader& header) const {
  MutexLock lock(&mutex_);
  const absl::Status status = epoch_.Check(header.epoch);
  if (!status.ok()) return status;
  if (compute_ == nullptr) return NoManifest();
  if (compute_->replica() == nullptr ||
      compute_->replica()->layout()->ordinal != header.part) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shard ", options_.ordinal, " has no replica of part ", header.part));
  }
  return compute_;
}

absl::Status ShardEngine::SendCombined(const CopyHeader& header,
                                       const CopySlice& slice) {
  const auto compute = ReplicaFor(header);
  if (!compute.ok()) return compute.status();
  return (*compute)->replica()->Land(header, slice);
}

absl::Status ShardEngine::FinishCombined(const CopyHeader& header) {
  const auto compute = ReplicaFor(header);
  if (!compute.ok()) return compute.status();
  return (*compute)->replica()->CheckLanded(header);
}

absl::Status ShardEngine::CheckCopy(const CopyHeader& header,
                                    RecordText* record) const {
  MutexLock lock(&mutex_);
  const absl::Status status = epoch_.Check(header.epoch);
  if (!status.ok()) return status;
  if (compute_ == nullptr) return NoManifest();
  const HeldCopy copy =
      header.part == options_.ordinal ? home_ : compute_->replica()->copy();
  if (!copy.At(header.id)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no copy of ", DescribeVersion(header.id), " here: ", copy.Describe()));
  }
  *record = copy.record();
  return absl::OkStatus();
}

absl::Status ShardEngine::Fetch(const CopyHeader& header,
                                const CopySink& sink) {
  const bool home = header.part == options_.ordinal;
  std::shared_ptr<ShardCompute> compute;
  if (home) {
    MutexLock lock(&mutex_);
    compute = compute_;
  } else {
    auto replica = ReplicaFor(header);
    if (!replica.ok()) return replica.status();
    compute = *std::move(replica);
  }
  RecordText record;
  absl::Status status = CheckCopy(header, &record);
  if (!status.ok()) return status;
  const auto read_home = CopyFrom(&backend_, compute->store());
  // Without the turn: the neighbour's phase waits for this, and one of ours may
  // wait for the neighbour's. A copy at the target of a recovery stands still;
  // if the epoch is over meanwhile, what was read does not count.
  const auto read = [&](int array, absl::Span<float> to) {
    absl::Status result =
        home ? read_home(array, to) : compute->replica()->Read(array, to);
    if (result.ok()) result = CheckCopy(header, &record);
    return result;
  };
  const ShardLayout& layout =
      home ? *compute->layout() : *compute->replica()->layout();
  status = SendArrays(layout, 1 + OptimizerStateArrays(options_.optimizer),
                      read, sink.slice);
  if (status.ok() && header.part == 0 && sink.record != nullptr) {
    status = sink.record(record == nullptr ? "" : *record);
  }
  ReportLostDevice();
  return status;
}

// --- Rounds ------------------------------------------------------------------

void ShardEngine::TellReplica() {
  if (compute_ == nullptr || compute_->replica() == nullptr) return;
  compute_->replica()->SetEpoch(epoch_.number(), epoch_.end());
}

absl::Status ShardEngine::StepReplica(uint64_t epoch, ShardCompute* compute) {
  if (compute == nullptr || compute->replica() == nullptr) {
    return absl::OkStatus();
  }
  const absl::Status status = compute->replica()->StepIfReleased();
  if (!status.ok()) {
    MutexLock lock(&mutex_);
    BreakEpoch(epoch, "the step of its replica", status);
  }
  return status;
}

void ShardEngine::ReleaseReplica(ShardCompute* compute) {
  if (compute->replica() == nullptr) return;
  compute->replica()->Release();
  turn_.WakeFiller();
}

absl::StatusOr<PhaseResult> ShardEngine::Prepare(const Phase& phase,
                                                 ShardCompute* compute) {
  absl::Status status = compute->replica()->Prepare(phase);
  if (!status.ok()) return status;
  CopyHeader header{phase.epoch, options_.ordinal, {}};
  {
    MutexLock lock(&mutex_);
    if (home_.whole()) return PhaseResult();  // a repeat
    home_.BeginPrepare(phase.epoch);
    header.id = home_.id();
  }
  unchanged_ = phase.publish.unchanged;
  if (!unchanged_) {
    CombinedSender sender(buddy_, header, compute->layout().get(),
                          &compute->combined());
    status = compute->Combine(
        closed_round_.rows(), phase.step,
        [&](size_t begin, size_t end) { sender.Send(begin, end); });
    if (status.ok()) status = sender.Finish();
    if (!status.ok()) return status;
  }
  step_ = WithoutRows(phase.step);
  MutexLock lock(&mutex_);
  home_.EndPrepare(phase.record);
  return PhaseResult();
}

absl::StatusOr<std::shared_ptr<const Snapshot>> ShardEngine::StepHomeArrays(
    ShardCompute* compute, int32_t* not_finite_slice) {
  int num_revoked = 0;
  std::shared_ptr<Snapshot> snapshot =
      compute->store()->NextSnapshot(&num_revoked);
  const absl::Status status =
      compute->Step(step_, snapshot.get(), not_finite_slice);
  MutexLock lock(&mutex_);
  totals_.revoked_snapshots += num_revoked;
  if (status.ok()) return std::shared_ptr<const Snapshot>(std::move(snapshot));
  home_.Void();  // it may be between two versions
  BreakEpoch(epoch_.number(), "a step", status);
  return status;
}

// --- Between epochs ----------------------------------------------------------

absl::StatusOr<PhaseResult> ShardEngine::FetchCopies(const Phase& phase,
                                                     ShardCompute* compute) {
  if (!options_.replicated) return PhaseResult();
  if (compute == nullptr) return NoManifest();
  HeldCopy home(options_.ordinal);
  {
    MutexLock lock(&mutex_);
    home = home_;
  }
  ShardReplica* const replica = compute->replica();
  for (const HeldCopy& copy : {home, replica->copy()}) {
    if (copy.held() && !copy.At(phase.id)) {
      return absl::FailedPreconditionError(
          absl::StrCat("fetch of ", DescribeVersion(phase.id),
                       " over a copy: ", copy.Describe()));
    }
  }
  absl::Status status;
  if (!home.held()) status = FetchHome(phase, compute);
  if (status.ok() && !replica->copy().held()) {
    status = replica->Fetch({phase.epoch, replica->layout()->ordinal, phase.id},
                            before_);
  }
  if (!status.ok()) return status;
  return PhaseResult();
}

absl::Status ShardEngine::FetchHome(const Phase& phase, ShardCompute* compute) {
  // Versions of an abandoned past can have higher numbers.
  compute->store()->RevokeAll();
  ArrayLoader loader(options_.optimizer, &backend_, compute->store(),
                     compute->layout()->num_elements);
  ArrayReceiver receiver(compute->layout().get(),
                         1 + OptimizerStateArrays(options_.optimizer), &loader);
  RecordText record;
  CopySink sink;
  sink.slice = [&](const CopySlice& slice) { return receiver.Take(slice); };
  sink.record = [&](std::string text) {
    record = std::make_shared<const std::string>(std::move(text));
    return absl::OkStatus();
  };
  absl::Status status =
      buddy_->Fetch({phase.epoch, options_.ordinal, phase.id}, sink);
  if (status.ok()) status = receiver.Finish();
  if (!status.ok()) return status;
  loaded_ = loader.snapshot();
  PlaceHome(phase.id, std::move(record), compute);
  return status;
}

}  // namespace agg
