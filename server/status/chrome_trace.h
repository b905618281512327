// Rounds as a Chrome trace, for Perfetto (ui.perfetto.dev) or chrome://tracing.
#ifndef AGG_SERVER_STATUS_CHROME_TRACE_H_
#define AGG_SERVER_STATUS_CHROME_TRACE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/status/round_point.h"

namespace agg {

// The JSON object format of the Trace Event Format: per round a span on the
// track "coordinator" from its opening to its publication, with the phases
// inside it, and per shard a track with its compute time in each phase. Times
// are Unix time in microseconds. The round's arguments hold its numbers and
// the traceparents of its workers.
//
// Measured are the phases' lengths and the round's end; their places follow
// from the order in which they run. Where two stretches of one phase have
// another between them (deciding, before and after compensated Grams), they
// are shown as one; a shard's time is shown from the phase's start on.
std::string ChromeTrace(absl::string_view job,
                        const std::vector<RoundPoint>& rounds);

}  // namespace agg

#endif  // AGG_SERVER_STATUS_CHROME_TRACE_H_
