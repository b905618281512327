// A table of open streams. It is apart from JobState, which knows sessions and
// leases, because a stream's end is not a session's end.
#include "server/coordinator/attendance.h"

#include <algorithm>
#include <utility>

namespace agg {

uint64_t Attendance::Open(uint64_t session, EventCallback on_event) {
  const uint64_t number = next_number_++;
  streams_[session].push_back({number, std::move(on_event)});
  return number;
}

std::optional<uint64_t> Attendance::Close(uint64_t stream) {
  // There are as many sessions as workers, and streams end rarely: a search is
  // cheaper to read than a second map.
  for (auto it = streams_.begin(); it != streams_.end(); ++it) {
    std::vector<Stream>& open = it->second;
    const auto found = std::find_if(
        open.begin(), open.end(),
        [stream](const Stream& other) { return other.number == stream; });
    if (found == open.end()) continue;
    open.erase(found);
    if (!open.empty()) return std::nullopt;
    const uint64_t session = it->first;
    streams_.erase(it);
    return session;
  }
  return std::nullopt;
}

void Attendance::Forget(uint64_t session) { streams_.erase(session); }

bool Attendance::Attends(uint64_t session) const {
  return streams_.count(session) != 0;
}

Attendance::EventCallback Attendance::CallbackOf(uint64_t session) const {
  const auto found = streams_.find(session);
  return found == streams_.end() ? nullptr : found->second.back().on_event;
}

std::vector<Attendance::EventCallback> Attendance::AllCallbacks() const {
  std::vector<EventCallback> callbacks;
  for (const auto& [session, open] : streams_) {
    callbacks.push_back(open.back().on_event);
  }
  return callbacks;
}

}  // namespace agg
