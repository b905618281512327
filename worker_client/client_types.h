// Plain types of the public client: for code that need not know agg_client.h.
#ifndef AGG_WORKER_CLIENT_CLIENT_TYPES_H_
#define AGG_WORKER_CLIENT_CLIENT_TYPES_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "kernels/dtype.h"
#include "proto/shard_plan.h"
#include "proto/tls_options.h"
#include "worker_client/client_event.h"

namespace agg {

struct ClientOptions {
  // Shard 0, "host:port": no http://, IPv6 addresses in brackets.
  std::string coordinator = "127.0.0.1:50051";
  int rank = 0;           // 0..max_workers-1, unique among the job's workers
  bool observer = false;  // pulls only: no lease; rank, manifest are ignored
  // What this worker pushes. The first worker's manifest becomes the job's.
  Manifest manifest;
  std::string client_name;  // for the server's log; empty: "host:pid"

  // Paths of PEM files for TLS to every shard. For those that are "" the
  // environment's AGG_TLS_CA, AGG_TLS_CERTIFICATE, AGG_TLS_KEY and
  // AGG_TLS_SERVER_NAME. None: no TLS.
  TlsOptions tls;
  // A file whose first line is the bearer token that says who this client is,
  // where the job has identities; read anew when it changes. "": the one that
  // AGG_TOKEN_FILE names, if any. The token goes over TLS, and to loopback
  // addresses and Unix sockets.
  std::string token_file;

  // --- Limits. Every call also ends when the job or this session does. ---
  // Time until the coordinator answers and lets this worker in. A worker may
  // start before its server; on_event says what it waits for.
  absl::Duration connect_timeout = absl::Seconds(30);
  // Limit of short calls that wait for no other worker (Leave, Observe).
  absl::Duration call_timeout = absl::Seconds(10);
  // Limit of one push, or of one pull's bytes once its version is published,
  // including pending work of the tensors' devices. It starts again in a new
  // epoch. A round in one trip has it twice: for the devices, and for the trip
  // (a pipelined one has round_timeout besides).
  absl::Duration transfer_timeout = absl::Minutes(10);
  // Limit of waits for other workers: Commit, Wait, and a Pull until its
  // version is published. Waits for a lost process are included. Without a
  // limit these still end when the job finishes, this session ends or
  // recovery_window does.
  absl::Duration round_timeout = absl::InfiniteDuration();
  // Time for which a broken connection is tried again, counted from each loss.
  // Less than the server's reconnect_grace (5 s), when the session may be over.
  absl::Duration reconnect_window = absl::Seconds(3);
  // Time for which the job is waited for when it has lost a process, counted
  // from each loss: calls go on by themselves when it is back. 0: they fail
  // with UNAVAILABLE, and this client is over.
  absl::Duration recovery_window = absl::Minutes(15);

  // Adds what rounding to the job's push_dtype leaves out of a row to the next
  // row (row_encoding.h), for 8 bytes of memory per element; nothing: on for
  // int8, off for bf16 and f16. float32 is not rounded. The residual is in
  // units of the pushed rows: a loss_scale that changes makes the next one
  // wrong by its factor, once.
  absl::optional<bool> error_feedback;

  // --- Performance ---
  // Connections to each shard, 1 or 2: with 2, pulls can overlap pushes.
  int channels_per_shard = 1;
  // Uses the Unix socket of a shard on this host in place of TCP, where the
  // shard has one and it can be reached; decided anew in each epoch of the job.
  bool local_sockets = true;
  // Writes rows into the memory of a shard on this host, and reads versions
  // there, where the shard shares it (P39, P40) and local_sockets is on.
  bool shared_memory = true;
  // Writes tensors in the memory of a CUDA device into that of a shard that
  // computes on the same device, or on one that it reaches (peer access), and
  // reads versions there, where the shard shares it (P47, P48) and
  // shared_memory is on. Else, and for other tensors on devices, the way is by
  // the host's memory.
  bool cuda_rows = true;
  // How many threads share a copy to and from such memory, 1 to 16; the caller
  // is one of them. More than 1 pays where the host has more cores than workers
  // (copy_threads.h): else they take each other's.
  int copy_threads = 1;
  // Lets glibc keep freed memory (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD,
  // M_TOP_PAD, M_ARENA_MAX), which about doubles pull throughput. Off by
  // default because it changes the complete process; settings of malloc in the
  // environment win.
  bool tune_malloc = false;

