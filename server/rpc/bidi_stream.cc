// Keeps the list of open streams, and ends them with no lock held.
#include "server/rpc/bidi_stream.h"

#include <utility>

namespace agg {

// A map of callbacks, which are called without the lock, since a stream that
// ends removes itself.

int64_t OpenStreams::Add(End end) {
  absl::Status reason;
  int64_t id;
  {
    MutexLock lock(&mutex_);
    id = next_id_++;
    reason = reason_;
    if (reason.ok()) streams_.emplace(id, std::move(end));
  }
  if (!reason.ok()) end(reason);
  return id;
}

void OpenStreams::Remove(int64_t id) {
  End end;  // destroyed without the lock
  MutexLock lock(&mutex_);
  auto it = streams_.find(id);
  if (it == streams_.end()) return;
  end = std::move(it->second);
  streams_.erase(it);
}

void OpenStreams::EndAll(const absl::Status& reason) {
  std::map<int64_t, End> streams;
  {
    MutexLock lock(&mutex_);
    if (reason_.ok()) reason_ = reason;
    streams.swap(streams_);
  }
  for (auto& stream : streams) stream.second(reason);
}

}  // namespace agg
