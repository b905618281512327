// The flags of agg_server. Only what one process must know before it reads its
// job's configuration is a flag; the rest is in proto/config.proto.
#ifndef AGG_SERVER_CONFIG_COMMAND_LINE_H_
#define AGG_SERVER_CONFIG_COMMAND_LINE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/log_record.h"

namespace agg {

struct CommandLine {
  std::string config;       // path; "-": standard input
  std::string shard;        // ordinal or "auto"; "": not given
  std::optional<int> port;  // 0: any
  std::string port_file;
  std::string bind;  // "": loopback
  std::optional<int> metrics_port;
  std::string metrics_port_file;
  bool admin = true;
  bool exit_with_stdin = false;
  bool validate = false;
  bool print_config = false;
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
  absl::Duration drain = absl::Seconds(10);
  std::string text;  // of --help or --version, to print instead; "": run
};

// INVALID_ARGUMENT in one line that names the flag, its value and what is
// allowed. server/base/flags.h says how flags are spelled.
absl::StatusOr<CommandLine> ParseCommandLine(
    const std::vector<std::string>& arguments);

// The ordinal that --shard asks for: "" is 0 if there is one shard only,
// "auto" the number at the end of the host's name (a StatefulSet's pod).
// INVALID_ARGUMENT with what is allowed.
absl::StatusOr<int> ShardOrdinal(absl::string_view shard,
                                 absl::string_view host_name, int num_shards);

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_COMMAND_LINE_H_
