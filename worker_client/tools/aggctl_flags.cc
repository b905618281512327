// The tables of commands and flags, and what a table cannot say: RULE or
// --rule, not both.
#include "worker_client/tools/aggctl_flags.h"

#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "server/base/address.h"
#include "server/base/flags.h"
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

Flag Last(const std::string& what, AggctlFlags* out) {
  return {"--last", "N", what + " to show; default 10; 0: all that are kept",
          WholeValue(&out->last)};
}

Flag Wait(const std::string& what, AggctlFlags* out) {
  return {"--wait", "SECONDS", "for it to be " + what + "; default 600",
          SecondsValue(0.001, &out->wait)};
}

Flag DryRun(AggctlFlags* out) {
  return {"--dry-run", "", "say what would be done and why, and do nothing",
          SwitchValue(&out->dry_run)};
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
       {Last("rounds", out),
        {"--follow", "", "go on with rounds as they end",
         SwitchValue(&out->follow)},
        Interval(out),
        Count(out)}},
      {"doctor",
       "what is wrong with the job, and what to do about it",
       {{"--config", "PATH",
         "before a start: asks no server, and checks this file and what it "
         "names on this machine",
         TextValue(&out->config, "the path of a configuration")},
        {"--parameters", "N",
         "of the model, for the plan of the memory, with --config",
         NumberValue(int64_t{0}, int64_t{10'000'000'000'000},
                     "a whole number, 0 to 10000000000000",
                     &out->parameters)}}},
      {"top",
       "status and rounds, again and again",
       {Last("rounds", out), Interval(out), Count(out)}},
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
       {"--adacons-unsort", "scatter|gather",
        "how AdaCons' sorted coefficients go back to workers",
        TextValue(&out->adacons_unsort)},
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
       {Wait("complete", out)}},
      {"restore",
       "say which checkpoints there are, or go on from one of them",
       {{"CHECKPOINT", "VERSION|MADE-VERSION|none",
         "to go on from, newer versions in memory are given up; none: begin "
         "anew; left out: nothing is done",
         TextValue(&out->argument)},
        DryRun(out),
        Wait("done and saved", out)}},
      {"resume",
       "let a finished job go on",
       {DryRun(out), Wait("done and saved", out)}},
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
       {Last("events", out)}},
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
  if (flags.parameters > 0 && flags.config.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--parameters is ", flags.parameters,
                     "; allowed: with --config, whose memory plan it is for"));
  }
  return flags;
}

// Three shells, one table. Bash and zsh get a list of words for each command
// and for each flag with few values, and take those that fit; fish gets a line
// for each word, with what it is for, and has the rules for fitting itself.

