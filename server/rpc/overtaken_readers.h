// Readers whose version was written over before they took its last bytes: who
// they are is said, and counted, and who could take what is left for a version
// loses its connection.
#ifndef AGG_SERVER_RPC_OVERTAKEN_READERS_H_
#define AGG_SERVER_RPC_OVERTAKEN_READERS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/rpc/open_connections.h"

namespace agg {

// Thread-safe.
class OvertakenReaders {
 public:
  // Time between two lines of the log; what comes between them is counted.
  static constexpr absl::Duration kQuiet = absl::Seconds(10);

  // `connections` may be null: then none is ended. `clock` outlives it.
  explicit OvertakenReaders(std::shared_ptr<OpenConnections> connections,
                            const Clock* clock = Clock::Real())
      : connections_(std::move(connections)), clock_(clock) {}

  struct Reader {
    std::string who;   // "rank 3 (session 7)", or "the pull of guest"
    std::string peer;  // grpc::ServerContext::peer()
    uint64_t version = 0;
    // Whether the connection is to be ended, as VersionFlow::Events::overtaken
    // says. Which connection of a Unix socket is the reader's is not known: all
    // that take nothing are ended.
    bool cut = false;
  };
  void Note(const Reader& reader);

  // Counts the frames of versions that readers have taken. One that goes up
  // says that some reader still reads.
  void NoteTaken() { ++num_taken_; }
  int64_t num_taken() const { return num_taken_; }

 private:
  const std::shared_ptr<OpenConnections> connections_;
  const Clock* const clock_;
  std::atomic<int64_t> num_taken_{0};
  Mutex mutex_;
  int64_t unsaid_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time said_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_OVERTAKEN_READERS_H_
