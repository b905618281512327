#include "worker_client/tools/aggctl_completion.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker_client/tools/aggctl_flags.h"

namespace agg {
namespace {

// "--name=" for a flag that takes a value, else "--name".
std::string Spelling(const AggctlFlag& flag) {
  return absl::StrCat("--", flag.name, flag.value.empty() ? "" : "=");
}

// "  name) words='...';;" for each command.
std::string CommandCases() {
  std::string text;
  for (const AggctlCommand& command : AggctlCommands()) {
    std::vector<std::string> words(command.argument_values.begin(),
                                   command.argument_values.end());
    for (const AggctlFlag& flag : AggctlFlagList()) {
      const bool own =
          std::count(command.flags.begin(), command.flags.end(), flag.name) > 0;
      if (own || flag.everywhere) words.push_back(Spelling(flag));
    }
    absl::StrAppend(&text, "    ", command.name, ") words='",
                    absl::StrJoin(words, " "), "' ;;\n");
  }
  return text;
}

// "  --name) words='...';;" for each flag whose values are few.
std::string ValueCases() {
  std::string text;
  for (const AggctlFlag& flag : AggctlFlagList()) {
    if (flag.values.empty()) continue;
    absl::StrAppend(&text, "    --", flag.name, ") words='",
                    absl::StrJoin(flag.values, " "), "' ;;\n");
  }
  return text;
}

std::string TopWords() {
  std::vector<std::string> words;
  for (const AggctlCommand& command : AggctlCommands()) {
    words.emplace_back(command.name);
  }
  for (const AggctlFlag& flag : AggctlFlagList()) {
    if (flag.everywhere) words.push_back(Spelling(flag));
  }
  return absl::StrJoin(words, " ");
}

}  // namespace

std::string AggctlBashCompletion() {
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
      ValueCases(), R"(  esac
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
    '') words=')",
      TopWords(), R"(' ;;
)",
      CommandCases(), R"(  esac
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
