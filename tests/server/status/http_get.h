// HTTP by hand, to see what is really answered.
#ifndef AGG_TESTS_SERVER_STATUS_HTTP_GET_H_
#define AGG_TESTS_SERVER_STATUS_HTTP_GET_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace agg {

// A connection to the loopback's `port`; closed at its end.
class HttpClient {
 public:
  explicit HttpClient(int port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address),
                         sizeof(address)) == 0;
  }
  ~HttpClient() { close(fd_); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected() const { return connected_; }

  // Whether all was taken.
  bool Send(absl::string_view bytes) {
    return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }

  // The next `num_bytes`, waited for; fewer at the end of the connection.
  std::string Read(size_t num_bytes) {
    std::string bytes(num_bytes, '\0');
    const ssize_t n = recv(fd_, &bytes[0], num_bytes, MSG_WAITALL);
    bytes.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return bytes;
  }

  // Everything up to the server's end of the connection.
  std::string ReadAll() {
    std::string answer;
    char bytes[4096];
    for (ssize_t n; (n = read(fd_, bytes, sizeof(bytes))) > 0;) {
      answer.append(bytes, static_cast<size_t>(n));
    }
    return answer;
  }

 private:
  const int fd_;
  bool connected_ = false;
};

// The whole answer to a request, headers and body; empty if nothing listens.
inline std::string Ask(int port, absl::string_view method,
                       absl::string_view target,
                       absl::string_view headers = "") {
  HttpClient client(port);
  if (!client.connected()) return "";
  client.Send(absl::StrCat(method, " ", target,
                           " HTTP/1.1\r\nHost: localhost\r\n", headers,
                           "\r\n"));
  return client.ReadAll();
}

inline std::string Get(int port, absl::string_view target) {
  return Ask(port, "GET", target);
}

}  // namespace agg

#endif  // AGG_TESTS_SERVER_STATUS_HTTP_GET_H_
