// Which checkpoints there are, and which one a job goes on from: pure, so that
// the coordinator decides by what all processes have reported.
#ifndef AGG_SERVER_CHECKPOINT_CHECKPOINT_STATE_H_
#define AGG_SERVER_CHECKPOINT_CHECKPOINT_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "server/checkpoint/checkpoint_manifest.h"

namespace agg {

// What one process sees of a checkpoint.
struct CheckpointState {
  CheckpointId id;
  int num_shards = 0;      // by the names of the parts; 0: there is none
  std::vector<int> parts;  // ordinals, ascending
  bool manifest = false;
};

// What one shard sees in its folder, by the files' names.
struct CheckpointListing {
  std::string folder;  // PATH/JOB on its host; "": it has none, or is not known
  std::string error;   // why it could not be listed; "": it was
  std::vector<CheckpointState> states;
  // The last epoch in which the job began anew by an operator's word, as a file
  // in the folder says: what was made before counts for nothing. 0: none.
  uint64_t begun_anew = 0;
};

// The one that a job may go on from, before anything of it is read.
struct CheckpointChoice {
  // The newest that somebody has sealed, whether it is complete or not; nothing
  // if nobody has seen one.
  absl::optional<CheckpointId> id;
  // Reasons, by ordinal, why that shard cannot load it; "": it can. An empty
  // list: all can.
  std::vector<std::string> missing;
  // Folders that could not be listed, so that there may be a newer one.
  std::string unreadable;
  // Why it could not be loaded when it was tried; "": it was not.
  std::string refused;
  // True if a person has named it (or, without `id`, has said that the job
  // begins anew): it holds whatever the copies are.
  bool ordered = false;
  // True if it is another job's: it says nothing of this one's copies.
  bool borrowed = false;
};

// The newest sealed one, by what all shards see. It is complete if each shard
// can load it: one process sees the manifest, and each shard sees the part of
// its own ordinal in its own folder, or, if the number of shards has changed,
// all parts. An incomplete one is chosen all the same, and never an older one
// in its place: that is a person's word (P29). `known`: the newest that this
// process has sealed or loaded, which counts also where nobody sees it.
// `listings`: by ordinal.
CheckpointChoice ChooseCheckpoint(
    const std::vector<CheckpointListing>& listings,
    const absl::optional<CheckpointId>& known);

// Judges a checkpoint that is named, as ChooseCheckpoint judges the newest one.
CheckpointChoice NamedCheckpoint(const std::vector<CheckpointListing>& listings,
                                 const CheckpointId& id);

// The newest that any folder has: the word was answered when one had it.
uint64_t BegunAnew(const std::vector<CheckpointListing>& listings);
// Whether a folder that has that word shows that no checkpoint was sealed
// since, in whatever folder: nothing is sealed before each shard has written
// its part, and this one has none.
bool NothingSinceBegunAnew(const std::vector<CheckpointListing>& listings);

// Returns all checkpoints that are sealed, newest first.
std::vector<CheckpointId> SealedCheckpoints(
    const std::vector<CheckpointListing>& listings);
// Returns those of the sealed ones that each shard can load.
std::vector<CheckpointId> CompleteCheckpoints(
    const std::vector<CheckpointListing>& listings);

// "version 45 (1763800000000000-45)".
std::string CheckpointText(const CheckpointId& id);
// What is missing where, for people: "shard 1 (/ckpt/job) lacks part 1 of 2;
// ..". `shards`: who has to load it; empty: all. "": nothing is missing.
std::string MissingText(const CheckpointChoice& choice,
                        const std::vector<int>& shards);

}  // namespace agg

#endif  // AGG_SERVER_CHECKPOINT_CHECKPOINT_STATE_H_
