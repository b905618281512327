// The processes of a simulated job and the calls between them, on which faults
// act: one thread, so that one plan is one run. A call is counted, and before
// and after each one a process may die, be cut off or be frozen.
#ifndef AGG_TESTS_SIM_SIM_NETWORK_H_
#define AGG_TESTS_SIM_SIM_NETWORK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "server/base/clock.h"
#include "server/shard/shard_engine.h"

namespace agg {

enum class FaultKind : uint8_t {
  kKill,       // kill -9 of a process: its memory is gone
  kCut,        // nobody reaches it, and it reaches nobody; its memory stays
  kFreeze,     // shard 0 stands still in this call, and another one replaces it
  kKillWorker  // the worker's next process knows nothing
};

struct Fault {
  int64_t call = 0;    // number of the call, from 0
  bool after = false;  // it was carried out, and its answer may be lost
  FaultKind kind = FaultKind::kKill;
  int target = 0;    // ordinal of the process, or rank of the worker
  int quarters = 2;  // of a second, until it is there again
};
std::string Describe(const Fault& fault);

// One life of a process: a shard (shard 0 with the coordinator), or a worker.
struct SimHost {
  bool worker = false;
  int number = 0;  // ordinal, or rank
  uint64_t life = 0;
  bool dead = false;
  bool frozen = false;
  absl::Time cut_until = absl::InfinitePast();
  std::unique_ptr<Backend> backend;  // before the engine, which uses it
  std::unique_ptr<ShardEngine> engine;
  // Whose calls the shard takes (P21): until that process dies or is silent.
  const SimHost* claim = nullptr;
  // What the coordinator at an ordinal gave: what Attach was given.
  std::map<int, std::function<void(absl::Status)>> on_lost;
};
using SimHostPtr = std::shared_ptr<SimHost>;

class SimNetwork {
 public:
  // `freeze` is called within a call of shard 0, and returns when it goes on;
  // false, at once: it cannot be frozen there.
  SimNetwork(const Clock* clock, std::vector<Fault> faults, bool record,
             std::function<bool(SimHost*)> freeze)
      : clock_(clock),
        faults_(std::move(faults)),
        record_(record),
        freeze_(std::move(freeze)) {}

  // Who has the address now; null: nobody yet.
  SimHostPtr shard(int ordinal) const {
    const auto found = shards_.find(ordinal);
    return found == shards_.end() ? nullptr : found->second;
  }
  void SetShard(SimHostPtr host) { shards_[host->number] = std::move(host); }
  void SetWorker(SimHostPtr host) { workers_[host->number] = std::move(host); }

  // `call` as `from` makes it and `to` carries it out: UNAVAILABLE if one of
  // them is not there before or afterwards. R is a Status or a StatusOr.
  template <typename F>
  auto Call(const char* what, SimHost* from, SimHost* to, F call)
      -> decltype(call()) {
    const int64_t number = num_calls_++;
    Note(what, from, to);
    Apply(number, /*after=*/false, from);
    absl::Status status = CheckReach(from, to);
    if (!status.ok()) return status;
    auto result = call();
    Apply(number, /*after=*/true, from);
    status = CheckReach(from, to);
    if (!status.ok()) return status;
    return result;
  }
  // An answer that `from` has for `to`: whether it arrives.
  bool Deliver(const char* what, SimHost* from, SimHost* to) {
    return Call(what, from, to, [] { return absl::OkStatus(); }).ok();
  }
  // UNAVAILABLE naming who is not there.
  absl::Status CheckReach(const SimHost* from, const SimHost* to) const;

  int64_t num_calls() const { return num_calls_; }
  const std::vector<std::string>& names() const { return names_; }
  // Kills, and freezes of a process that is replaced; in their order.
  struct Loss {
    int ordinal = 0;
    int64_t call = 0;
    int quarters = 0;
  };
  const std::vector<Loss>& losses() const { return losses_; }

  // --- Openings: all shards show a version to workers. ---------------------
  void NoteOpening(uint64_t epoch);              // the first shard is asked
  void NoteOpened(uint64_t epoch, int ordinal);  // one has done it
  // The epochs between these two that have begun to open.
  std::vector<uint64_t> Openings(uint64_t after, uint64_t before) const;
  // Whether two neighbours of the ring were lost since the last one that was
  // complete, before `epoch` opened or (not opened yet) until now.
  bool NeighboursLost(uint64_t epoch, int num_shards) const;

 private:
  void Note(const char* what, const SimHost* from, const SimHost* to);
  void Apply(int64_t number, bool after, SimHost* from);
  void Act(const Fault& fault, SimHost* from);

  const Clock* const clock_;
  const std::vector<Fault> faults_;
  const bool record_;
  const std::function<bool(SimHost*)> freeze_;
  std::map<int, SimHostPtr> shards_;
  std::map<int, SimHostPtr> workers_;
  int64_t num_calls_ = 0;
  std::vector<std::string> names_;
  std::vector<Loss> losses_;
  struct Opening {
    size_t losses_before = 0;  // that it makes good, if it is complete
    size_t since = 0;          // the first loss since the last complete one
    std::map<int, bool> opened;
  };
  std::map<uint64_t, Opening> openings_;
  size_t made_good_ = 0;  // losses before the last complete opening
};

}  // namespace agg

#endif  // AGG_TESTS_SIM_SIM_NETWORK_H_
