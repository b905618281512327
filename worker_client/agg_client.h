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
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker_client/client_types.h"
#include "worker_client/operation.h"
#include "worker_client/tensor_view.h"
#include "worker_client/version_view.h"

namespace agg {

class ClientCore;
class ClientOperations;

// One worker, or one observer, of one job. A thread of its own renews the
// lease; everything else runs on the caller's. Prints nothing, never aborts the
// process. Errors name the shard that they are about, if any, and what to do.
// Thread-safe: pushes take turns, other calls run at the same time. The calls
// that block do their work on the caller's thread.
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
//   INTERNAL             an answer that makes no sense (client and server are
//                        of different releases), or a call of the CUDA driver
//                        that failed, by its name; the next one may work
//
// The caller's tensors may be in the memory of CUDA devices (tensor_view.h).
class AggClient {
 public:
  // Joins the job; waits up to connect_timeout to be let in, and says through
  // on_event for what. Also INVALID_ARGUMENT for a bad option, and for another
  // manifest than the job's, with the first tensor that differs;
  // FAILED_PRECONDITION in a fork of a process that has connected a client.
  static absl::StatusOr<std::unique_ptr<AggClient>> Connect(
      ClientOptions options);

  // Leaves, in bounded time (call_timeout). Operations that are open end with
  // CANCELLED before it returns; their handles stay good. In a forked child it
  // does nothing, and frees nothing: the session and its threads are the
  // parent's.
  ~AggClient();

  // Publishes float32 parameters as version 0. ALREADY_EXISTS: somebody else
  // did; pull.
  absl::StatusOr<RoundOutcome> Seed(absl::Span<const TensorView> parameters);
  // Seeds with a file of agg_pull's. Also ReadNpz's errors, and
  // INVALID_ARGUMENT for a shape that differs from the manifest's.
  absl::StatusOr<RoundOutcome> SeedFile(const std::string& npz_path);

  // Seeds if this worker has, or gets, the seed role; else waits for the
  // version of its first round and pulls it over `parameters`. The seeder, too,
  // ends with the bytes that the others get (rounded to the job's pull_dtype;
  // float32 with the optimizer "none", whose workers step them themselves).
  // Also after "Seed again".
  absl::Status SeedOrPull(absl::Span<const MutableTensorView> parameters);

  // Sends a row to all shards and waits for their acknowledgements. Its base
  // is version(). Another Push of the same round replaces this one, unless the
  // round has closed meanwhile: a row is one gradient or nothing. The views'
  // memory must stay unmodified until Push returns, and is not read after that.
  absl::Status Push(absl::Span<const TensorView> gradient);

  // Returns memory of the shards in which to compute the gradient, one view per
  // tensor in manifest order: a Push of just these views copies nothing. They
  // may be written from the version's Pull to its Push, not between a Push and
  // the outcome of its round, and hold what was written until then. Valid as
  // long as the client; when a shard has come back, or the session is another
  // one, they are memory like any other, and this gives those that copy
  // nothing. FAILED_PRECONDITION: a shard shares no memory with this worker,
  // rows are not float32, or a tensor is not in one piece (named).
  absl::StatusOr<std::vector<MutableTensorView>> RowTensors();
  // Returns such memory for rows of any push dtype but int8: the gradient is
  // then computed as elements of that dtype. Tensors may be in several pieces
  // (large ones on several shards): Push takes the view() of each.
  // FAILED_PRECONDITION: a shard shares no row, or rows are int8, which Push
  // rounds from memory of the caller's straight to where they lie.
  absl::StatusOr<std::vector<RowView>> RowViews();

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
  // Pulls without a copy, in full precision: the version where it lies in the
  // shards' memory, which they keep as long as the view lives, at most for
  // transfer_timeout. FAILED_PRECONDITION, besides: a shard shares no memory
  // with this client, or a tensor is not in one piece (named).
  absl::StatusOr<std::unique_ptr<VersionView>> PullView(uint64_t version);
  // Pulls the newest version that all shards have published; returns it.
  absl::StatusOr<uint64_t> PullLatest(
      absl::Span<const MutableTensorView> parameters,
      Precision precision = Precision::kJob);

  // Returns the newest version; FAILED_PRECONDITION while nobody has seeded.
  absl::StatusOr<uint64_t> LatestVersion();

