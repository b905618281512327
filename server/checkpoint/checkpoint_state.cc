// The choice of a checkpoint, apart from the folders that are listed.
#include "server/checkpoint/checkpoint_state.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace agg {
namespace {

// What all processes together see of one checkpoint.
struct Sum {
  bool manifest = false;
  std::set<int> num_shards;  // several: parts of different K, side by side
};

Sum SumOf(const std::vector<CheckpointListing>& listings,
          const CheckpointId& id) {
  Sum sum;
  for (const CheckpointListing& listing : listings) {
    for (const CheckpointState& state : listing.states) {
      if (!(state.id == id)) continue;
      sum.manifest |= state.manifest;
      if (state.num_shards != 0) sum.num_shards.insert(state.num_shards);
    }
  }
  return sum;
}

std::string ShardText(size_t ordinal, const CheckpointListing& listing) {
  return absl::StrCat("shard ", ordinal,
                      listing.folder.empty()
                          ? std::string()
                          : absl::StrCat(" (", listing.folder, ")"));
}

// The parts of `num_shards` that a shard needs and does not see.
std::vector<int> LackingParts(const CheckpointListing& listing,
                              const CheckpointId& id, int ordinal,
                              int num_shards, bool same_number) {
  std::set<int> lacking;
  for (int part = 0; part < num_shards; ++part) {
    if (!same_number || part == ordinal) lacking.insert(part);
  }
  for (const CheckpointState& state : listing.states) {
    if (!(state.id == id)) continue;
    for (const int part : state.parts) lacking.erase(part);
  }
  return {lacking.begin(), lacking.end()};
}

std::string LackingText(const CheckpointListing& listing,
                        const CheckpointId& id, size_t ordinal,
                        size_t num_listings, const Sum& sum) {
  const std::string who = ShardText(ordinal, listing);
  if (!listing.error.empty()) {
    return absl::StrCat(who, " cannot be read: ", listing.error);
  }
  const bool empty = listing.states.empty();
  const std::string nothing =
      empty ? " has no checkpoint at all, and" : std::string();
  if (sum.num_shards.size() > 1) {
    return absl::StrCat(who, " and others have parts of ",
                        absl::StrJoin(sum.num_shards, " and of "),
                        " shards under one name");
  }
  const bool same_number =
      sum.num_shards.empty() ||
      *sum.num_shards.begin() == static_cast<int>(num_listings);
  const int num_shards =
      same_number ? static_cast<int>(num_listings) : *sum.num_shards.begin();
  const std::vector<int> lacking = LackingParts(
      listing, id, static_cast<int>(ordinal), num_shards, same_number);
  if (!lacking.empty()) {
    return absl::StrCat(
        who, nothing, " lacks ", lacking.size() == 1 ? "part " : "parts ",
        absl::StrJoin(lacking, ", "), " of ", num_shards,
        same_number ? ""
                    : ", all of which each shard needs where the number of "
                      "shards has changed");
  }
  return sum.manifest ? "" : absl::StrCat(who, " lacks manifest.json");
}

}  // namespace

std::string CheckpointText(const CheckpointId& id) {
  return absl::StrCat("version ", id.version, " (", CheckpointFolderName(id),
                      ")");
}

CheckpointChoice NamedCheckpoint(const std::vector<CheckpointListing>& listings,
                                 const CheckpointId& id) {
  CheckpointChoice choice;
  choice.id = id;
  const Sum sum = SumOf(listings, id);
  for (size_t i = 0; i < listings.size(); ++i) {
    choice.missing.push_back(
        LackingText(listings[i], id, i, listings.size(), sum));
  }
  return choice;
}

uint64_t BegunAnew(const std::vector<CheckpointListing>& listings) {
  uint64_t epoch = 0;
  for (const CheckpointListing& listing : listings) {
    epoch = std::max(epoch, listing.begun_anew);
  }
  return epoch;
}

bool NothingSinceBegunAnew(const std::vector<CheckpointListing>& listings) {
  const uint64_t epoch = BegunAnew(listings);
  return epoch != 0 &&
         std::any_of(
             listings.begin(), listings.end(),
             [epoch](const CheckpointListing& listing) {
               return listing.begun_anew == epoch && listing.error.empty() &&
                      std::all_of(listing.states.begin(), listing.states.end(),
                                  [epoch](const CheckpointState& it) {
                                    return it.id.made < epoch;
                                  });
             });
}

std::vector<CheckpointId> SealedCheckpoints(
    const std::vector<CheckpointListing>& listings) {
  std::set<CheckpointId> sealed;
  for (const CheckpointListing& listing : listings) {
    for (const CheckpointState& state : listing.states) {
      if (state.manifest) sealed.insert(state.id);
    }
  }
  return {sealed.rbegin(), sealed.rend()};
}

std::vector<CheckpointId> CompleteCheckpoints(
    const std::vector<CheckpointListing>& listings) {
  std::vector<CheckpointId> complete;
  for (const CheckpointId& id : SealedCheckpoints(listings)) {
    if (MissingText(NamedCheckpoint(listings, id), {}).empty()) {
      complete.push_back(id);
    }
  }
  return complete;
}

CheckpointChoice ChooseCheckpoint(
    const std::vector<CheckpointListing>& listings,
    const absl::optional<CheckpointId>& known) {
  absl::optional<CheckpointId> newest = known;
  const std::vector<CheckpointId> sealed = SealedCheckpoints(listings);
  if (!sealed.empty() && (!newest.has_value() || *newest < sealed.front())) {
    newest = sealed.front();
  }
  CheckpointChoice choice;
  if (newest.has_value()) choice = NamedCheckpoint(listings, *newest);
  std::vector<std::string> unreadable;
  for (size_t i = 0; i < listings.size(); ++i) {
    if (listings[i].error.empty()) continue;
    unreadable.push_back(absl::StrCat(ShardText(i, listings[i]),
                                      " cannot be read: ", listings[i].error));
  }
  choice.unreadable = absl::StrJoin(unreadable, "; ");
  return choice;
}

std::string MissingText(const CheckpointChoice& choice,
                        const std::vector<int>& shards) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < choice.missing.size(); ++i) {
    const bool asked =
        shards.empty() ||
        std::count(shards.begin(), shards.end(), static_cast<int>(i)) != 0;
    if (asked && !choice.missing[i].empty()) texts.push_back(choice.missing[i]);
  }
  return absl::StrJoin(texts, "; ");
}

}  // namespace agg
