// The resolution, in the order of P18: which copies count, the newest of them
// as the base, who stands at it or steps to it, then forward for all or back
// for all. tests/sim/README.md 2.2 says why this is right.
#include "server/coordinator/recovery_plan.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace agg {

namespace {

using Kind = RecoveryDecision::Kind;

// A copy, where it is, and what becomes of it.
struct Holding {
  size_t shard = 0;
  bool home = false;
  CopyState copy;
  CopyAction action = CopyAction::kVoid;

  // Nobody prepares for a version of a later epoch than its own; one that says
  // so is not believed, since its step would lead to an older version.
  bool prepared() const {
    return copy.prepared_by != 0 && copy.prepared_by >= copy.id.made &&
           copy.whole;
  }
};

// All copies that are at home, or at the buddy where there is one.
std::vector<Holding> AllHoldings(const std::vector<ShardInventory>& inventories,
                                 bool replicated) {
  const size_t num_shards = inventories.size();
  std::vector<Holding> holdings;
  for (size_t shard = 0; shard < num_shards; ++shard) {
    for (const CopyState& copy : inventories[shard].copies) {
      if (copy.part < 0) continue;
      const auto part = static_cast<size_t>(copy.part);
      const bool home = part == shard;
      const bool buddy =
          replicated && part < num_shards && (part + 1) % num_shards == shard;
      if (home || buddy)
        holdings.push_back({shard, home, copy, CopyAction::kVoid});
    }
  }
  return holdings;
}

// The highest epoch that made or prepared anything. Who has not carried out
// that epoch's recovery was frozen or replaced meanwhile: its copies are void.
uint64_t FloorOf(const std::vector<Holding>& holdings) {
  uint64_t floor = 0;
  for (const Holding& holding : holdings) {
    floor = std::max({floor, holding.copy.id.made, holding.copy.prepared_by});
  }
  return floor;
}

std::string IdText(const VersionId& id) {
  return absl::StrCat("version ", id.version, " of epoch ", id.made);
}

// "part 1", "parts 0, 2".
std::string PartsText(const std::set<size_t>& parts) {
  std::string text = parts.size() == 1 ? "part " : "parts ";
  for (const size_t part : parts) {
    absl::StrAppend(&text, part == *parts.begin() ? "" : ", ", part);
  }
  return text;
}

// One decision in the making.
class Resolution {
 public:
  Resolution(const std::vector<ShardInventory>& inventories, bool replicated)
      : num_shards_(inventories.size()),
        replicated_(replicated),
        all_(AllHoldings(inventories, replicated)) {
    const uint64_t floor = FloorOf(all_);
    for (const Holding& holding : all_) {
      if (inventories[holding.shard].member_epoch < floor) continue;
      if (live_.empty() || base_ < holding.copy.id) base_ = holding.copy.id;
      live_.push_back(holding);
    }
    target_ = base_;
    ChooseActions();
  }

  bool any_copy() const { return !all_.empty(); }
  bool any_live() const { return !live_.empty(); }
  const VersionId& base() const { return base_; }
  const VersionId& target() const { return target_; }

  // The parts of which no copy reaches the target.
  std::set<size_t> Gone() const {
    std::set<size_t> gone;
    for (size_t part = 0; part < num_shards_; ++part) gone.insert(part);
    for (const Holding& holding : live_) {
      if (holding.action != CopyAction::kVoid) gone.erase(holding.copy.part);
    }
    return gone;
  }

  void FillActions(std::vector<RecoverPlan>* plans) const {
    for (const Holding& holding : live_) {
      RecoverPlan& plan = (*plans)[holding.shard];
      (holding.home ? plan.home : plan.replica) = holding.action;
    }
  }

  // "3 of 4 copies reach version 7 of epoch 2, of which 2 have prepared more".
  std::string Found() const {
    size_t num_reaching = 0;
    size_t num_prepared = 0;
    for (const Holding& holding : live_) {
      num_reaching += holding.action != CopyAction::kVoid ? 1 : 0;
      num_prepared +=
          holding.copy.id == base_ && holding.copy.prepared_by != 0 ? 1 : 0;
    }
    std::string text =
        absl::StrCat(num_reaching, " of ", (replicated_ ? 2 : 1) * num_shards_,
                     " copies reach ", IdText(target_));
    if (num_prepared > 0 && target_ == base_) {
      absl::StrAppend(&text, ", ", num_prepared,
                      " had prepared the next version");
    }
    if (live_.size() < all_.size()) {
      absl::StrAppend(&text, ", ", all_.size() - live_.size(),
                      " more missed an epoch");
    }
    return text;
  }

