// The command line of aggctl: its commands and their flags, as one table from
// which the parser, the help and the completion of shells are made.
#ifndef AGG_WORKER_CLIENT_TOOLS_AGGCTL_FLAGS_H_
#define AGG_WORKER_CLIENT_TOOLS_AGGCTL_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "proto/tls_options.h"
#include "server/base/flags.h"

namespace agg {

// How aggctl ends.
enum AggctlExit {
  kAggctlOk = 0,
  kAggctlUsage = 1,        // a bad command line: nothing was sent
  kAggctlRefused = 2,      // the server answered with an error
  kAggctlUnreachable = 3,  // nobody answered at --coordinator
  kAggctlTimedOut = 4,     // connected, but no answer within --timeout
  kAggctlLocal = 5,   // the answer could not be written here, or a token read
  kAggctlUnwell = 6,  // doctor has found something wrong
};

struct AggctlFlags {
  std::string command;
  std::string argument;  // the command's own: a file, a level, a rule
  std::string text;      // of help or --version, to print instead; "": run
  std::string coordinator = "127.0.0.1:50051";
  TlsOptions tls;
  bool json = false;
  absl::Duration timeout = absl::Seconds(5);
  std::string token_file;  // "": AGG_TOKEN_FILE
  // rounds, top; audit
  int last = 10;
  bool follow = false;
  absl::Duration interval = absl::Seconds(1);
  int count = 0;  // refreshes; 0: no end
  // set-rule: what is to change
  absl::optional<std::string> rule, scope, step_scale;
  absl::optional<std::string> adacons_rescale, adacons_unsort;
  absl::optional<double> learning_rate, adacons_beta;
  absl::optional<int32_t> krum_byzantine_workers, krum_selected;
  absl::optional<bool> force_step_scale;
  bool dry_run = false;  // restore, resume
  // doctor
  std::string config;      // "": ask the job
  int64_t parameters = 0;  // of the model; 0: not known
  // evict
  absl::optional<int32_t> rank;
  std::string reason;
  // checkpoint
  absl::Duration wait = absl::Minutes(10);
  // pull
  absl::optional<uint64_t> version;
};

// The table. Its flags set `*out`, which must outlive it.
Program AggctlProgram(AggctlFlags* out);

// "[--version] COMMAND [argument] [flags]"; `help [COMMAND]` is `[COMMAND]
// --help`. `environment` is AGG_COORDINATOR; null or empty: not set.
// INVALID_ARGUMENT in one line that names what is wrong and what is allowed.
// Names of rules and the like go to the job as they are: it says which it
// knows. Help comes before other errors.
absl::StatusOr<AggctlFlags> ParseAggctlFlags(
    const std::vector<std::string>& arguments, const char* environment);

// Makes from AggctlProgram a script for "bash", "zsh" or "fish" that completes
// commands, each one's flags and arguments, and the values of those that have a
// few; its first line says how to load it. "" for another shell. Needs the
// shell alone.
std::string AggctlCompletion(absl::string_view shell);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_AGGCTL_FLAGS_H_
