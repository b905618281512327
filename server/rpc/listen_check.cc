// A small table gives advice for an errno.
#include "server/rpc/listen_check.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

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

}  // namespace

absl::Status ListenError(absl::string_view address, int error) {
  return absl::UnavailableError(absl::StrCat(
      "cannot listen on ", address, ": ", std::strerror(error), Advice(error)));
}

}  // namespace agg
