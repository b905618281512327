// The second copy of each part (P15): what a ShardEngine sends to its buddy and
// takes from the shard before it in each round.
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/buffer.h"
#include "server/base/mutex.h"
#include "server/base/status_macros.h"
#include "server/ingest/shard_layout.h"
#include "server/params/parameter_store.h"
#include "server/shard/shard_engine.h"
#include "server/shard/shard_replica.h"
#include "server/shard/step_layout.h"

namespace agg {

namespace {

// Sends a part's combined gradient to its second copy while the rest of it is
// still being computed (P17). A thread of its own sends, in the order of Send;
// or Send does. Another thread uses the class. A thread for each round: it
// takes microseconds to start one, and a round with replication has at least
// two messages over a network.
class CombinedSender {
 public:
  // All outlive it. `combined`: in the layout, on the host. `check` is asked
  // before each slice: its error ends the sending. `background`: has a thread.
  CombinedSender(NeighbourPeer* peer, const CopyHeader& header,
                 const ShardLayout* layout, const Buffer* combined,
                 std::function<absl::Status()> check, bool background);
  // What has not been sent is not sent any more.
  ~CombinedSender();
  CombinedSender(const CombinedSender&) = delete;
  CombinedSender& operator=(const CombinedSender&) = delete;

  // Slices [begin, end) of the layout are there, and stay until Finish.
  void Send(size_t begin, size_t end);
  // Once, at the end: waits until the neighbour has all. The first error of
  // the peer; nothing is sent after it.
  absl::Status Finish();

 private:
  // Sends until nothing is left, or waits for more until End.
  void Run(bool wait);
  void End(bool drop);

  NeighbourPeer* const peer_;
  const CopyHeader header_;
  const ShardLayout* const layout_;
  const Buffer* const combined_;
  const std::function<absl::Status()> check_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<size_t> slices_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses the others
};

CombinedSender::CombinedSender(NeighbourPeer* peer, const CopyHeader& header,
                               const ShardLayout* layout,
                               const Buffer* combined,
                               std::function<absl::Status()> check,
                               bool background)
    : peer_(peer),
      header_(header),
      layout_(layout),
      combined_(combined),
      check_(std::move(check)) {
  if (background) thread_ = std::thread([this] { Run(/*wait=*/true); });
}

CombinedSender::~CombinedSender() { End(/*drop=*/true); }

void CombinedSender::End(bool drop) {
  {
    MutexLock lock(&mutex_);
    ended_ = true;
    if (drop) slices_.clear();
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void CombinedSender::Send(size_t begin, size_t end) {
  {
    MutexLock lock(&mutex_);
    if (!status_.ok()) return;
    for (size_t i = begin; i < end; ++i) slices_.push_back(i);
    changed_.NotifyAll();
  }
  if (!thread_.joinable()) Run(/*wait=*/false);
}

absl::Status CombinedSender::Finish() {
  End(/*drop=*/false);
  {
    MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
  }
  return peer_->FinishCombined(header_);
}

void CombinedSender::Run(bool wait) {
  for (;;) {
    size_t position;
    {
      MutexLock lock(&mutex_);
      while (wait && slices_.empty() && !ended_) changed_.Wait(&mutex_);
      if (slices_.empty()) return;
      position = slices_.front();
      slices_.pop_front();
    }
    const ElementRange& range = layout_->ranges[position];
    CopySlice slice;
    slice.slice = layout_->slices[position];
    slice.values = absl::MakeConstSpan(
        reinterpret_cast<const float*>(combined_->host()) + range.begin,
        static_cast<size_t>(range.num_elements));
    absl::Status status = check_();
    if (status.ok()) status = peer_->SendCombined(header_, slice);
    if (status.ok()) continue;
    MutexLock lock(&mutex_);
    status_ = status;
    slices_.clear();
  }
}

}  // namespace

// --- For the neighbours ------------------------------------------------------

absl::StatusOr<std::shared_ptr<ShardCompute>>
ShardEngine::Replication::ReplicaFor(ShardEngine* engine,
                                     const CopyHeader& header) {
  MutexLock lock(&engine->mutex_);
  AGG_RETURN_IF_ERROR(engine->epoch_.Check(header.epoch));
  if (engine->compute_ == nullptr) return NoManifest();
  if (engine->compute_->replica() == nullptr ||
      engine->compute_->replica()->layout()->ordinal != header.part) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard ", engine->options_.ordinal,
                     " has no replica of part ", header.part));
  }
  return engine->compute_;
}

