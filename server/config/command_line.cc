#include "server/config/command_line.h"

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace agg {
namespace {

struct Flag {
  absl::string_view name;
  absl::string_view help;
  bool is_bool;
  // False if the value is not allowed.
  std::function<bool(const std::string&, CommandLine*)> set;
  absl::string_view allowed;
};

bool SetBool(const std::string& value, bool* out) {
  return absl::SimpleAtob(value, out);
}

bool SetPort(const std::string& value, std::optional<int>* out) {
  int port;
  if (!absl::SimpleAtoi(value, &port) || port < 0 || port > 65535) return false;
  *out = port;
  return true;
}

bool SetText(const std::string& value, std::string* out) {
  *out = value;
  return !value.empty();
}

bool SetLevel(const std::string& value, LogLevel* out) {
  return ParseLogLevel(value, out);
}

bool SetDrain(const std::string& value, absl::Duration* out) {
  double seconds;
  if (!absl::SimpleAtod(value, &seconds)) return false;
  if (!(seconds >= 0.0 && seconds <= 86400.0)) return false;
  *out = absl::Seconds(seconds);
  return true;
}

constexpr absl::string_view kPorts = "0 (any) to 65535";
constexpr absl::string_view kBools = "true, false";
constexpr absl::string_view kTexts = "not empty";

using Value = const std::string&;
using Line = CommandLine*;

const std::vector<Flag>& Flags() {
  static const auto* const flags = new std::vector<Flag>{
      {"config", "the job's configuration (proto/config.proto); - is stdin",
       false, [](Value v, Line l) { return SetText(v, &l->config); }, kTexts},
      {"shard", "this process's ordinal, or auto: from the host's name", false,
       [](Value v, Line l) { return SetText(v, &l->shard); }, kTexts},
      {"port", "instead of the configured one; 0 is any", false,
       [](Value v, Line l) { return SetPort(v, &l->port); }, kPorts},
      {"port_file", "where to write the port once it is listened on", false,
       [](Value v, Line l) { return SetText(v, &l->port_file); }, kTexts},
      {"bind", "address to listen on; default: loopback", false,
       [](Value v, Line l) { return SetText(v, &l->bind); }, kTexts},
      {"metrics_port", "serve /metrics there; 0 is any", false,
       [](Value v, Line l) { return SetPort(v, &l->metrics_port); }, kPorts},
      {"metrics_port_file", "where to write that port", false,
       [](Value v, Line l) { return SetText(v, &l->metrics_port_file); },
       kTexts},
      {"admin", "serve aggctl's calls on the port, too; default true", true,
       [](Value v, Line l) { return SetBool(v, &l->admin); }, kBools},
      {"validate", "check the configuration and exit", true,
       [](Value v, Line l) { return SetBool(v, &l->validate); }, kBools},
      {"print_config", "print the configuration with all defaults and exit",
       true, [](Value v, Line l) { return SetBool(v, &l->print_config); },
       kBools},
      {"log_level", "debug, info (default), warning or error", false,
       [](Value v, Line l) { return SetLevel(v, &l->log_level); },
       "debug, info, warning, error"},
      {"drain_seconds", "time to finish after SIGTERM; default 10", false,
       [](Value v, Line l) { return SetDrain(v, &l->drain); }, "0 to 86400"},
      {"version", "print the version and exit", true,
       [](Value v, Line l) { return SetBool(v, &l->version); }, kBools},
      {"help", "print this and exit", true,
       [](Value v, Line l) { return SetBool(v, &l->help); }, kBools},
  };
  return *flags;
}

const Flag* FindFlag(absl::string_view name) {
  for (const Flag& flag : Flags()) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(
    const std::vector<std::string>& arguments) {
  CommandLine line;
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::string_view name = arguments[i];
    if (!absl::ConsumePrefix(&name, "--") || name.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "unexpected argument \"", arguments[i], "\"; allowed: flags only"));
    }
    const size_t equals = name.find('=');
    const Flag* flag = FindFlag(name.substr(0, equals));
    if (flag == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown flag \"", arguments[i], "\"; see --help"));
    }
    std::string value;
    if (equals != absl::string_view::npos) {
      value = std::string(name.substr(equals + 1));
    } else if (flag->is_bool) {
      value = "true";
    } else if (++i < arguments.size()) {
      value = arguments[i];
    }
    if (!flag->set(value, &line)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", flag->name, " is \"", value, "\"; allowed: ", flag->allowed));
    }
  }
  return line;
}

std::string UsageText() {
  std::string text =
      "agg_server: one shard of a job of adaptive gradient aggregation.\n"
      "Usage: agg_server --config=job.textproto --shard=ORDINAL [flags]\n";
  for (const Flag& flag : Flags()) {
    absl::StrAppend(&text, "  --", flag.name, flag.is_bool ? "" : "=...",
                    "\n      ", flag.help, "\n");
  }
  return text;
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
