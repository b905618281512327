#include "worker_client/tools/aggctl_flags.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "worker_client/tools/aggctl_flag_table.h"

namespace agg {
namespace {

const AggctlCommand* FindCommand(absl::string_view name) {
  for (const AggctlCommand& command : AggctlCommands()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

absl::Status Usage(absl::string_view message) {
  return absl::InvalidArgumentError(message);
}

// What a parse has seen.
struct Seen {
  std::vector<absl::string_view> flags;  // but for those of every command
  std::vector<std::string> words;        // the command and its arguments
};

absl::Status ParseFlag(const std::vector<std::string>& arguments, size_t* i,
                       AggctlFlags* out, Seen* seen) {
  const absl::string_view text = arguments[*i];
  const absl::string_view name = text.substr(2, text.find('=') - 2);
  const bool has_value = absl::StrContains(text, '=');
  for (const AggctlFlagEntry& flag : AggctlFlagTable()) {
    if (flag.shown.name != name) continue;
    if (!flag.shown.everywhere) seen->flags.push_back(flag.shown.name);
    std::string value;
    if (has_value) {
      value = std::string(text.substr(text.find('=') + 1));
    } else if (!flag.shown.value.empty() && *i + 1 < arguments.size()) {
      value = arguments[++*i];
    }
    if (flag.shown.value.empty() && has_value) {
      return Usage(absl::StrCat("--", name, " takes no value"));
    }
    if (flag.set(value, out)) return absl::OkStatus();
    return Usage(absl::StrCat("--", name, " is \"", value,
                              "\"; allowed: ", flag.allowed));
  }
  return Usage(absl::StrCat("unknown flag \"", text, "\"; see aggctl --help"));
}

absl::Status CheckFlags(const AggctlCommand& command, const Seen& seen) {
  for (absl::string_view flag : seen.flags) {
    if (std::count(command.flags.begin(), command.flags.end(), flag) > 0) {
      continue;
    }
    return Usage(absl::StrCat(command.name, " takes no --", flag,
                              "; see aggctl ", command.name, " --help"));
  }
  return absl::OkStatus();
}

absl::Status CheckArguments(const AggctlCommand& command, const Seen& seen,
                            AggctlFlags* out) {
  const size_t allowed = command.argument.empty() ? 1 : 2;
  if (seen.words.size() > allowed) {
    return Usage(absl::StrCat("unexpected argument \"", seen.words[allowed],
                              "\" of ", command.name));
  }
  if (seen.words.size() == 2) {
    out->argument = seen.words[1];
  } else if (command.argument_required) {
    return Usage(absl::StrCat(command.name, " needs ", command.argument,
                              "; see aggctl ", command.name, " --help"));
  }
  if (command.name == "evict" && !out->rank.has_value()) {
    return Usage("evict needs --rank=N");
  }
  if (command.name == "set-rule" && !out->argument.empty()) {
    if (out->rule.has_value()) {
      return Usage("set-rule takes RULE or --rule, not both");
    }
    out->rule = out->argument;
  }
  return absl::OkStatus();
}

void AppendFlag(const AggctlFlagEntry& flag, std::string* text) {
  const AggctlFlag& shown = flag.shown;
  absl::StrAppend(
      text,
      absl::StrFormat("  %-24s %s\n",
                      absl::StrCat("--", shown.name,
                                   shown.value.empty() ? "" : "=", shown.value),
                      shown.help));
}

}  // namespace

const std::vector<AggctlCommand>& AggctlCommands() {
  static const auto* const commands = new std::vector<AggctlCommand>{
      {"status", "the job, and who is waited for since when", {}, ""},
      {"workers", "who is in", {}, ""},
      {"tensors", "the manifest, and where it lies", {}, ""},
      {"rounds",
       "how the last rounds ended",
       {"last", "follow", "interval", "count"},
       ""},
      {"top",
       "status and rounds, again and again",
       {"last", "interval", "count"},
       ""},
      {"set-rule",
       "combine otherwise from the next round to open",
       {"rule", "scope", "step-scale", "force-step-scale", "learning-rate",
        "adacons-beta", "adacons-rescale"},
       "RULE",
       false,
       AggctlRules()},
      {"evict", "end a worker's session", {"rank", "reason"}, ""},
      {"drain", "finish the round, then end shard 0's process", {}, ""},
      {"loglevel",
       "set the level of the process's log",
       {},
       "LEVEL",
       true,
       {"debug", "info", "warning", "error"}},
      {"pull",
       "write the parameters to an .npz file",
       {"version"},
       "FILE",
       true,
       {}},
      {"version", "of aggctl and of the server", {}, ""},
      {"completion", "print a completion script", {}, "SHELL", true, {"bash"}},
  };
  return *commands;
}

std::vector<AggctlFlag> AggctlFlagList() {
  std::vector<AggctlFlag> list;
  for (const AggctlFlagEntry& flag : AggctlFlagTable())
    list.push_back(flag.shown);
  return list;
}

absl::StatusOr<AggctlFlags> ParseAggctlFlags(
    const std::vector<std::string>& arguments, const char* environment) {
  AggctlFlags flags;
  if (environment != nullptr && *environment != '\0') {
    flags.coordinator = environment;
  }
  Seen seen;
  absl::Status status;
  for (size_t i = 0; i < arguments.size() && status.ok(); ++i) {
    if (arguments[i] == "--version" && seen.words.empty()) {
      flags.client_version = true;
    } else if (absl::StartsWith(arguments[i], "--")) {
      status = ParseFlag(arguments, &i, &flags, &seen);
    } else {
      seen.words.push_back(arguments[i]);
    }
  }
  if (!seen.words.empty()) flags.command = seen.words[0];
  const AggctlCommand* command = FindCommand(flags.command);
  if (flags.client_version) return flags;
  if (flags.help && (command != nullptr || flags.command.empty())) return flags;
  if (!status.ok()) return status;
  if (command == nullptr) {
    std::vector<absl::string_view> names;
    for (const AggctlCommand& known : AggctlCommands()) {
      names.push_back(known.name);
    }
    return Usage(absl::StrCat(
        flags.command.empty()
            ? "no command"
            : absl::StrCat("unknown command \"", flags.command, "\""),
        "; allowed: ", absl::StrJoin(names, ", ")));
  }
  status = CheckFlags(*command, seen);
  if (status.ok()) status = CheckArguments(*command, seen, &flags);
  if (!status.ok()) return status;
  return flags;
}

std::string AggctlUsage(absl::string_view name) {
  const AggctlCommand* command = FindCommand(name);
  std::string text;
  if (command == nullptr) {
    text =
        "aggctl: look at a job of agg_server, and change it.\n"
        "Usage: aggctl COMMAND [flags]\n\nCommands:\n";
    for (const AggctlCommand& known : AggctlCommands()) {
      absl::StrAppend(
          &text, absl::StrFormat("  %-12s %s\n", known.name, known.summary));
    }
  } else {
    text = absl::StrCat("aggctl ", name, ": ", command->summary,
                        ".\nUsage: aggctl ", name,
                        command->argument.empty() ? "" : " ",
                        command->argument_required || command->argument.empty()
                            ? std::string(command->argument)
                            : absl::StrCat("[", command->argument, "]"),
                        " [flags]\n");
  }
  absl::StrAppend(&text, "\nFlags:\n");
  for (const AggctlFlagEntry& flag : AggctlFlagTable()) {
    const bool own = command != nullptr &&
                     std::count(command->flags.begin(), command->flags.end(),
                                flag.shown.name) > 0;
    if (flag.shown.everywhere || own) AppendFlag(flag, &text);
  }
  return text;
}

}  // namespace agg