 private:
  // What brings a copy to the base. One version behind it is one that had all
  // of the base's step and has not carried it out: by the epoch that made the
  // base, since another one's step would be another version.
  CopyAction AtBase(const Holding& holding) const {
    const CopyState& copy = holding.copy;
    if (copy.id == base_) return CopyAction::kKeep;
    if (copy.id.version + 1 == base_.version && holding.prepared() &&
        copy.prepared_by == base_.made) {
      return CopyAction::kStep;
    }
    return CopyAction::kVoid;
  }

  // Whether all copies that are left stand at the base, prepared by one epoch.
  bool AllPrepared() const {
    uint64_t epoch = 0;
    for (const Holding& holding : live_) {
      if (holding.action == CopyAction::kVoid) continue;
      if (holding.action != CopyAction::kKeep || !holding.prepared()) {
        return false;
      }
      if (epoch != 0 && holding.copy.prepared_by != epoch) return false;
      epoch = holding.copy.prepared_by;
    }
    return epoch != 0;
  }

  // Forward is safe only if all are prepared: somebody may have stepped and be
  // lost, and what it showed to workers must not be taken back. Back is safe
  // only if not all are: then nobody has stepped. Without replication shards
  // step one by one: if some have and another cannot, no checkpoint can be of
  // exactly the base, and the job rewinds.
  void ChooseActions() {
    for (Holding& holding : live_) holding.action = AtBase(holding);
    const bool forward = Gone().empty() && AllPrepared();
    for (Holding& holding : live_) {
      if (holding.action != CopyAction::kKeep) continue;
      if (forward) {
        holding.action = CopyAction::kStep;
        target_ = {holding.copy.prepared_by, base_.version + 1};
      } else if (!replicated_ && holding.copy.prepared_by != 0) {
        holding.action = CopyAction::kVoid;  // it is past the base already
      }
    }
  }

  size_t num_shards_;
  bool replicated_;
  std::vector<Holding> all_;
  std::vector<Holding> live_;
  VersionId base_;
  VersionId target_;
};

// Whether a home or, with replication, a replica is void after the plans.
bool AnyVoid(const std::vector<RecoverPlan>& plans, bool replicated) {
  return replicated &&
         std::any_of(plans.begin(), plans.end(), [](const RecoverPlan& plan) {
           return plan.home == CopyAction::kVoid ||
                  plan.replica == CopyAction::kVoid;
         });
}

void GoOn(const Resolution& resolution, const std::set<size_t>& gone,
          RecoveryDecision* decision) {
  decision->kind = gone.empty() ? Kind::kGoOn : Kind::kLoad;
  decision->target = resolution.target();
  resolution.FillActions(&decision->plans);
  for (const size_t part : gone) {
    decision->plans[part].home = CopyAction::kLoad;
  }
  if (!gone.empty()) {
    decision->checkpoint = resolution.base();
    absl::StrAppend(&decision->text, "; ", PartsText(gone),
                    gone.size() == 1 ? " is" : " are",
                    " loaded from the checkpoint of just that");
  } else if (!(resolution.target() == resolution.base())) {
    absl::StrAppend(&decision->text, " by the step that all had prepared");
  }
}

void Rewind(const VersionId& checkpoint, uint64_t epoch,
            RecoveryDecision* decision) {
  decision->kind = Kind::kRewind;
  decision->target = {epoch, checkpoint.version};
  decision->checkpoint = checkpoint;
  for (RecoverPlan& plan : decision->plans) plan.home = CopyAction::kLoad;
  absl::StrAppend(&decision->text, "; all parts are loaded from the checkpoint",
                  " of ", IdText(checkpoint));
}

// How the text begins, and what is missing where something is.
std::string FoundText(const Resolution& resolution,
                      const std::set<size_t>& gone) {
  if (!resolution.any_copy()) return "no copy is left";
  if (!resolution.any_live()) return "all copies are of who missed an epoch";
  std::string text = resolution.Found();
  if (!gone.empty()) {
    absl::StrAppend(&text, ", none of ", PartsText(gone));
  }
  return text;
}

// Why the shards that have to load the chosen checkpoint cannot; "": they can.
// A folder that cannot be listed may hold a newer one. That matters where no
// copy says how far the job was.
std::string WhyNot(const CheckpointChoice& choice,
                   const std::vector<int>& loading, bool looks_everywhere) {
  std::vector<std::string> reasons;
  const std::string missing = MissingText(choice, loading);
  if (!missing.empty()) {
    reasons.push_back(absl::StrCat("checkpoint ", CheckpointText(*choice.id),
                                   " is not complete: ", missing));
  }
  if (!choice.refused.empty()) {
    reasons.push_back(absl::StrCat("checkpoint ", CheckpointText(*choice.id),
                                   " cannot be loaded: ", choice.refused));
  }
  if (looks_everywhere && missing.empty() && !choice.unreadable.empty()) {
    reasons.push_back(choice.unreadable);
  }
  return absl::StrJoin(reasons, "; ");
}

void Wait(const std::string& why, RecoveryDecision* decision) {
  decision->kind = Kind::kWait;
  absl::StrAppend(&decision->text, ", and ", why);
}

void BeginAnew(const Resolution& resolution, const CheckpointChoice& choice,
               RecoveryDecision* decision) {
  decision->kind = resolution.any_copy() ? Kind::kUnseeded : Kind::kNothing;
  absl::StrAppend(&decision->text,
                  choice.ordered ? "; the job begins anew by a person's word"
                                 : " and no checkpoint",
                  ": a Seed is needed");
}

}  // namespace

