// One connection of HttpServer as cpp-httplib wants to see it, with limits.
#ifndef AGG_SERVER_METRICS_HTTP_CONNECTION_H_
#define AGG_SERVER_METRICS_HTTP_CONNECTION_H_

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "httplib.h"

namespace agg {

// cpp-httplib's own stream has timeouts per read and none for a request, and
// does not notice that its server stops. Reads and writes fail for good once a
// limit is passed or `stop_fd` is readable. Used by one thread.
class HttpConnection : public httplib::Stream {
 public:
  struct Limits {
    size_t request_bytes = size_t{16} << 10;
    absl::Duration request = absl::Seconds(5);  // from now, until it is read
    absl::Duration answer = absl::Seconds(10);  // from now, until it is written
  };

  // Borrows both descriptors.
  HttpConnection(int fd, int stop_fd, const Limits& limits);

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* bytes, size_t num_bytes) override;
  ssize_t write(const char* bytes, size_t num_bytes) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override;

 private:
  // Until fd_ has one of `events`; false: deadline or stop.
  bool WaitFor(short events, absl::Time deadline) const;

  const int fd_;
  const int stop_fd_;
  const absl::Time read_deadline_;
  const absl::Time write_deadline_;
  size_t bytes_left_;  // of the request
  // httplib reads byte by byte.
  char buffer_[4096];
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace agg

#endif  // AGG_SERVER_METRICS_HTTP_CONNECTION_H_
