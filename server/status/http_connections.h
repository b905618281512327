// All connections of an HttpServer on one thread: none of them keeps another
// waiting, however little it says or slowly it reads.
#ifndef AGG_SERVER_STATUS_HTTP_CONNECTIONS_H_
#define AGG_SERVER_STATUS_HTTP_CONNECTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace agg {

// A connection brings one request (a head; no body is read), waits for its
// answer, takes it and is closed; any limit that it exceeds closes it at once.
// Used by one thread, but for Answer and Wake.
class HttpConnections {
 public:
  struct Limits {
    // When there are more, the oldest that has not asked yet is closed, or the
    // oldest that has not taken its answer. While all wait for theirs, more
    // connections wait in the kernel.
    int connections = 32;
    size_t request_bytes = size_t{16} << 10;
    absl::Duration request = absl::Seconds(5);  // from accepting it
    absl::Duration answer = absl::Seconds(10);  // from when there is one
  };
  // `bytes`: up to the empty line, perhaps some beyond it. Called by RunOnce;
  // calls nothing of this but Answer.
  using RequestCallback = std::function<void(uint64_t id, std::string bytes)>;

  // Takes a socket that listens, and `clock`, which outlives it.
  HttpConnections(int listen_fd, const Limits& limits, const Clock* clock,
                  RequestCallback on_request);
  // Breaks all connections off.
  ~HttpConnections();
  HttpConnections(const HttpConnections&) = delete;
  HttpConnections& operator=(const HttpConnections&) = delete;

  // Waits for something to happen, at most `wait` and until the next limit (by
  // the clock) is reached; then does all that can be done without waiting.
  void RunOnce(absl::Duration wait);

  // All that connection `id` is to get; nothing happens if it is gone.
  void Answer(uint64_t id, std::string bytes);
  // Ends RunOnce's wait, or the next one.
  void Wake();

  uint64_t num_accepted() const { return last_id_; }
  int num_connections() const { return static_cast<int>(connections_.size()); }

 private:
  enum class State : uint8_t { kReading, kWaiting, kWriting };
  struct Connection {
    int fd = -1;
    State state = State::kReading;
    absl::Time deadline;
    std::string bytes;  // read, or to be written
    size_t num_written = 0;
  };
  using Connections = std::map<uint64_t, Connection>;  // by age

  void TakeAnswers();
  int PollMilliseconds(absl::Duration wait) const;
  // Both: false if the connection is over.
  bool Read(uint64_t id, Connection* connection);
  bool Write(Connection* connection);
  void CloseExpired();
  void Accept();
  // The one to close for another; end: none.
  Connections::iterator Dispensable();
  bool HasRoom();
  Connections::iterator Close(Connections::iterator connection);

  const int listen_fd_;
  const int wake_fd_;
  const Limits limits_;
  const Clock* const clock_;
  const RequestCallback on_request_;
  Connections connections_;
  uint64_t last_id_ = 0;
  absl::Time accept_at_ = absl::InfinitePast();  // no descriptors before

  Mutex mutex_;
  std::vector<std::pair<uint64_t, std::string>> answers_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_STATUS_HTTP_CONNECTIONS_H_
