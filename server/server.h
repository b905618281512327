// One agg_server: a shard, and on ordinal 0 the coordinator, wired together.
#ifndef AGG_SERVER_SERVER_H_
#define AGG_SERVER_SERVER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/backend_maker.h"
#include "server/config/options.h"

namespace agg {

// What differs from process to process of a job.
struct StartOptions {
  // Makes the configured backend; required. Called once, by Start.
  BackendMaker make_backend;
  int ordinal = 0;
  std::string bind;                 // "": loopback
  std::optional<int> port;          // not the configured one; 0: any
  std::optional<int> metrics_port;  // not the configured one; 0: any
  bool admin = true;                // serve proto/admin.proto
  // Ends the process as SIGTERM does; called by the admin service, at most
  // once, must not block. Null: it refuses.
  std::function<void()> on_drain_request;
  // The backend's device is lost: the job's epoch is over, and this process
  // should end, since only a new one can use a device again. Called at most
  // once, must not block. Null: nothing.
  std::function<void(const absl::Status&)> on_device_lost;
};

// Several may live in one process. Thread-safe.
class Server {
 public:
  // Listens before it returns; the job's shards are attached in the
  // background. INVALID_ARGUMENT (ordinal, backend, bind), UNAVAILABLE (the
  // port is in use, the device is missing).
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options, const StartOptions& start);
  // Drain, at once.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  // 0 when metrics are off.
  int metrics_port() const;

  // Health turns NOT_SERVING first; then a round in execution is finished,
  // what waits is refused with UNAVAILABLE, and calls end by `deadline`.
  // Returns when nothing runs any more. Idempotent.
  void Drain(absl::Time deadline);
  // Returns when Drain has been called.
  void Wait();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace agg

#endif  // AGG_SERVER_SERVER_H_
