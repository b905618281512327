// The command line of aggctl, from one table of commands and one of flags.
#ifndef AGG_WORKER_CLIENT_TOOLS_AGGCTL_FLAGS_H_
#define AGG_WORKER_CLIENT_TOOLS_AGGCTL_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"

namespace agg {

// How aggctl ends.
enum AggctlExit {
  kAggctlOk = 0,
  kAggctlUsage = 1,        // a bad command line: nothing was sent
  kAggctlRefused = 2,      // the server answered with an error
  kAggctlUnreachable = 3,  // nobody answered at --coordinator
  kAggctlTimedOut = 4,     // connected, but no answer within --timeout
  kAggctlLocal = 5,        // the answer could not be written here
};

struct AggctlFlags {
  std::string command;
  std::string argument;  // the command's own: a file, a level, a rule
  bool help = false;
  bool client_version = false;
  std::string coordinator = "127.0.0.1:50051";
  bool json = false;
  absl::Duration timeout = absl::Seconds(5);
  // rounds, top
  int last = 10;
  bool follow = false;
  absl::Duration interval = absl::Seconds(1);
  int count = 0;  // refreshes; 0: no end
  // set-rule: what is to change
  absl::optional<std::string> rule, scope, step_scale, adacons_rescale;
  absl::optional<double> learning_rate, adacons_beta;
  absl::optional<bool> force_step_scale;
  // evict
  absl::optional<int32_t> rank;
  std::string reason;
  // pull
  absl::optional<uint64_t> version;
};

struct AggctlCommand {
  absl::string_view name;
  absl::string_view summary;
  // Beside those of every command.
  std::vector<absl::string_view> flags;
  absl::string_view argument;  // its name; empty: takes none
  bool argument_required = false;
  std::vector<absl::string_view> argument_values = {};  // for completion
};
const std::vector<AggctlCommand>& AggctlCommands();

struct AggctlFlag {
  absl::string_view name;
  absl::string_view value;  // its name; empty: a switch
  absl::string_view help;
  std::vector<absl::string_view> values;  // for completion
  bool everywhere = false;                // of every command
};
std::vector<AggctlFlag> AggctlFlagList();

// "[flags] COMMAND [flags] [argument]", flags as --name=value or --name value.
// `environment` is AGG_COORDINATOR, null or empty: not set. INVALID_ARGUMENT in
// one line that names what is wrong and what is allowed. Help comes before
// other errors.
absl::StatusOr<AggctlFlags> ParseAggctlFlags(
    const std::vector<std::string>& arguments, const char* environment);

// Of all commands, or of one.
std::string AggctlUsage(absl::string_view command);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_AGGCTL_FLAGS_H_
