// A replica from one epoch to the next: what is prepared is dropped or stepped,
// and what is lost comes from the home.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/optimizer_step.h"
#include "server/base/try_resize.h"
#include "server/shard/copy_transfer.h"
#include "server/shard/shard_replica.h"

namespace agg {
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
    const absl::Status status = TryResize(num_elements_, &values_);
    if (!status.ok()) return status;
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
