// The tables of commands and flags, and what a table cannot say: RULE or
// --rule, not both.
#include "worker_client/tools/aggctl_flags.h"

#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/address.h"
#include "server/base/status_macros.h"
#include "server/base/version.h"
#include "server/combine/rule_table.h"
#include "worker_client/tools/tls_flags.h"

namespace agg {
namespace {

template <typename Out>
FlagValue WholeValue(Out* out) {
  return NumberValue(0, std::numeric_limits<int>::max(), "0 or more", out);
}

FlagValue FiniteValue(absl::optional<double>* out) {
  constexpr double kMost = std::numeric_limits<double>::max();
  return NumberValue(-kMost, kMost, "a finite number", out);
}

FlagValue FormatValue(bool* json) {
  return {"table, json", [json](const std::string& text) {
            *json = text == "json";
            return *json || text == "table";
          }};
}

Flag Last(AggctlFlags* out) {
  return {"--last", "N", "rounds to show; default 10; 0: all that are kept",
          WholeValue(&out->last)};
}

Flag Interval(AggctlFlags* out) {
  return {"--interval", "SECONDS", "between looks; default 1",
          SecondsValue(0.01, &out->interval)};
}

Flag Count(AggctlFlags* out) {
  return {"--count", "N", "looks, then end; default 0: no end",
          WholeValue(&out->count)};
}

std::vector<Program> WatchCommands(AggctlFlags* out) {
  return {
      {"status", "the job, and who is waited for since when", {}},
      {"workers", "who is in", {}},
      {"tensors", "the manifest, and where it lies", {}},
      {"rounds",
       "how the last rounds ended",
       {Last(out),
        {"--follow", "", "go on with rounds as they end",
         SwitchValue(&out->follow)},
        Interval(out),
        Count(out)}},
      {"top",
       "status and rounds, again and again",
       {Last(out), Interval(out), Count(out)}},
  };
}

Program SetRule(AggctlFlags* out) {
  // For help and completion only. aggctl does not refuse another name: the job
  // may be of a release that knows more rules, and its error lists them.
  const std::string rules = RuleNames("|");
  return {
      "set-rule",
      "combine otherwise from the next round to open",
      {{"RULE", rules, "how gradients are combined", TextValue(&out->argument)},
       {"--rule", rules, "the same, as a flag", TextValue(&out->rule)},
       {"--scope", "per_tensor|global",
        "default beside another rule: the rule's own", TextValue(&out->scope)},
       {"--step-scale", "none|linear|sqrt|adascale|adamscale",
        "how the learning rate grows with the batch",
        TextValue(&out->step_scale)},
       {"--force-step-scale", "",
        "let adascale scale a rule that is not a mean",
        SwitchValue(&out->force_step_scale)},
       {"--learning-rate", "RATE", "the schedule's rate",
        FiniteValue(&out->learning_rate)},
       {"--adacons-beta", "BETA", "AdaCons' momentum, in [0, 1)",
        FiniteValue(&out->adacons_beta)},
       {"--adacons-rescale", "none|mean_norm|match_mean",
        "the length of AdaCons' gradient", TextValue(&out->adacons_rescale)},
       {"--krum-byzantine-workers", "N", "rows that Krum takes for byzantine",
        WholeValue(&out->krum_byzantine_workers)},
       {"--krum-selected", "N", "rows that multi_krum averages; 0: the others",
        WholeValue(&out->krum_selected)}}};
}

std::vector<Program> OtherCommands(AggctlFlags* out) {
  constexpr bool kRequired = true;
  return {
      {"evict",
       "end a worker's session",
       {{"--rank", "N", "whose session to end", WholeValue(&out->rank),
         kRequired},
        {"--reason", "TEXT", "sent to the worker, and logged",
         TextValue(&out->reason)}}},
      {"checkpoint",
       "write a checkpoint now, and wait until it is complete",
       {{"--wait", "SECONDS", "for it to be complete; default 600",
         SecondsValue(0.001, &out->wait)}}},
      {"restore",
       "say which checkpoints there are, or go on from one of them",
       {{"CHECKPOINT", "VERSION|MADE-VERSION|none",
         "to go on from, newer versions in memory are given up; none: begin "
         "anew; left out: nothing is done",
         TextValue(&out->argument)},
        {"--wait", "SECONDS", "for it to be done and saved; default 600",
         SecondsValue(0.001, &out->wait)}}},
      {"resume",
       "let a finished job go on",
       {{"--wait", "SECONDS", "for it to be done and saved; default 600",
         SecondsValue(0.001, &out->wait)}}},
      {"drain", "finish the round, then end shard 0's process", {}},
      {"loglevel",
       "set the level of the process's log",
       {{"LEVEL", "debug|info|warning|error", "what is logged from now on",
         TextValue(&out->argument, "debug, info, warning, error"), kRequired}}},
      {"pull",
       "write the parameters to an .npz file",
       {{"FILE", "PATH", "the .npz file", TextValue(&out->argument), kRequired},
        {"--version", "N", "which published version; default: the newest",
         NumberValue(uint64_t{0}, std::numeric_limits<uint64_t>::max(),
                     "0 or more", &out->version)}}},
      {"audit",
       "what was done to the job, by whom, and what was refused",
       {{"--last", "N", "events to show; default 10; 0: all that are kept",
         WholeValue(&out->last)}}},
      {"health",
       "whether it is SERVING, as gRPC's health service says",
       {{"SERVICE", "NAME", "agg.v1.Live, say; default: the process",
         TextValue(&out->argument)}}},
      {"version", "of aggctl and of the server", {}},
      {"completion",
       "print a completion script",
       {{"SHELL", "bash|zsh|fish", "for which shell",
         TextValue(&out->argument, "bash, zsh, fish"), kRequired}}},
      {"help",
       "print this, or the help of a command",
       {{"COMMAND", "NAME", "of which command", TextValue(&out->argument)}}},
  };
}

}  // namespace

Program AggctlProgram(AggctlFlags* out) {
  Program program;
  program.name = "aggctl";
  program.summary = "aggctl: look at a job of agg_server, and change it.";
  program.version = absl::StrCat("aggctl ", kVersion, "\n");
  program.flags = {
      {"--coordinator", "HOST:PORT",
       "shard 0; default: $AGG_COORDINATOR, or 127.0.0.1:50051",
       AddressValue(&out->coordinator)},
      {"--output", "table|json", "default: table", FormatValue(&out->json)},
      {"--timeout", "SECONDS", "to wait for an answer; default 5",
       SecondsValue(0.001, &out->timeout)},
      {"--token-file", "PATH",
       "whose first line says who asks; default: $AGG_TOKEN_FILE",
       TextValue(&out->token_file, "the path of a file of tokens")},
  };
  for (Flag& flag : TlsFlags("--tls-", &out->tls)) {
    program.flags.push_back(std::move(flag));
  }
  program.commands = WatchCommands(out);
  program.commands.push_back(SetRule(out));
  for (Program& command : OtherCommands(out)) {
    program.commands.push_back(std::move(command));
  }
  return program;
}

absl::StatusOr<AggctlFlags> ParseAggctlFlags(
    const std::vector<std::string>& arguments, const char* environment) {
  AggctlFlags flags;
  if (environment != nullptr && *environment != '\0') {
    flags.coordinator = environment;
  }
  AGG_ASSIGN_OR_RETURN(const ParsedFlags parsed,
                       ParseFlags(AggctlProgram(&flags), arguments));
  flags.command = parsed.command;
  flags.text = parsed.text;
  if (!flags.text.empty()) return flags;
  // A flag's address has been checked.
  AGG_RETURN_IF_ERROR(CheckAddress("AGG_COORDINATOR", flags.coordinator));
  if (flags.command == "help") {
    std::vector<std::string> asked = {"--help"};
    if (!flags.argument.empty()) asked.insert(asked.begin(), flags.argument);
    return ParseAggctlFlags(asked, environment);
  }
  if (flags.command == "set-rule" && !flags.argument.empty()) {
    if (flags.rule.has_value()) {
      return absl::InvalidArgumentError(
          "set-rule takes RULE or --rule, not both");
    }
    flags.rule = flags.argument;
  }
  return flags;
}

}  // namespace agg
