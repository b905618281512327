#include "worker_client/tools/aggctl_completion.h"

#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
  return absl::StrCat("    ", pattern, ") words='", absl::StrJoin(words, " "),
                      "' ;;\n");
}

// "  name) words='...';;" for each command, and for none.
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

// "  --name) words='...';;" for each flag whose values are few. A flag's name
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

}  // namespace

std::string AggctlBashCompletion() {
  AggctlFlags unused;
  const Program program = AggctlProgram(&unused);
  // Bash splits words at "=": a flag's value is a word of its own, after the
  // flag and "=", or "=" itself while it is empty.
  return absl::StrCat(
      R"(# source <(aggctl completion bash)
_aggctl() {
  local current=${COMP_WORDS[COMP_CWORD]} flag='' command='' words='' i
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
  if [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    return
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case ${COMP_WORDS[i]} in
    -* | =) ;;
    *)
      [[ ${COMP_WORDS[i-1]} == = ]] || { command=${COMP_WORDS[i]}; break; }
      ;;
    esac
  done
  case $command in
)",
      CommandCases(program), R"(  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
    compopt -o nospace 2>/dev/null
  elif [[ $command == pull && ${#COMPREPLY[@]} -eq 0 ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}
complete -F _aggctl aggctl
)");
}

}  // namespace agg
