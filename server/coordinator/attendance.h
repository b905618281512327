// Which sessions attend: who holds an Attend stream open, and where events for
// a session go. The one place that knows.
#ifndef AGG_SERVER_COORDINATOR_ATTENDANCE_H_
#define AGG_SERVER_COORDINATOR_ATTENDANCE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "server/coordinator/coordinator_types.h"

namespace agg {

// A worker that reconnects opens its next stream before the server has noticed
// the end of the former one. So a session may have several streams, of which
// the newest speaks for it (P33): it gets the events, and the session attends
// until that one ends. Older ones are forgotten. Thread-compatible.
class Attendance {
 public:
  using EventCallback = std::function<void(const JobEvent&)>;

  // A stream of `session` has opened. Returns the stream's number, for Close.
  uint64_t Open(uint64_t session, EventCallback on_event);
  // The stream has ended. Returns its session if this was the newest stream of
  // it; nothing if a newer one has opened, or the session has been forgotten.
  std::optional<uint64_t> Close(uint64_t stream);
  // The session is over: later Close calls of its streams do nothing.
  void Forget(uint64_t session);
  void ForgetAll() { newest_.clear(); }

  bool Attends(uint64_t session) const;
  // Where events for the session go; null if it does not attend.
  EventCallback CallbackOf(uint64_t session) const;
  // One callback for each session that attends.
  std::vector<EventCallback> AllCallbacks() const;

 private:
  struct Stream {
    uint64_t number;
    EventCallback on_event;
  };
  std::map<uint64_t, Stream> newest_;  // by session
  uint64_t next_number_ = 1;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_ATTENDANCE_H_
