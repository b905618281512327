// The client of an agg_server job, for training loops and tools.
//
//   agg::ClientOptions options;
//   options.rank = 0;
//   options.manifest = {{{"weights", {64, 10}}, {"bias", {10}}}};
//   auto client = agg::AggClient::Connect(options);
//   (*client)->SeedOrPull(parameters);  // everybody starts from the same
//   while (!(*client)->finished()) {
//     ComputeGradient(parameters, gradient);
//     auto outcome = (*client)->PushPull(gradient, {}, parameters);
//   }
//
// examples/minimal_worker.cc is a complete program. Apart from client_core.h:
// a training loop sees neither gRPC nor protobuf.
#ifndef AGG_WORKER_CLIENT_AGG_CLIENT_H_
#define AGG_WORKER_CLIENT_AGG_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker_client/client_types.h"
#include "worker_client/tensor_view.h"

namespace agg {

class ClientCore;

// One worker, or one observer, of one job. A thread of its own renews the
// lease; everything else runs on the caller's. Prints nothing, never aborts the
// process. Errors name the shard that they are about, if any, and what to do.
// Thread-safe: pushes take turns, other calls run at the same time.
//
// When the job loses a process, calls wait until it is back and go on, at most
// for recovery_window from each loss; on_event says for what they wait. A job
// that had to go back to an earlier version says so: RoundOutcome::Kind.
// Derive each batch from version(), and the same rounds are done again.
//
// Codes that any call may return:
//   UNAVAILABLE          a shard is lost or out of reach, or drains, and was
//                        not back within recovery_window (broken connections
//                        are tried again within reconnect_window): the job is
//                        over for this client
//   ABORTED              superseded by another session of the rank, or evicted;
//                        with recovery_window 0: a new epoch has begun
//   NOT_FOUND            with recovery_window 0: the lease ran out; Connect
//                        again
//   DEADLINE_EXCEEDED    a limit of ClientOptions; the call may be repeated
//   FAILED_PRECONDITION  not now: says why (an observer pushes, the job is
//                        finished, the round is another one, the job has gone
//                        back: Pull the version that is named) or "Seed again":
//                        it has lost its parameters and has no checkpoint
//   INVALID_ARGUMENT     views that do not fit the manifest
class AggClient {
 public:
  // Joins the job; waits up to connect_timeout to be let in, and says through
  // on_event for what. Also INVALID_ARGUMENT for a bad option, and for another
  // manifest than the job's, with the first tensor that differs.
  static absl::StatusOr<std::unique_ptr<AggClient>> Connect(
      ClientOptions options);

  // Leaves, in bounded time (call_timeout).
  ~AggClient();

  // Publishes float32 parameters as version 0. ALREADY_EXISTS: somebody else
  // did; pull.
  absl::StatusOr<RoundOutcome> Seed(absl::Span<const TensorView> parameters);
  // Seeds with a file of agg_pull's. Also ReadNpz's errors, and
  // INVALID_ARGUMENT for a shape that differs from the manifest's.
  absl::StatusOr<RoundOutcome> SeedFile(const std::string& npz_path);

  // Seeds if this worker has, or gets, the seed role; else waits for the
  // version of its first round and pulls it over `parameters`. The seeder, too,
  // ends with the bytes that the others get (rounded to the job's pull_dtype).
  // Also after "Seed again".
  absl::Status SeedOrPull(absl::Span<const MutableTensorView> parameters);

  // Sends a row to all shards and waits for their acknowledgements. Its base
  // is version(). Another Push of the same round replaces this one, unless the
  // round has closed meanwhile: a row is one gradient or nothing. The views'
  // memory must stay unmodified until Push returns, and is not read after that.
  absl::Status Push(absl::Span<const TensorView> gradient);

  // Ends the last push of this round; waits for the outcome. Again after
  // another Push: replaces the former one until the round closes. DATA_LOSS: a
  // shard has lost the row that it had acknowledged, and the client keeps no
  // copy: Push again (any gradient), and Commit.
  absl::StatusOr<RoundOutcome> Commit(const PushInfo& info);

  // Copies exactly one version over `parameters` (not to be touched meanwhile;
  // undefined after an error) and sets version(). Waits up to round_timeout for
  // the version, then up to transfer_timeout for its bytes.
  // FAILED_PRECONDITION: the job has finished before it; OUT_OF_RANGE: it is
  // gone.
  absl::Status Pull(uint64_t version,
                    absl::Span<const MutableTensorView> parameters,
                    Precision precision = Precision::kJob);
  // The newest version that all shards have published; returns it.
  absl::StatusOr<uint64_t> PullLatest(
      absl::Span<const MutableTensorView> parameters,
      Precision precision = Precision::kJob);

  // The newest version; FAILED_PRECONDITION while nobody has seeded.
  absl::StatusOr<uint64_t> LatestVersion();

  // Push, Commit and Pull of the new version: a complete round. A worker that
  // comes too late gets the newest version and included = false; so does one
  // that repeats this after its first gradient was used, and the Pull failed,
  // or whose lease ran out. kRewound: `parameters` are those of the outcome's
  // version, which is older than or other than this worker's was.
  absl::StatusOr<RoundOutcome> PushPull(
      absl::Span<const TensorView> gradient, const PushInfo& info,
      absl::Span<const MutableTensorView> parameters);

  // Waits for the round that publishes `version` >= 1. The last 16 are kept.
  absl::StatusOr<RoundOutcome> Wait(uint64_t version);

  // Ends the session; calls in progress and later ones fail with CANCELLED.
  absl::Status Leave();

  uint64_t version() const;  // last pulled, or seeded
  // 0 for observers; another one if its lease ran out.
  uint64_t session() const;
  bool seed_role() const;
  bool finished() const;
  const Manifest& manifest() const;  // the job's
  const JobDescription& job() const;

 private:
  explicit AggClient(std::unique_ptr<ClientCore> core);
  const std::unique_ptr<ClientCore> core_;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_AGG_CLIENT_H_
