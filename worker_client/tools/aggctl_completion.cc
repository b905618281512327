// Three shells, one table. Bash and zsh get a list of words for each command
// and for each flag with few values, and take those that fit; fish gets a line
// for each word, with what it is for, and has the rules for fitting itself.
#include "worker_client/tools/aggctl_completion.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "server/base/flags.h"
#include "worker_client/tools/aggctl_flags.h"

namespace agg {
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
