// Tries each address that the name has; a small table gives advice for an
// errno.
#include "server/rpc/listen_check.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace agg {
namespace {

absl::string_view Advice(int error) {
  switch (error) {
    case EADDRINUSE:
      return "; stop the process that has this port (`ss -ltnp` names it), or "
             "choose another with --port";
    case EACCES:
    case EPERM:
      return "; ports below 1024 are kept for privileged processes: choose a "
             "higher one with --port";
    case EADDRNOTAVAIL:
      return "; no network interface of this host has that address: choose "
             "one that has with --bind, or 0.0.0.0 for all";
    default:
      return "";
  }
}

// 0, or why this one address cannot be listened on.
int TryListen(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  // As gRPC does: connections of a former process that are still closing do
  // not count.
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool listens =
      bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, 1) == 0;
  const int error = listens ? 0 : errno;
  close(fd);
  return error;
}

}  // namespace

absl::Status ListenError(absl::string_view address, int error) {
  return absl::UnavailableError(absl::StrCat(
      "cannot listen on ", address, ": ", std::strerror(error), Advice(error)));
}

absl::Status CheckListen(absl::string_view address) {
  const size_t colon = address.rfind(':');
  absl::string_view host = address.substr(0, colon);
  const std::string port(address.substr(colon + 1));
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failed =
      getaddrinfo(std::string(host).c_str(), port.c_str(), &hints, &found);
  if (failed != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, ": ", gai_strerror(failed)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(
      found, &freeaddrinfo);
  int first_error = 0;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const int error = TryListen(*one);
    if (error == 0) return absl::OkStatus();
    if (first_error == 0) first_error = error;
  }
  return ListenError(address, first_error);
}

}  // namespace agg