// --- Rounds ------------------------------------------------------------------

void ShardEngine::Replication::TellReplica(ShardEngine* engine) {
  if (engine->compute_ == nullptr || engine->compute_->replica() == nullptr) {
    return;
  }
  engine->compute_->replica()->SetEpoch(engine->epoch_.number(),
                                        engine->epoch_.end());
}

absl::Status ShardEngine::Replication::StepReplica(ShardCompute* compute) {
  if (compute == nullptr || compute->replica() == nullptr) {
    return absl::OkStatus();
  }
  return compute->replica()->StepIfReleased();
}

absl::Status ShardEngine::Replication::StepInPhase(ShardEngine* engine,
                                                   uint64_t epoch,
                                                   ShardCompute* compute) {
  const absl::Status status = StepReplica(compute);
  if (!status.ok()) {
    MutexLock lock(&engine->mutex_);
    engine->BreakEpoch(epoch, "the step of its replica", status);
  }
  return status;
}

void ShardEngine::Replication::ReleaseReplica(ShardEngine* engine,
                                              ShardCompute* compute) {
  if (compute->replica() == nullptr) return;
  compute->replica()->Release();
  engine->turn_.WakeFiller();
}

absl::StatusOr<PhaseResult> ShardEngine::Replication::Prepare(
    ShardEngine* engine, const Phase& phase, ShardCompute* compute) {
  absl::Status status = compute->replica()->Prepare(phase);
  if (!status.ok()) return status;
  CopyHeader header{phase.epoch, engine->options_.ordinal, {}};
  {
    MutexLock lock(&engine->mutex_);
    if (engine->home_.whole()) return PhaseResult();  // a repeat
    engine->home_.BeginPrepare(phase.epoch);
    header.id = engine->home_.id();
  }
  engine->round_.unchanged = phase.publish.unchanged;
  if (!engine->round_.unchanged) {
    // A newer epoch is not kept waiting for it. It is asked before each slice.
    const auto check = [&] {
      engine->bytes_progress_.Note();
      return engine->CheckEpoch(phase.epoch);
    };
    CombinedSender sender(engine->buddy_, header, compute->layout().get(),
                          &compute->combined(), check,
                          engine->options_.background);
    status = compute->Combine(
        engine->round_.closed.rows(), phase.step,
        [&](size_t begin, size_t end) { sender.Send(begin, end); });
    if (status.ok()) status = sender.Finish();
    if (!status.ok()) return status;
  }
  engine->round_.step = WithoutRows(phase.step);
  MutexLock lock(&engine->mutex_);
  engine->home_.EndPrepare(phase.record);
  return PhaseResult();
}

absl::StatusOr<std::shared_ptr<const Snapshot>>
ShardEngine::Replication::StepHomeArrays(ShardEngine* engine,
                                         ShardCompute* compute,
                                         int32_t* not_finite_slice) {
  int num_revoked = 0;
  absl::StatusOr<std::shared_ptr<Snapshot>> next =
      compute->store()->NextSnapshot(&num_revoked);
  {
    MutexLock lock(&engine->mutex_);
    engine->totals_.revoked_snapshots += num_revoked;
    if (!next.ok()) {
      // Nothing was touched: the next epoch takes the step that is prepared.
      engine->BreakEpoch(engine->home_.state().prepared_by, "a step",
                         next.status());
      return next.status();
    }
  }
  std::shared_ptr<Snapshot> snapshot = *std::move(next);
  const absl::Status status =
      compute->Step(engine->round_.step, snapshot, not_finite_slice);
  MutexLock lock(&engine->mutex_);
  if (status.ok()) return std::shared_ptr<const Snapshot>(std::move(snapshot));
  engine->BreakEpoch(engine->home_.state().prepared_by, "a step", status);
  engine->home_.Void();  // it may be between two versions
  return status;
}

absl::Status ShardEngine::Replication::CheckCopy(ShardEngine* engine,
                                                 const CopyHeader& header,
                                                 RecordText* record) {
  MutexLock lock(&engine->mutex_);
  AGG_RETURN_IF_ERROR(engine->epoch_.Check(header.epoch));
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

}  // namespace agg
