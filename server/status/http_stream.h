// One connection as cpp-httplib reads and writes it. Its own streams limit each
// single read and write, so that a client which sends or takes a byte now and
// then holds a thread for ever; this one limits the sums.
#ifndef AGG_SERVER_STATUS_HTTP_STREAM_H_
#define AGG_SERVER_STATUS_HTTP_STREAM_H_

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "httplib.h"
#include "server/tls/tls_session.h"

namespace agg {

// Time runs from the construction for reading, from the first write for
// writing. Shutting the socket down ends either at once. Used by one thread.
class HttpStream : public httplib::Stream {
 public:
  // `fd`: a connected socket, which stays the caller's. `tls`: what is read and
  // written goes through it; null: it does not. The handshake counts as
  // reading, and the limit is of plain bytes: TLS's own have a limit besides.
  HttpStream(int fd, size_t max_read_bytes, absl::Duration read_time,
             absl::Duration write_time,
             std::unique_ptr<TlsSession> tls = nullptr);

  // Reads or writes as httplib wants it: returns the number of bytes; 0 or
  // less: it is over.
  ssize_t read(char* bytes, size_t num_bytes) override;
  ssize_t write(const char* bytes, size_t num_bytes) override;

  // Ends TLS in good order; does nothing without TLS.
  void End();

  // Takes what has been sent beyond the request. The kernel would otherwise
  // answer it with a reset, and drop the answer's bytes that are still on
  // their way. It takes as much as an honest client may have sent, no more.
  void Drain();

  bool is_readable() const override;
  bool is_writable() const override;
  socket_t socket() const override { return fd_; }
  // No handler looks at addresses: they stay empty.
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;

 private:
  // Plain bytes, as read() has them.
  ssize_t Receive(char* bytes, size_t num_bytes);
  ssize_t ReceiveTls(char* bytes, size_t num_bytes);
  // Receives from the socket, or sends to it, by the deadlines.
  ssize_t ReceiveRaw(char* bytes, size_t num_bytes);
  ssize_t SendRaw(const char* bytes, size_t num_bytes);
  // Sends what TLS wants to send.
  bool Flush();

  const int fd_;
  const absl::Duration write_time_;
  const absl::Time read_deadline_;
  absl::Time write_deadline_ = absl::InfiniteFuture();  // set by a write
  bool answering_ = false;  // with TLS: what is written is no handshake's
  size_t may_read_;
  size_t may_receive_;  // of the socket, with TLS
  const std::unique_ptr<TlsSession> tls_;
  // httplib reads a line byte by byte.
  std::array<char, 4096> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace agg

#endif  // AGG_SERVER_STATUS_HTTP_STREAM_H_
