// The table of agg_server's flags, and the ordinal that a StatefulSet's host
// name ends with.
#include "server/config/command_line.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/flags.h"
#include "server/base/status_macros.h"
#include "server/base/version.h"

namespace agg {
namespace {

FlagValue PortValue(std::optional<int>* out) {
  return NumberValue(0, 65535, "0 (any) to 65535", out);
}

FlagValue LevelValue(LogLevel* out) {
  return {"debug, info, warning, error",
          [out](const std::string& text) { return ParseLogLevel(text, out); }};
}

FlagValue FormatValue(LogFormat* out) {
  return {"text, json",
          [out](const std::string& text) { return ParseLogFormat(text, out); }};
}

Program AggServer(CommandLine* line) {
  Program program;
  program.name = "agg_server";
  program.summary =
      "agg_server: one shard of a job of adaptive gradient aggregation.";
  program.version = absl::StrCat("agg_server ", kVersion, "\n");
  program.flags = {
      {"--config", "PATH",
       "the job's configuration (proto/config.proto); - is stdin",
       TextValue(&line->config)},
      {"--shard", "ORDINAL|auto",
       "this process's ordinal, or auto: from the host's name",
       TextValue(&line->shard)},
      {"--port", "PORT", "instead of the configured one; 0 is any",
       PortValue(&line->port)},
      {"--port_file", "PATH", "where to write the port once it is listened on",
       TextValue(&line->port_file)},
      {"--bind", "ADDRESS", "address to listen on; default: loopback",
       HostValue(&line->bind)},
      {"--metrics_port", "PORT", "serve /metrics there; 0 is any",
       PortValue(&line->metrics_port)},
      {"--metrics_port_file", "PATH", "where to write that port",
       TextValue(&line->metrics_port_file)},
      {"--admin", "", "serve aggctl's calls on the port, too; default true",
       SwitchValue(&line->admin)},
      {"--exit_with_stdin", "",
       "drain when standard input ends: with the process that holds its pipe",
       SwitchValue(&line->exit_with_stdin)},
      {"--validate", "", "check the configuration and exit",
       SwitchValue(&line->validate)},
      {"--print_config", "",
       "print the configuration with all defaults and exit",
       SwitchValue(&line->print_config)},
      {"--log_level", "debug|info|warning|error", "default: info",
       LevelValue(&line->log_level)},
      {"--log_format", "text|json",
       "lines of the log for people, or a JSON object each; default: text",
       FormatValue(&line->log_format)},
      {"--drain_seconds", "SECONDS",
       "time to finish after a stop signal; default 10",
       SecondsValue(0.0, &line->drain)},
  };
  return program;
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(
    const std::vector<std::string>& arguments) {
  CommandLine line;
  AGG_ASSIGN_OR_RETURN(const ParsedFlags parsed,
                       ParseFlags(AggServer(&line), arguments));
  line.text = parsed.text;
  if (line.exit_with_stdin && line.config == "-") {
    return absl::InvalidArgumentError(
        "--exit_with_stdin is true; allowed: false with --config=-, after "
        "which standard input has ended");
  }
  return line;
}

absl::StatusOr<int> ShardOrdinal(absl::string_view shard,
                                 absl::string_view host_name, int num_shards) {
  absl::string_view digits = shard;
  std::string what = absl::StrCat("--shard is \"", shard, "\"");
  if (shard.empty() && num_shards == 1) return 0;
  if (shard == "auto") {
    size_t begin = host_name.size();
    while (begin > 0 && absl::ascii_isdigit(host_name[begin - 1])) --begin;
    digits = host_name.substr(begin);
    absl::StrAppend(&what, " on host \"", host_name, "\"");
  }
  int ordinal;
  if (!absl::SimpleAtoi(digits, &ordinal) || ordinal < 0 ||
      ordinal >= num_shards) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, "; allowed: 0 to ", num_shards - 1,
                     ", or auto on a host whose name ends in such a number"));
  }
  return ordinal;
}

}  // namespace agg
