// What an operator does in a simulated job, is told, and finds again.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/base/job_phase.h"
#include "server/coordinator/job_record.h"
#include "tests/sim/job_simulation.h"

namespace agg {

void JobSimulation::SetRule() {
  if (coordinator() == nullptr) return;
  const JobStatus status = coordinator()->Status();
  if (status.phase != JobPhase::kOpen || !status.seeded ||
      status.version != kRuleRound || rule_set_in_ == status.history) {
    return;
  }
  if (rule_asked_in_ == status.epoch) return;  // the answer comes, or it ends
  RuleChange change;
  change.rule = "mean";
  change.learning_rate = 0.125;
  const SimHostPtr server = network_.shard(0);
  const absl::Status asked =
      network_.Call("SetRule", &operator_, server.get(), [&] {
        coordinator()->SetRuleEverywhere(
            change, [this, server, history = status.history](
                        const absl::StatusOr<RuleChangeResult>& result) {
              const bool told =
                  network_.Deliver("SetRuleReply", server.get(), &operator_);
              if (told && result.ok()) rule_set_in_ = history;
            });
        return absl::OkStatus();
      });
  if (asked.ok()) rule_asked_in_ = status.epoch;
}

void JobSimulation::Evict() {
  if (coordinator() == nullptr || !plan_.evicts) return;
  const JobStatus status = coordinator()->Status();
  if (status.phase != JobPhase::kOpen || !status.seeded ||
      status.version != kEvictRound || evicted_in_ == status.history ||
      evict_asked_in_ == status.epoch) {
    return;
  }
  const bool joined =
      std::any_of(status.workers.begin(), status.workers.end(),
                  [](const WorkerState& worker) { return worker.rank == 2; });
  if (!joined) return;
  const SimHostPtr server = network_.shard(0);
  const absl::Status asked =
      network_.Call("Evict", &operator_, server.get(), [&] {
        coordinator()->Evict(2, "too slow",
                             [this, server, history = status.history](
                                 const absl::StatusOr<Eviction>& eviction) {
                               const bool told = network_.Deliver(
                                   "EvictReply", server.get(), &operator_);
                               if (!told || !eviction.ok()) return;
                               evicted_in_ = history;
                               evicted_[eviction->session] = eviction->client;
                             });
        return absl::OkStatus();
      });
  if (asked.ok()) evict_asked_in_ = status.epoch;
}

void JobSimulation::BeginAnew() {
  // Who has finished does not come back to seed.
  const bool any_done =
      std::any_of(workers_.begin(), workers_.end(),
                  [](const auto& worker) { return worker->done(); });
  if (anew_asked_ || begun_anew_ != 0 || any_done) return;
  const SimHostPtr server = network_.shard(0);
  anew_asked_ = true;
  const absl::Status asked =
      network_.Call("Restore", &operator_, server.get(), [&] {
        RestoreCall call;
        call.begin_anew = true;
        coordinator()->Restore(
            call, [this, server](const absl::StatusOr<RestoreResult>& result) {
              anew_asked_ = false;
              const bool told =
                  network_.Deliver("RestoreReply", server.get(), &operator_);
              if (!told || !result.ok()) return;
              begun_anew_ = std::max<uint64_t>(
                  1, network_.shard(0)->engine->Status().epoch);
            });
        return absl::OkStatus();
      });
  if (!asked.ok()) anew_asked_ = false;
}

void JobSimulation::CheckBegun(const JobStatus& status) {
  if (begun_anew_ == 0 || !status.seeded || status.history >= begun_anew_) {
    return;
  }
  ledger_.Fail(absl::StrCat("the job began anew in epoch ", begun_anew_,
                            ", and goes on from version ", status.version,
                            " of history ", status.history));
}

void JobSimulation::CheckEvicted(const JobStatus& status) {
  // Facts are in all processes, and lost with all of them.
  if (neighbours_lost_) return;
  for (const WorkerState& worker : status.workers) {
    for (const auto& [session, client] : evicted_) {
      if (worker.client == client) {
        ledger_.Fail(absl::StrCat("session ", session, " (", client,
                                  ") was evicted, and is in again in epoch ",
                                  status.epoch));
      }
    }
  }
  if (zombie_asked_in_ == status.epoch || evicted_.empty()) return;
  zombie_asked_in_ = status.epoch;
  JoinCall call;
  call.rank = 2;
  call.manifest = world_.manifest;
  call.client = "zombie";
  call.resume_session = evicted_.begin()->first;
  coordinator()->Join(call, [this, session = call.resume_session](
                                const absl::StatusOr<JoinResult>& joined) {
    if (joined.ok()) {
      ledger_.Fail(absl::StrCat("session ", session,
                                " was evicted, and has joined again as ",
                                joined->session));
    }
  });
}

}  // namespace agg
