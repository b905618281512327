// "host:port" addresses: of shards, and of the ports that a server opens.
#ifndef AGG_SERVER_BASE_ADDRESS_H_
#define AGG_SERVER_BASE_ADDRESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace agg {

struct Address {
  std::string host;  // without brackets
  int port = 0;
};

// What the errors below call allowed.
inline constexpr char kAllowedAddresses[] =
    "host:port with a DNS name, an IPv4 address or an IPv6 address in "
    "brackets, and a port of 1 to 65535; without http:// or a path";
inline constexpr char kAllowedHosts[] =
    "a DNS name, an IPv4 or an IPv6 address";

// A DNS name, an IPv4 address, or an IPv6 address in brackets, and a port of
// 1 to 65535. INVALID_ARGUMENT saying what is wrong.
absl::StatusOr<Address> ParseAddress(absl::string_view text);

// The host alone: as above, but an IPv6 address also without brackets. Returns
// it without them. INVALID_ARGUMENT saying what is allowed.
absl::StatusOr<std::string> ParseHost(absl::string_view text);

// OK, or INVALID_ARGUMENT "field is value; allowed: ..." as the parsers decide.
absl::Status CheckAddress(absl::string_view field, absl::string_view text);
absl::Status CheckHost(absl::string_view field, absl::string_view text);

// "host:port", IPv6 in brackets.
std::string FormatAddress(const Address& address);

// "localhost", 127.x.y.z or ::1.
bool IsLoopback(absl::string_view host);

}  // namespace agg

#endif  // AGG_SERVER_BASE_ADDRESS_H_
