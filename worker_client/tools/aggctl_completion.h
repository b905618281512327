// Completion of aggctl's command line by shells, made from AggctlProgram.
#ifndef AGG_WORKER_CLIENT_TOOLS_AGGCTL_COMPLETION_H_
#define AGG_WORKER_CLIENT_TOOLS_AGGCTL_COMPLETION_H_

#include <string>

namespace agg {

// For `source <(aggctl completion bash)`: commands, each one's flags and
// arguments, and the values of those that have a few. Needs bash alone.
std::string AggctlBashCompletion();

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_AGGCTL_COMPLETION_H_
