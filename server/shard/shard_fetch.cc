// How copies that are lost come back from the other process that has the part:
// both ends of it (P15).
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/optimizer_step.h"
#include "server/params/parameter_store.h"
#include "server/shard/array_loader.h"
#include "server/shard/copy_transfer.h"
#include "server/shard/shard_checkpoint.h"
#include "server/shard/shard_engine.h"
#include "server/shard/shard_recovery.h"
#include "server/shard/shard_replica.h"
#include "server/shard/shard_replication.h"

namespace agg {

absl::Status ShardEngine::Replication::CheckCopy(ShardEngine* engine,
                                                 const CopyHeader& header,
                                                 RecordText* record) {
  MutexLock lock(&engine->mutex_);
  const absl::Status status = engine->epoch_.Check(header.epoch);
  if (!status.ok()) return status;
  if (engine->compute_ == nullptr) return NoManifest();
  const HeldCopy copy = header.part == engine->options_.ordinal
                            ? engine->home_
                            : engine->compute_->replica()->copy();
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
    auto replica = Replication::ReplicaFor(this, header);
    if (!replica.ok()) return replica.status();
    compute = *std::move(replica);
  }
  RecordText record;
  absl::Status status = Replication::CheckCopy(this, header, &record);
  if (!status.ok()) return status;
  const auto read_home = CopyFrom(&backend_, compute->store());
  // Without the turn: the neighbour's phase waits for this, and one of ours may
  // wait for the neighbour's. A copy at the target of a recovery stands still;
  // if the epoch is over meanwhile, what was read does not count.
  const auto read = [&](int array, absl::Span<float> to) {
    absl::Status result =
        home ? read_home(array, to) : compute->replica()->Read(array, to);
    if (result.ok()) result = Replication::CheckCopy(this, header, &record);
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

absl::StatusOr<PhaseResult> ShardEngine::Recovery::FetchCopies(
    ShardEngine* engine, const Phase& phase, ShardCompute* compute) {
  if (!engine->options_.replicated) return PhaseResult();
  if (compute == nullptr) return NoManifest();
  HeldCopy home(engine->options_.ordinal);
  {
    MutexLock lock(&engine->mutex_);
    home = engine->home_;
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
  if (!home.held()) status = FetchHome(engine, phase, compute);
  if (status.ok() && !replica->copy().held()) {
    status = replica->Fetch({phase.epoch, replica->layout()->ordinal, phase.id},
                            engine->before_, &engine->bytes_progress_);
  }
  if (!status.ok()) return status;
  return PhaseResult();
}

absl::Status ShardEngine::Recovery::FetchHome(ShardEngine* engine,
                                              const Phase& phase,
                                              ShardCompute* compute) {
  // Versions of an abandoned past can have higher numbers.
  compute->store()->RevokeAll();
  ArrayLoader loader(engine->options_.optimizer, &engine->backend_,
                     compute->store(), compute->layout()->num_elements);
  absl::Status status = loader.Begin();
  if (!status.ok()) return status;
  ArrayReceiver receiver(compute->layout().get(),
                         1 + OptimizerStateArrays(engine->options_.optimizer),
                         &loader);
  RecordText record;
  CopySink sink;
  sink.slice = [&](const CopySlice& slice) {
    engine->bytes_progress_.Note();
    return receiver.Take(slice);
  };
  sink.record = [&](std::string text) {
    record = std::make_shared<const std::string>(std::move(text));
    return absl::OkStatus();
  };
  status = engine->buddy_->Fetch(
      {phase.epoch, engine->options_.ordinal, phase.id}, sink);
  if (status.ok()) status = receiver.Finish();
  if (!status.ok()) return status;
  engine->loaded_ = loader.snapshot();
  PlaceHome(engine, phase.id, std::move(record), compute);
  return status;
}

}  // namespace agg
