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
// the end of the former one. So a session may have several streams; it attends
// as long as one of them is open, and its events go to the newest.
// Thread-compatible.
class Attendance {
 public:
  using EventCallback = std::function<void(const JobEvent&)>;

  // A stream of `session` has opened. Returns the stream's number, for Close.
  uint64_t Open(uint64_t session, EventCallback on_event);
  // The stream has ended. Returns its session if this was the last stream of
  // it; nothing if another one is open, or if the session has been forgotten.
  std::optional<uint64_t> Close(uint64_t stream);
  // The session is over: later Close calls of its streams do nothing.
  void Forget(uint64_t session);
  void ForgetAll() { streams_.clear(); }

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
  std::map<uint64_t, std::vector<Stream>> streams_;  // by session, oldest first
  uint64_t next_number_ = 1;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_ATTENDANCE_H_
