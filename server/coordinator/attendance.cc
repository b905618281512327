// A table of the streams that speak for sessions. It is apart from JobState,
// which knows sessions and leases, because a stream's end is not a session's
// end.
#include "server/coordinator/attendance.h"

#include <algorithm>
#include <utility>

namespace agg {

uint64_t Attendance::Open(uint64_t session, EventCallback on_event) {
  const uint64_t number = next_number_++;
  newest_[session] = {number, std::move(on_event)};
  return number;
}

std::optional<uint64_t> Attendance::Close(uint64_t stream) {
  // There are as many sessions as workers, and streams end rarely: a search is
  // cheaper to read than a second map.
  const auto found = std::find_if(
      newest_.begin(), newest_.end(),
      [stream](const auto& entry) { return entry.second.number == stream; });
  if (found == newest_.end()) return std::nullopt;
  const uint64_t session = found->first;
  newest_.erase(found);
  return session;
}

void Attendance::Forget(uint64_t session) { newest_.erase(session); }

bool Attendance::Attends(uint64_t session) const {
  return newest_.count(session) != 0;
}

Attendance::EventCallback Attendance::CallbackOf(uint64_t session) const {
  const auto found = newest_.find(session);
  return found == newest_.end() ? nullptr : found->second.on_event;
}

std::vector<Attendance::EventCallback> Attendance::AllCallbacks() const {
  std::vector<EventCallback> callbacks;
  for (const auto& [session, stream] : newest_) {
    callbacks.push_back(stream.on_event);
  }
  return callbacks;
}

}  // namespace agg
