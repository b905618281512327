#include "tests/sim/sim_network.h"

#include <set>

#include "server/base/log.h"

namespace agg {
namespace {

std::string NameOf(const SimHost& host) {
  return absl::StrCat(host.worker ? "worker " : "shard ", host.number);
}

}  // namespace

std::string Describe(const Fault& fault) {
  const char* kind = "kill";
  if (fault.kind == FaultKind::kCut) kind = "cut";
  if (fault.kind == FaultKind::kFreeze) kind = "freeze";
  if (fault.kind == FaultKind::kKillWorker) kind = "kill worker";
  return absl::StrCat(kind, " ", fault.target,
                      fault.after ? " after" : " before", " call ", fault.call,
                      " for ", fault.quarters, "/4 s");
}

absl::Status SimNetwork::CheckReach(const SimHost* from,
                                    const SimHost* to) const {
  for (const SimHost* host : {from, to}) {
    if (host == nullptr) return absl::UnavailableError("nobody answers");
    const bool cut = from != to && clock_->Now() < host->cut_until;
    // A frozen process answers nobody; what it does itself happens later.
    const bool frozen = host == to && from != to && host->frozen;
    if (host->dead || cut || frozen) {
      return absl::UnavailableError(absl::StrCat(NameOf(*host), " is gone"));
    }
  }
  return absl::OkStatus();
}

void SimNetwork::Note(const char* what, const SimHost* from,
                      const SimHost* to) {
  if (!record_) return;
  std::string name = absl::StrCat(from == nullptr ? "?" : NameOf(*from), " -> ",
                                  to == nullptr ? "?" : NameOf(*to), " ", what);
  LogInfo(num_calls_ - 1, " ", name);
  names_.push_back(std::move(name));
}

void SimNetwork::Apply(int64_t number, bool after, SimHost* from) {
  for (const Fault& fault : faults_) {
    if (fault.call == number && fault.after == after) Act(fault, from);
  }
}

void SimNetwork::Act(const Fault& fault, SimHost* from) {
  if (fault.kind == FaultKind::kKillWorker) {
    const auto worker = workers_.find(fault.target);
    if (worker != workers_.end()) worker->second->dead = true;
    return;
  }
  const SimHostPtr host = shard(fault.target);
  if (host == nullptr || host->dead || host->frozen) return;
  if (fault.kind == FaultKind::kKill) {
    host->dead = true;
    losses_.push_back({host->number, fault.call, fault.quarters});
  } else if (fault.kind == FaultKind::kCut) {
    host->cut_until = clock_->Now() + fault.quarters * absl::Milliseconds(250);
  } else if (host.get() == from) {
    // Nobody else waits in this call: only its own locks are held.
    losses_.push_back({host->number, fault.call, fault.quarters});
    if (!freeze_(host.get())) losses_.pop_back();
  }
}

void SimNetwork::NoteOpening(uint64_t epoch) {
  openings_.insert({epoch, Opening{losses_.size(), made_good_, {}}});
}

void SimNetwork::NoteOpened(uint64_t epoch, int ordinal) {
  Opening& opening = openings_[epoch];
  opening.opened[ordinal] = true;
  if (opening.opened.size() == shards_.size()) {
    made_good_ = opening.losses_before;
  }
}

std::vector<uint64_t> SimNetwork::Openings(uint64_t after,
                                           uint64_t before) const {
  std::vector<uint64_t> epochs;
  for (auto each = openings_.upper_bound(after);
       each != openings_.end() && each->first < before; ++each) {
    epochs.push_back(each->first);
  }
  return epochs;
}

bool SimNetwork::NeighboursLost(uint64_t epoch, int num_shards) const {
  size_t begin = made_good_;
  size_t end = losses_.size();
  const auto found = openings_.find(epoch);
  if (found != openings_.end()) {
    begin = found->second.since;
    end = found->second.losses_before;
  }
  std::set<int> lost;
  for (size_t i = begin; i < end; ++i) lost.insert(losses_[i].ordinal);
  for (const int ordinal : lost) {
    const int next = (ordinal + 1) % num_shards;
    if (next != ordinal && lost.count(next) != 0) return true;
  }
  return num_shards == 1 && !lost.empty();
}

}  // namespace agg