  // Push, Commit and Pull of the new version: a complete round. A worker that
  // comes too late gets the newest version and included = false; so does one
  // that repeats this after its first gradient was used, and the Pull failed,
  // or whose lease ran out. kRewound: `parameters` are those of the outcome's
  // version, which is older than or other than this worker's was.
  absl::StatusOr<RoundOutcome> PushPull(
      absl::Span<const TensorView> gradient, const PushInfo& info,
      absl::Span<const MutableTensorView> parameters);
  // PushPull that another thread can Cancel: the one that waits for its Outcome
  // runs it, and somebody has to.
  RoundOperation MakeRound(absl::Span<const TensorView> gradient,
                           const PushInfo& info,
                           absl::Span<const MutableTensorView> parameters);
  // Goes on, on a thread of the client, with a round that was cancelled and is
  // Done(), as if it had not been: the same row, whose memory has the same
  // values, into the same parameters; what their devices were given since is
  // waited for. The row counts once, whether or not the shards had it by then,
  // and the outcome is its own. FAILED_PRECONDITION: it was not cancelled, or
  // is no round.
  RoundOperation ResumeRound(const RoundOperation& cancelled);

  // --- The same as operations: they go on while the caller computes, on
  // threads of the client, and survive the loss of a process as calls do. What
  // is wrong is told by the operation. At most 64 may be open.

  // Gives tensors of the row of version(), in any order and in groups, each as
  // soon as it is ready: complete slices go out at once. All names are given,
  // unless it is the whole row. All calls for a row return the same operation,
  // which is done when all shards have acknowledged the row (who waits for an
  // incomplete row waits for who gives the rest); its Cancel drops
  // the row, and the next StartPush begins another one. The row ends when it
  // has every tensor, and with StartCommit and StartRound; optional ones that
  // it lacks then are absent. INVALID_ARGUMENT, and the row is as before: a
  // tensor that it has. After its end a StartPush begins another gradient of
  // the round, in its place, and so do Push, PushPull and a new version().
  Operation StartPush(absl::Span<const TensorView> gradient);
  // Ends the row that StartPush began, and commits it when the shards have it;
  // without such a row, the last push. Its Cancel is the row's, too.
  RoundOperation StartCommit(const PushInfo& info);
  PullOperation StartPull(uint64_t version,
                          absl::Span<const MutableTensorView> parameters,
                          const PullOptions& options = {});
  // Starts a PushPull of the row that StartPush began and these tensors, which
  // may be none. All tensors of the row are the client's until this is done.
  RoundOperation StartRound(absl::Span<const TensorView> gradient,
                            const PushInfo& info,
                            absl::Span<const MutableTensorView> parameters,
                            const PullOptions& options = {});

  // Waits for the round that publishes `version` >= 1. The last 16 are kept.
  absl::StatusOr<RoundOutcome> Wait(uint64_t version);

  // Returns the sums over all workers of a few values beside the model, an
  // accuracy say (P51), when every worker that is in has called it; one that
  // leaves or is lost is not waited for. `what`: names, shapes, types and
  // operation in words, equal on all workers, at most 4,096 bytes; at most
  // 8,192 values. All get the same bytes; those that were made survive the loss
  // of a process. Waits up to round_timeout; on_event says for whom. The end of
  // the wait, and a cancellation, take the values back; if the sums were made
  // meanwhile, these are returned. INVALID_ARGUMENT: a bound; another worker
  // waits for something else (named).
  absl::StatusOr<Reduction> Reduce(const std::string& what,
                                   absl::Span<const double> values);
  // Starts it as an operation; *made is set when it is done with OK.
  Operation StartReduce(const std::string& what,
                        absl::Span<const double> values,
                        std::shared_ptr<Reduction> made);

  // Ends the session; calls in progress and later ones fail with CANCELLED.
  // FAILED_PRECONDITION, and no effect, in a forked child.
  absl::Status Leave();

  uint64_t version() const;  // last pulled, or seeded
  // Number of the session: 0 for observers; another one if its lease ran out.
  uint64_t session() const;
  bool seed_role() const;
  bool finished() const;
  const Manifest& manifest() const;  // the job's
  JobDescription job() const;

 private:
  explicit AggClient(std::unique_ptr<ClientCore> core);
  RoundOperation Handle(std::shared_ptr<OperationState> state) const;
  bool forked() const;

  const int64_t process_;  // that connected
  std::unique_ptr<ClientCore> core_;
  std::unique_ptr<ClientOperations> operations_;  // end before the core
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_AGG_CLIENT_H_