RecoveryDecision DecideRecovery(const std::vector<ShardInventory>& inventories,
                                bool replicated, uint64_t epoch,
                                const CheckpointChoice& choice) {
  const Resolution resolution(inventories, replicated);
  const std::set<size_t> gone = resolution.Gone();
  const absl::optional<VersionId>& checkpoint = choice.id;
  // A checkpoint that is newer than all copies proves that these are of a past
  // that others have gone on from (P23), also if it cannot be loaded.
  const bool of_the_past = checkpoint.has_value() && !choice.borrowed &&
                           resolution.base() < *checkpoint;
  const bool copies_count =
      resolution.any_live() && !of_the_past && !choice.ordered;
  RecoveryDecision decision;
  decision.plans.resize(inventories.size());
  decision.text = FoundText(resolution, gone);
  if (copies_count && gone.empty()) {
    GoOn(resolution, gone, &decision);
  } else if (copies_count && !choice.borrowed &&
             checkpoint == resolution.base()) {
    const std::string why =
        WhyNot(choice, {gone.begin(), gone.end()}, /*looks_everywhere=*/false);
    if (why.empty()) {
      GoOn(resolution, gone, &decision);
    } else {
      Wait(why, &decision);
    }
  } else {
    // A person who says what is taken says that nothing else is looked for.
    const std::string why =
        WhyNot(choice, {}, /*looks_everywhere=*/!choice.ordered);
    if (!why.empty()) {
      Wait(why, &decision);
    } else if (checkpoint.has_value()) {
      Rewind(*checkpoint, epoch, &decision);
    } else {
      BeginAnew(resolution, choice, &decision);
    }
  }
  decision.fetch =
      decision.target.made != 0 && AnyVoid(decision.plans, replicated);
  const JobFacts facts = NewestFacts(inventories);
  for (RecoverPlan& plan : decision.plans) {
    plan.target = decision.target;
    plan.unseeded = decision.target.made == 0;
    plan.facts = facts;
  }
  return decision;
}

// Who goes on after an epoch has ended, and by which facts: of all that the
// processes report, apart from what becomes of the copies.

std::vector<MemberState> SurvivingMembers(
    const std::vector<ShardInventory>& inventories) {
  std::set<uint64_t> ended;
  for (const ShardInventory& inventory : inventories) {
    ended.insert(inventory.ended_sessions.begin(),
                 inventory.ended_sessions.end());
  }
  std::map<int32_t, MemberState> by_rank;
  for (const ShardInventory& inventory : inventories) {
    for (const MemberState& member : inventory.members) {
      if (ended.count(member.session) != 0) continue;
      MemberState& highest = by_rank[member.rank];
      if (member.session > highest.session) highest = member;
    }
  }
  std::vector<MemberState> members;
  members.reserve(by_rank.size());
  for (auto& [rank, member] : by_rank) members.push_back(std::move(member));
  return members;
}

JobFacts NewestFacts(const std::vector<ShardInventory>& inventories) {
  JobFacts newest;
  for (const ShardInventory& inventory : inventories) {
    if (newest < inventory.facts) newest = inventory.facts;
  }
  return newest;
}

uint64_t HighestSession(const std::vector<ShardInventory>& inventories) {
  uint64_t highest = 0;
  for (const ShardInventory& inventory : inventories) {
    highest = std::max(highest, inventory.highest_session);
    for (const MemberState& member : inventory.members) {
      highest = std::max(highest, member.session);
    }
    for (const uint64_t session : inventory.ended_sessions) {
      highest = std::max(highest, session);
    }
  }
  return highest;
}

}  // namespace agg
