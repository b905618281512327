// Completion of aggctl's command line by shells, made from AggctlProgram.
#ifndef AGG_WORKER_CLIENT_TOOLS_AGGCTL_COMPLETION_H_
#define AGG_WORKER_CLIENT_TOOLS_AGGCTL_COMPLETION_H_

#include <string>

#include "absl/strings/string_view.h"

namespace agg {

// A script for "bash", "zsh" or "fish" that completes commands, each one's
// flags and arguments, and the values of those that have a few; its first line
// says how to load it. "" for another shell. Needs the shell alone.
std::string AggctlCompletion(absl::string_view shell);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_AGGCTL_COMPLETION_H_
