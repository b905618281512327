// Shards of tests, as a coordinator reaches them.
#ifndef AGG_TESTS_SERVER_ROUND_FAULTY_PEER_H_
#define AGG_TESTS_SERVER_ROUND_FAULTY_PEER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"
#include "server/round/shard_peer.h"

namespace agg {

// A ShardPeer whose shard takes everything and does nothing.
class IdlePeer : public ShardPeer {
 public:
  explicit IdlePeer(std::string name) : name_(std::move(name)) {}
  absl::StatusOr<ShardInventory> Attach(
      uint64_t, std::function<void(absl::Status)>) override {
    return ShardInventory();
  }
  void Lose(uint64_t, const absl::Status&) override {}
  absl::StatusOr<PhaseResult> RunPhase(const Phase&) override {
    return PhaseResult();
  }
  std::string name() const override { return name_; }

 private:
  const std::string name_;
};

// Does what `peer` does, and fails when a test asks it to. Thread-safe.
class FaultyPeer : public ShardPeer {
 public:
  explicit FaultyPeer(ShardPeer* peer) : peer_(peer) {}
  // Another life of the shard. No call may be under way.
  void Connect(ShardPeer* peer) {
    peer_ = peer;
    peer_->SetOnComplete(on_complete_);
    if (offers_) peer_->SetOnOffer(on_offer_);
  }
  // Shards offer closes (P44). Before the coordinator is made.
  void ForwardOffers() { offers_ = true; }

  // The next `times` phases of this kind fail so, without reaching the shard.
  void FailNext(PhaseKind kind, absl::Status status, int times = 1) {
    MutexLock lock(&mutex_);
    failures_[kind] = {std::move(status), times};
  }
  void FailNextSession(absl::Status status, int times = 1) {
    FailNext(PhaseKind::kSetSession, std::move(status), times);
  }
  void FailNextReservation(absl::Status status, int times = 1) {
    FailNext(PhaseKind::kReserveRow, std::move(status), times);
  }
  // Nobody can attach the shard, until this is OK.
  void FailAttach(absl::Status status) {
    MutexLock lock(&mutex_);
    attach_failure_ = std::move(status);
  }
  // Runs before each reservation that reaches the shard, on the caller's
  // thread.
  void BeforeReservation(std::function<void()> hook) {
    MutexLock lock(&mutex_);
    job_hooks_[PhaseKind::kReserveRow] = std::move(hook);
  }
  // Makes memory for a row takes longer than SetSession may: it fails for
  // a session whose rank has none reserved in this epoch.
  void RowsTakeLong() {
    MutexLock lock(&mutex_);
    rows_take_long_ = true;
  }
  // Runs before each SetFacts, on the caller's thread.
  void BeforeFacts(std::function<void()> hook) {
    MutexLock lock(&mutex_);
    job_hooks_[PhaseKind::kSetFacts] = std::move(hook);
  }
  // Runs before each phase of a version that reaches the shard, on the caller's
  // thread.
  void BeforePhase(std::function<void(const Phase&)> hook) {
    MutexLock lock(&mutex_);
    hook_ = std::move(hook);
  }
  // The shard is gone: what its transport would say.
  void ReportLost(const absl::Status& reason) {
    std::function<void(absl::Status)> on_lost;
    {
      MutexLock lock(&mutex_);
      on_lost = on_lost_;
    }
    on_lost(reason);
  }
  // Rows are complete there, as its transport would say.
  void ReportComplete(uint64_t epoch, const std::vector<CompleteRow>& rows) {
    if (on_complete_ != nullptr) on_complete_(epoch, rows);
  }
  // Somebody stops the shard, which waits to be let go of its epoch.
  void ReportDraining() {
    std::function<void(uint64_t)> on_draining;
    uint64_t epoch = 0;
    {
      MutexLock lock(&mutex_);
      on_draining = on_draining_;
      epoch = epoch_;
    }
    on_draining(epoch);
  }
  // Kinds of phases of versions that reached the shard, in order.
  std::vector<PhaseKind> phases() const {
    MutexLock lock(&mutex_);
    return phases_;
  }

