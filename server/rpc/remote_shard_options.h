// How a shard in another process is called: apart from the class for who only
// fills it in.
#ifndef AGG_SERVER_RPC_REMOTE_SHARD_OPTIONS_H_
#define AGG_SERVER_RPC_REMOTE_SHARD_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "proto/tls_options.h"
#include "server/base/clock.h"
#include "server/base/tick_clock.h"
#include "server/rpc/phase_limits.h"

namespace agg {

struct RemoteShardOptions {
  int32_t ordinal = 1;
  int32_t num_shards = 2;
  std::string address;            // "host:port"
  TlsOptions tls = {};            // to call it with
  std::string fingerprint;        // of the config; the shard must have the same
  uint64_t coordinator_life = 0;  // random bits of this process
  std::string coordinator;        // its address, for messages
  // Deadlines of Promise and the first AttachReply, and of SetSession,
  // SetFacts, GetManifest and ForgetManifest. What may take long has none
  // (SetManifest, ReserveRow, RunPhase): the stream that Attach holds open ends
  // when the shard is gone (keepalive pings every 10 s, answered within 5 s).
  absl::Duration attach_timeout = absl::Seconds(5);
  absl::Duration call_timeout = absl::Seconds(30);
  // Limit of checkpoint_progress and seal: a disk that hangs fails the
  // checkpoint.
  absl::Duration file_timeout = absl::Minutes(10);
  int64_t max_reply_bytes = kMaxPhaseBytes;  // of an answer to a phase, kept
  // Measures how long a broken connection is waited for (P24).
  const Clock* clock = TickClock::Real();
  // What this process presents itself with, asked for each call (P45); null:
  // nothing.
  std::function<std::string()> token = {};
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_REMOTE_SHARD_OPTIONS_H_
