// Converts between the structs of agg_types.h and the client's; no calls.
#ifndef AGG_WORKER_CLIENT_C_C_STRUCTS_H_
#define AGG_WORKER_CLIENT_C_C_STRUCTS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/shard_plan.h"
#include "server/base/mutex.h"
#include "worker_client/c/agg_types.h"
#include "worker_client/client_types.h"
#include "worker_client/tensor_view.h"

namespace agg {

// What an agg_outcome points to.
struct OutcomeStore {
  RoundOutcome outcome;
  std::vector<int32_t> ranks, excluded_ranks, differing_ranks;
};

// What an agg_job points to.
struct JobStore {
  explicit JobStore(const JobDescription& description);
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;
  const JobDescription job;
  std::vector<const char*> shards, transports;
};

agg_options DefaultOptions();

// INVALID_ARGUMENT that names the field: a size that no version has, a null
// pointer, a time that is negative or not a number. (What they mean is checked
// by Connect.)
absl::StatusOr<ClientOptions> OptionsOf(const agg_options* options);
absl::StatusOr<PushInfo> PushInfoOf(const agg_push_info* info);
absl::StatusOr<std::vector<TensorView>> ViewsOf(const agg_view* views,
                                                size_t count);
absl::StatusOr<std::vector<MutableTensorView>> TargetsOf(
    const agg_target* targets, size_t count);

// Fill in as much as `size` of the caller's struct says; null: nothing. The
// pointers are into the store. INVALID_ARGUMENT: no such size.
absl::Status Fill(const OutcomeStore& store, agg_outcome* outcome);
absl::Status Fill(const JobStore& store, uint64_t num_tensors, agg_job* job);
absl::Status Fill(const agg_state& values, agg_state* state);
absl::Status Fill(const agg_event& values, agg_event* event);
absl::Status Fill(const agg_rule_round& values, agg_rule_round* round);
OutcomeStore StoreOf(RoundOutcome outcome);
// REQUIRES: `spec` outlives the result's use.
agg_spec SpecOf(const TensorSpec& spec);

// Keeps the row of one client where it lies in the shards' memory, and its
// former ones. Views name it by a flag, since a tensor may lie in several
// pieces. Thread-safe.
class RowStore {
 public:
  // Sets what views with in_row mean from now on. Former rows stay, since
  // pushes may still read their pieces: there is a new one only after a
  // recovery.
  void Keep(std::vector<RowView> row);

  // Reads views as ViewsOf does; those with in_row are where the
  // row lies. `tensors`: the tensor of each view, or null for the manifest's
  // order. INVALID_ARGUMENT, besides, that names a view with in_row which no
  // row that is kept has.
  absl::StatusOr<std::vector<TensorView>> ViewsOf(const uint64_t* tensors,
                                                  const agg_view* views,
                                                  size_t count) const;

 private:
  mutable Mutex mutex_;
  std::list<std::vector<RowView>> rows_ ABSL_GUARDED_BY(mutex_);
};

// Fills in the first `capacity` pieces in the manifest's order; returns how
// many there are.
size_t FillPieces(const std::vector<RowView>& row, agg_piece* pieces,
                  size_t capacity);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_C_C_STRUCTS_H_