namespace {

bool IsArgument(const Flag& flag) { return flag.name[0] != '-'; }

// "table", "json" of "table|json"; none of "PATH".
std::vector<std::string> Choices(const Flag& flag) {
  if (flag.shown == absl::AsciiStrToUpper(flag.shown)) return {};
  return absl::StrSplit(flag.shown, '|');
}

// What may stand where these flags are allowed: "--name=", "--switch", and the
// choices of an argument.
std::vector<std::string> Words(const std::vector<Flag>& flags) {
  std::vector<std::string> words;
  for (const Flag& flag : flags) {
    if (IsArgument(flag)) {
      for (std::string& choice : Choices(flag)) words.push_back(choice);
    } else {
      words.push_back(absl::StrCat(flag.name, flag.shown.empty() ? "" : "="));
    }
  }
  return words;
}

std::string Case(absl::string_view pattern,
                 const std::vector<std::string>& words) {
  return absl::StrCat("    ", pattern, ") list='", absl::StrJoin(words, " "),
                      "' ;;\n");
}

// The flags whose value may be a word of its own: "--timeout 5".
std::string ValuedFlags(const Program& program, absl::string_view between) {
  std::set<std::string> names;
  const auto add = [&](const std::vector<Flag>& flags) {
    for (const Flag& flag : flags) {
      if (!IsArgument(flag) && !flag.shown.empty()) names.insert(flag.name);
    }
  };
  add(program.flags);
  for (const Program& command : program.commands) add(command.flags);
  return absl::StrJoin(names, between);
}

// "  name) list='...';;" for each command, and for none.
std::string CommandCases(const Program& program) {
  std::vector<std::string> everywhere = Words(program.flags);
  everywhere.emplace_back("--help");
  std::vector<std::string> first;
  std::string text;
  for (const Program& command : program.commands) {
    first.push_back(command.name);
    std::vector<std::string> words = Words(command.flags);
    words.insert(words.end(), everywhere.begin(), everywhere.end());
    absl::StrAppend(&text, Case(command.name, words));
  }
  first.insert(first.end(), everywhere.begin(), everywhere.end());
  first.emplace_back("--version");
  return absl::StrCat(Case("''", first), text);
}

// "  --name) list='...';;" for each flag whose values are few. A flag's name
// has the same values in each command.
std::string ValueCases(const Program& program) {
  std::map<std::string, std::vector<std::string>> choices;
  const auto add = [&](const std::vector<Flag>& flags) {
    for (const Flag& flag : flags) {
      if (!IsArgument(flag) && !Choices(flag).empty()) {
        choices[flag.name] = Choices(flag);
      }
    }
  };
  add(program.flags);
  for (const Program& command : program.commands) add(command.flags);
  std::string text;
  for (const auto& [name, values] : choices) {
    absl::StrAppend(&text, Case(name, values));
  }
  return text;
}

std::string BashCompletion(const Program& program) {
  // Bash splits words at "=": a flag's value is a word of its own, after the
  // flag and "=", or "=" itself while it is empty.
  return absl::StrCat(
      R"(# source <(aggctl completion bash)
_aggctl() {
  local current=${COMP_WORDS[COMP_CWORD]} flag='' command='' list='' i
  COMPREPLY=()
  if [[ $current == = ]]; then
    flag=${COMP_WORDS[COMP_CWORD-1]} current=''
  elif [[ ${COMP_WORDS[COMP_CWORD-1]} == = ]]; then
    flag=${COMP_WORDS[COMP_CWORD-2]}
  elif [[ ${COMP_WORDS[COMP_CWORD-1]} == --?* ]]; then
    flag=${COMP_WORDS[COMP_CWORD-1]}
  fi
  case $flag in
)",
      ValueCases(program), R"(  esac
  if [[ -n $list ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$list" -- "$current")
    return
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case ${COMP_WORDS[i]} in
    )",
      ValuedFlags(program, " | "), R"()
      # A value of its own word, or "=" and the value.
      ((++i)); [[ ${COMP_WORDS[i]} != = ]] || ((++i)) ;;
    -* | =) ;;
    *) command=${COMP_WORDS[i]}; break ;;
    esac
  done
  case $command in
)",
      CommandCases(program), R"(  esac
  mapfile -t COMPREPLY < <(compgen -W "$list" -- "$current")
  if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
    compopt -o nospace 2>/dev/null
  elif [[ $command == pull && ${#COMPREPLY[@]} -eq 0 ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}
complete -F _aggctl aggctl
)");
}

std::string ZshCompletion(const Program& program) {
  // Loaded by `source`, or lying in $fpath as _aggctl: the last lines are for
  // both. A flag and its value are one word here, "--output=json".
  return absl::StrCat(
      R"(#compdef aggctl
# source <(aggctl completion zsh)
_aggctl() {
  local current=${words[CURRENT]} before=${words[CURRENT-1]}
  local flag='' command='' list='' i
  if [[ $current == --*=* ]]; then
    flag=${current%%=*}
  elif [[ $before == --?* && $before != *=* ]]; then
    flag=$before
  fi
  case $flag in
)",
      ValueCases(program), R"(  esac
  if [[ -n $list ]]; then
    [[ $current != --*=* ]] || compset -P 1 '*='
    compadd -- ${=list}
    return
  fi
  [[ $current != --*=* ]] || return 1
  for ((i = 2; i < CURRENT; ++i)); do
    case ${words[i]} in
    )",
      ValuedFlags(program, " | "), R"() ((++i)) ;;
    -*) ;;
    *) command=${words[i]}; break ;;
    esac
  done
  case $command in
)",
      CommandCases(program), R"(  esac
  # No space behind a flag that takes a value.
  compadd -S '' -- ${(M)${=list}:#*=}
  compadd -- ${${=list}:#*=}
  [[ $command != pull ]] || _files
}
if [[ ${funcstack[1]} == _aggctl ]]; then
  _aggctl "$@"
else
  (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
  compdef _aggctl aggctl
fi
)");
}

std::string FishQuoted(const std::string& text) {
  return absl::StrCat(
      "'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

// A line for a flag, or for an argument with choices. `only`: where it may
// stand, as fish's option -n with a space behind it; "" for everywhere.
std::string FishLine(const std::string& only, const Flag& flag) {
  const std::string head = absl::StrCat("complete -c aggctl ", only);
  const std::vector<std::string> choices = Choices(flag);
  const std::string values =
      choices.empty()
          ? ""
          : absl::StrCat(" -a ", FishQuoted(absl::StrJoin(choices, " ")));
  const std::string what = absl::StrCat(" -d ", FishQuoted(flag.help), "\n");
  if (!IsArgument(flag)) {
    return absl::StrCat(head, "-l ", flag.name.substr(2),
                        flag.shown.empty() ? "" : " -x", values, what);
  }
  if (flag.shown == "PATH") return absl::StrCat(head, "-F", what);
  return choices.empty() ? "" : absl::StrCat(head, values.substr(1), what);
}

std::string FishCompletion(const Program& program) {
  std::string text = absl::StrCat(
      R"(# aggctl completion fish | source
function __aggctl_is -d 'whether the line has this command so far'
  set -l command ''
  set -l value 0
  for word in (commandline -opc)[2..]
    if test $value -eq 1
      set value 0
      continue
    end
    switch $word
      case )",
      ValuedFlags(program, " "), R"(
        set value 1
      case '-*'
      case '*'
        set command $word
        break
    end
  end
  test "$command" = "$argv[1]"
end
complete -c aggctl -f
complete -c aggctl -s h -l help -d 'print help'
complete -c aggctl -n '__aggctl_is ""' -l version -d 'print the version'
)");
  for (const Flag& flag : program.flags) {
    absl::StrAppend(&text, FishLine("", flag));
  }
  for (const Program& command : program.commands) {
    absl::StrAppend(&text, "complete -c aggctl -n '__aggctl_is \"\"' -a ",
                    command.name, " -d ", FishQuoted(command.summary), "\n");
    const std::string only =
        absl::StrCat("-n '__aggctl_is ", command.name, "' ");
    for (const Flag& flag : command.flags) {
      absl::StrAppend(&text, FishLine(only, flag));
    }
  }
  return text;
}

}  // namespace

std::string AggctlCompletion(absl::string_view shell) {
  AggctlFlags unused;
  const Program program = AggctlProgram(&unused);
  if (shell == "bash") return BashCompletion(program);
  if (shell == "zsh") return ZshCompletion(program);
  if (shell == "fish") return FishCompletion(program);
  return "";
}

}  // namespace agg
