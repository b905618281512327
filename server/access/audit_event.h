// Something that was done to a job, or refused, that an operator may have to
// account for later.
#ifndef AGG_SERVER_ACCESS_AUDIT_EVENT_H_
#define AGG_SERVER_ACCESS_AUDIT_EVENT_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace agg {

struct AuditEvent {
  absl::Time time;  // filled in by who keeps it
  // "join", "resume", "takeover", "denial", "lost" (a worker whose lease or
  // grace has run out), or the word that AdminService has for a change.
  std::string action;
  std::string who;       // the identity; "": nobody is asked who they are
  std::string from;      // the caller's address; "": the job itself
  int32_t rank = -1;     // below 0: of no rank
  uint64_t session = 0;  // 0: of none
  std::string detail;    // what was asked for
  std::string outcome;   // "OK", or an error with its code
  uint64_t times = 1;    // so many alike, in short order
};

// One JSON object in one line, of at most kMaxAuditBytes: texts that came over
// the network are cut, and what is no UTF-8, or a control character, is
// replaced or escaped.
std::string AuditLine(const AuditEvent& event);

// Limits of each text of an event, and of a whole line.
inline constexpr int kMaxAuditTextBytes = 256;
inline constexpr int kMaxAuditBytes = 16384;

}  // namespace agg

#endif  // AGG_SERVER_ACCESS_AUDIT_EVENT_H_
