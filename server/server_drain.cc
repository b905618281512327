// A stop in good order: what is asked for is answered first, and a part of the
// job that only this shard has is handed over (P35).
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/access_parts.h"
#include "server/base/log.h"
#include "server/coordinator/coordinator.h"
#include "server/housekeeping.h"
#include "server/round/orderly_stop.h"
#include "server/round/round_report.h"
#include "server/rpc/remote_shard_peer.h"
#include "server/rpc/rpc_server.h"
#include "server/server.h"
#include "server/shard/shard_engine.h"

namespace agg {

void Server::NoteStop(const std::string& reason) const {
  access_->NoteStop(reason);
}

void Server::Drain(absl::Time deadline) {
  {
    MutexLock lock(&mutex_);
    if (draining_) {
      // Another caller drains already. When it has returned nothing runs any
      // more.
      while (!drained_) changed_.Wait(&mutex_);
      return;
    }
    draining_ = true;
    changed_.NotifyAll();
  }
  DrainParts(deadline);
  MutexLock lock(&mutex_);
  drained_ = true;
  changed_.NotifyAll();
}

void Server::DrainParts(absl::Time deadline) {
  if (housekeeping_ != nullptr) housekeeping_->StopServing();
  if (coordinator_ == nullptr) AwaitHandover(deadline);
  housekeeping_ = nullptr;
  if (coordinator_ != nullptr) coordinator_->Drain(deadline);
  absl::Status reason = OrderlyStop(absl::StrCat(name(), " is shutting down"));
  {
    MutexLock lock(&mutex_);
    if (!device_lost_.ok()) reason = device_lost_;
  }
  if (engine_ != nullptr) engine_->Lose(0, reason);
  if (rpc_ == nullptr) return;  // it could not start
  rpc_->EndStreams(reason);
  rpc_->Shutdown(deadline);
  // Those that wait to be let go need not wait for this object's end.
  for (auto& peer : remote_peers_) {
    peer->Close(absl::UnavailableError("shutting down"));
  }
}

void Server::AwaitHandover(absl::Time deadline) {
  constexpr absl::Duration kPeriod = absl::Milliseconds(20);
  if (rpc_ == nullptr || absl::Now() >= deadline) return;
  const ShardStatus before = engine_->Status();
  if (!before.attached) return;  // nobody counts on it
  LogInfo("draining: waiting until the coordinator ends epoch ", before.epoch);
  rpc_->AnnounceDraining();
  for (;;) {
    const ShardStatus shard = engine_->Status();
    if (!shard.attached || shard.epoch != before.epoch) return;
    MutexLock lock(&mutex_);
    if (absl::Now() >= deadline) break;
    changed_.WaitFor(&mutex_, kPeriod);
  }
  LogWarning("the coordinator has not let go of this shard in time");
}

void Server::Wait() {
  MutexLock lock(&mutex_);
  while (!draining_) changed_.Wait(&mutex_);
}

}  // namespace agg