  // Called on the client's thread or a caller's; must not block, and must not
  // call the client. PrintEvent (client_event.h) writes each event to stderr.
  std::function<void(const ClientEvent&)> on_event;
  // A file of its own that gets a line for each row whose outcome is known, for
  // `agg_report --audit`; "": none. on_event hears if it cannot be written.
  std::string audit_log;
};

// How the job is set up, as the server said at Connect.
struct JobDescription {
  std::string job;         // its name
  std::string rule;        // in effect: "adasum"
  std::string scope;       // "per_tensor" or "global"
  std::string step_scale;  // "none", "adascale"
  // The optimizer's kind, "adamw". With "none" a pull gives the combined
  // gradient in place of parameters.
  std::string optimizer;
  int workers = 0;                  // expected
  std::vector<std::string> shards;  // addresses by ordinal
  // How rows and parameters travel now to and from each shard, by ordinal:
  // "shm", "unix" or "tcp", and "cuda" once a device's tensor was met whose
  // device has the shard's row mapped, until copies there fail. The server's
  // status says the same.
  std::vector<std::string> transports;
  DType push_dtype = DType::kF32;
  DType pull_dtype = DType::kF32;
};

// How pulled parameters travel; they always arrive as float32.
enum class Precision {
  kJob,   // sent in the job's pull_dtype and widened
  kFull,  // sent in float32
};

// How a version is pulled.
struct PullOptions {
  Precision precision = Precision::kJob;
  // Tensors that are needed first, by name, in this order; the others follow in
  // the manifest's order. They come by frames of 4 MiB: small tensors come
  // together. A version that comes in one trip with its round comes in the
  // manifest's order.
  std::vector<std::string> first;
};

// What comes with a worker's row.
struct PushInfo {
  int64_t examples = 1;
  int accumulation = 1;  // micro-batches that the row is the mean of
  // Sum over micro-gradients of ||g||^2, in units of the pushed row. It is of
  // the micro-gradients as they were computed, with error_feedback as without.
  // The row's own norm then has the two residuals in it, which AdaScale takes
  // for noise of the gradient; for int8 they are about 1% of its length.
  absl::optional<double> micro_norm_squared_sum;
  absl::optional<double> loss;  // mean over the row's examples
  double loss_scale = 1;        // the row is this times the gradient
  // Digest of the parameters that the row was computed on, where the worker
  // steps them itself: equal for equal parameters (P49 of proto/README.md), so
  // that the server finds workers whose parameters are others. 0: not said.
  uint32_t parameters_digest = 0;
  // W3C traceparent, for the server's trace of the round; malformed: not sent.
  std::string traceparent;
};

// How a round ended.
struct RoundOutcome {
  // kRewound: the job has gone back to `version`, whose parameters PushPull has
  // pulled; `round` is given up. Or it has gone back while `version` came, of
  // which WaitForTensor had given tensors, and has made it anew. Compute on
  // `version` as after any other round.
  enum class Kind { kApplied, kSkipped, kSeeded, kRewound };
  static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  uint64_t round = 0;
  uint64_t version = 0;  // published by the round
  uint64_t made = 0;     // in this epoch of the job; 0: not known
  Kind kind = Kind::kApplied;
  // This worker's last push of the round is in the result; others do not count.
  bool included = false;
  std::vector<int> ranks;           // of the workers whose rows are in it
  std::vector<int> excluded_ranks;  // not finite, or left out (see message)
  // Places in the manifest of optional tensors that no row of `ranks` had.
  std::vector<uint32_t> absent_tensors;
  // Ranks whose parameters were others than those of most workers, by their
  // parameters_digest; where no majority has the same, all ranks that said one.
  std::vector<int> differing_ranks;
  // Learning rate that was applied. Schedule and step scale are in it.
  double learning_rate = 0;
  // AdaScale's gain: one-worker steps that this round was worth. From 1 to the
  // number of rows, whatever the step scale.
  double gain = 1;
  // Tau: one-worker steps that the rounds were worth. The clock of schedules.
  double tau = 0;
  // Squared norm of Adasum's result over the sum of squared gradient norms: 1
  // where gradients are orthogonal, 1/P where all P are parallel and of one
  // length. Less where they cancel or differ in length; NaN: undefined.
  double orthogonality = kNaN;
  // Mean training loss that the workers sent, by examples. NaN: nobody did.
  double loss = kNaN;
  // Norm of the combined gradient over all tensors, after clipping.
  double combined_norm = kNaN;
  // What was in effect in the round; "": not known.
  std::string rule, scope, step_scale;
  bool finished = false;  // no round follows
  std::string message;    // why skipped, which fallback
};

// What a small reduction beside the model gives (P51): a plain value.
struct Reduction {
  std::vector<double> sums;  // in the order of the values that were given
  std::vector<int> ranks;    // whose values are in them, ascending
  // Workers that were in the job and are not in them: they waited for a round
  // that one in `ranks` had not pushed to yet, or take part from a later one.
  std::vector<int> left_out;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_CLIENT_TYPES_H_
