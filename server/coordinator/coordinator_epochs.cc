// The beginning of an epoch: one coordinator alone, all shards promise the
// epoch and say what they hold (P20, P21). What comes of that is decided and
// done in coordinator_recovery.cc.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/job_start.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/restored_rounds.h"

namespace agg {

bool Coordinator::AttachIfDue() {
  std::optional<uint64_t> due;
  {
    MutexLock lock(&mutex_);
    due = state_.NextEpochIfDue(clock_->Now());
    if (!due.has_value()) return false;
  }
  if (StandsBy()) return true;
  // A report may ask for the job's manifest, which is another one then.
  reporter_.Flush();
  const uint64_t epoch = AbovePromises(*due);
  std::vector<ShardInventory> inventories(peers_.size());
  absl::Status status = AttachAll(epoch, &inventories);
  // Once more, after the last promise: with two shards a coordinator that was
  // replaced could have got all promises after one of them was forgotten (P21).
  if (status.ok() && StandsBy()) {
    status = absl::UnavailableError("another coordinator has the job");
  }
  std::optional<JobStart> start;
  awaits_person_ = false;
  if (status.ok()) status = Recover(epoch, inventories, &start);
  if (!status.ok()) {
    // Who does not get all shards lets go of all: two coordinators that each
    // hold some would wait for each other (P21).
    peers_
        .ForEach([](int, ShardPeer* peer) {
          peer->LetGo();
          return absl::OkStatus();
        })
        .IgnoreError();
    MutexLock lock(&mutex_);
    if (awaits_person_) {
      state_.AwaitPerson(std::string(status.message()), clock_->Now());
    } else {
      state_.AttachFailed(status);
    }
    return true;
  }
  BeginEpoch(epoch, inventories, std::move(start));
  return true;
}

bool Coordinator::StandsBy() {
  const std::string other = find_other_ == nullptr ? "" : find_other_();
  bool superseded = false;
  {
    MutexLock lock(&mutex_);
    if (!state_.StandBy(other, clock_->Now())) return false;
    superseded = state_.job() != nullptr;
  }
  if (superseded) Supersede(other);
  return true;
}

void Coordinator::Supersede(const std::string& other) {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(superseded_, true)) return;
  }
  LogError("superseded: ", other, "; this coordinator ends");
  if (on_superseded_ != nullptr) {
    on_superseded_(absl::AbortedError(absl::StrCat("superseded: ", other)));
  }
}

uint64_t Coordinator::AbovePromises(uint64_t epoch) {
  std::vector<uint64_t> promises(peers_.size(), 0);
  peers_
      .ForEach([&](int ordinal, ShardPeer* peer) {
        const absl::StatusOr<uint64_t> promise = peer->Promise();
        if (promise.ok()) promises[ordinal] = *promise;
        return promise.status();
      })
      .IgnoreError();
  const uint64_t highest = *std::max_element(promises.begin(), promises.end());
  MutexLock lock(&mutex_);
  return state_.RaiseEpoch(epoch, highest);
}

absl::Status Coordinator::AttachAll(uint64_t epoch,
                                    std::vector<ShardInventory>* inventories) {
  return peers_.ForEach([&](int ordinal, ShardPeer* peer) {
    absl::StatusOr<ShardInventory> inventory = peer->Attach(
        epoch, [listener = loss_listener_, epoch](const absl::Status& reason) {
          listener->Notify(epoch, reason);
        });
    if (inventory.ok()) (*inventories)[ordinal] = *std::move(inventory);
    MutexLock lock(&mutex_);
    state_.NoteAttach(ordinal, inventory.status());
    return inventory.status();
  });
}

void Coordinator::BeginEpoch(uint64_t epoch,
                             const std::vector<ShardInventory>& inventories,
                             std::optional<JobStart> start) {
  std::vector<uint64_t> lives;
  std::vector<std::string> sockets;
  std::vector<std::string> region_sockets;
  for (const ShardInventory& inventory : inventories) {
    lives.push_back(inventory.life);
    sockets.push_back(inventory.local_socket);
    region_sockets.push_back(inventory.region_socket);
  }
  const bool fresh = !start.has_value();
  std::vector<RoundReport> restored;
  std::optional<VersionId> checkpoint;
  const std::string restore = fresh ? std::string() : start->restore;
  if (!fresh) {
    restored = RestoredReports(start->record, reported_);
    checkpoint = start->restored;
  }
  bool finished = false;
  {
    MutexLock lock(&mutex_);
    state_.SetShardProcesses(std::move(lives), std::move(sockets),
                             std::move(region_sockets));
    if (!state_.BeginEpoch(epoch, std::move(start), clock_->Now())) return;
    finished = state_.finished();
    // The first one of its own, lest the next start begins with the other job's
    // again.
    if (checkpoint.has_value() && borrows_) {
      state_.checkpoints()->Request(nullptr);
    }
  }
  if (checkpoint.has_value() && on_restored_ != nullptr) {
    on_restored_(*checkpoint);
  }
  if (fresh) reporter_.SetShadowRules({});
  for (RoundReport& report : restored) {
    reported_ = {report.epoch, report.version};
    reporter_.Add(RoundFacts(), std::move(report));
  }
  CompleteOrder(fresh ? "the job begins anew, by a Seed" : restore);
  if (!finished) return;
  // Shards that are new do not know it.
  SessionChange end;
  end.finished = true;
  end.remove = true;
  const absl::Status told = PropagateSession(epoch, end);
  if (!told.ok()) LoseEpoch(epoch, told);
}

}  // namespace agg
