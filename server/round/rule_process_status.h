// How the process that decides an external rule stands: a plain value for
// metrics, status pages and tools.
#ifndef AGG_SERVER_ROUND_RULE_PROCESS_STATUS_H_
#define AGG_SERVER_ROUND_RULE_PROCESS_STATUS_H_

#include <cstdint>
#include <string>

namespace agg {

// The process that decides an external rule, as the coordinator sees it.
// Numbers are of rounds since this coordinator started.
struct RuleProcessStatus {
  std::string name;        // of the rule: ExternalOptions::name
  bool connected = false;  // it asks for rounds, or has one
  std::string client;      // "host:pid"; "": none has asked yet
  std::string identity;    // P45; "": nobody is asked who they are
  uint64_t answers = 0;    // that were applied, or compared as a shadow's
  uint64_t missing_answers = 0;
  uint64_t late_answers = 0;  // to rounds that were over, dropped
  double last_seconds = 0.0;  // that the last answer took
  std::string last_missing;   // why the last missing answer was missing
};

}  // namespace agg

#endif  // AGG_SERVER_ROUND_RULE_PROCESS_STATUS_H_