  absl::StatusOr<ShardInventory> Attach(
      uint64_t epoch, std::function<void(absl::Status)> on_lost) override {
    {
      MutexLock lock(&mutex_);
      if (!attach_failure_.ok()) return attach_failure_;
      on_lost_ = on_lost;
      epoch_ = epoch;
      given_up_ = absl::OkStatus();
      reserved_.clear();
    }
    return peer_->Attach(epoch, std::move(on_lost));
  }
  void SetOnDraining(std::function<void(uint64_t)> on_draining) override {
    MutexLock lock(&mutex_);
    on_draining_ = std::move(on_draining);
  }
  void SetOnComplete(OnComplete on_complete) override {
    on_complete_ = on_complete;
    peer_->SetOnComplete(std::move(on_complete));
  }
  void SetOnOffer(OnOffer on_offer) override {
    on_offer_ = on_offer;
    if (offers_) peer_->SetOnOffer(std::move(on_offer));
  }
  void Lose(uint64_t epoch, const absl::Status& reason) override {
    peer_->Lose(epoch, reason);
  }
  absl::StatusOr<PhaseResult> RunPhase(const Phase& phase) override {
    if (IsOfJob(phase.kind)) return RunJobPhase(phase);
    std::function<void(const Phase&)> hook;
    {
      MutexLock lock(&mutex_);
      Failure& failure = failures_[phase.kind];
      if (failure.times > 0) {
        --failure.times;
        return failure.status;
      }
      phases_.push_back(phase.kind);
      hook = hook_;
    }
    if (hook != nullptr) hook(phase);
    {
      MutexLock lock(&mutex_);
      if (!given_up_.ok()) return given_up_;
    }
    return peer_->RunPhase(phase);
  }
  absl::Status CheckPushed(const PushedRow& row) const override {
    return peer_->CheckPushed(row);
  }
  absl::StatusOr<uint64_t> Promise() override { return peer_->Promise(); }
  std::string Record() const override { return peer_->Record(); }
  // Ends calls as a remote shard does: the phase that runs, and later ones, end
  // so.
  void GiveUp(uint64_t, const absl::Status& reason) override {
    MutexLock lock(&mutex_);
    given_up_ = reason;
  }
  std::string name() const override { return peer_->name(); }
  uint64_t Progress() const override { return peer_->Progress(); }

 private:
  struct Failure {
    absl::Status status;
    int times = 0;
  };
  absl::StatusOr<PhaseResult> RunJobPhase(const Phase& phase) {
    std::function<void()> hook;
    {
      MutexLock lock(&mutex_);
      Failure& failure = failures_[phase.kind];
      if (failure.times > 0) {
        --failure.times;
        return failure.status;
      }
      const SessionChange& session = phase.session;
      if (phase.kind == PhaseKind::kReserveRow) reserved_.insert(session.rank);
      if (phase.kind == PhaseKind::kSetSession && rows_take_long_ &&
          !session.remove && reserved_.count(session.rank) == 0) {
        return absl::DeadlineExceededError("its row is being allocated");
      }
      hook = job_hooks_[phase.kind];
    }
    if (hook != nullptr) hook();
    return peer_->RunPhase(phase);
  }
  ShardPeer* peer_;
  OnComplete on_complete_;  // set before the first Attach
  OnOffer on_offer_;        // the same
  bool offers_ = false;
  mutable Mutex mutex_;
  std::map<PhaseKind, Failure> failures_ ABSL_GUARDED_BY(mutex_);
  absl::Status given_up_ ABSL_GUARDED_BY(mutex_);
  absl::Status attach_failure_ ABSL_GUARDED_BY(mutex_);
  bool rows_take_long_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<int32_t> reserved_ ABSL_GUARDED_BY(mutex_);  // in this epoch
  std::map<PhaseKind, std::function<void()>> job_hooks_ ABSL_GUARDED_BY(mutex_);
  std::function<void(const Phase&)> hook_ ABSL_GUARDED_BY(mutex_);
  std::function<void(absl::Status)> on_lost_ ABSL_GUARDED_BY(mutex_);
  std::function<void(uint64_t)> on_draining_ ABSL_GUARDED_BY(mutex_);
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // the last Attach's
  std::vector<PhaseKind> phases_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_TESTS_SERVER_ROUND_FAULTY_PEER_H_
