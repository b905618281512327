// Splits at the last colon, since an IPv6 address has colons of its own and
// stands in brackets.
#include "server/base/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/field_error.h"

namespace agg {
namespace {

bool IsHostName(absl::string_view host) {
  return !host.empty() && host.size() <= 253 &&
         std::all_of(host.begin(), host.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
         });
}

// Loosely: the resolver has the last word.
bool IsIpv6(absl::string_view host) {
  return absl::StrContains(host, ':') &&
         std::all_of(host.begin(), host.end(), [](char c) {
           return absl::ascii_isxdigit(c) || c == ':' || c == '.' || c == '%';
         });
}

}  // namespace

absl::StatusOr<Address> ParseAddress(absl::string_view text) {
  const absl::Status error = absl::InvalidArgumentError(
      absl::StrCat(Quoted(text), "; allowed: ", kAllowedAddresses));
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return error;
  absl::string_view host = text.substr(0, colon);
  Address address;
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
    if (!IsIpv6(host)) return error;
  } else if (!IsHostName(host)) {
    return error;
  }
  const absl::string_view port = text.substr(colon + 1);
  if (port.empty() ||
      !std::all_of(port.begin(), port.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(port, &address.port) || address.port < 1 ||
      address.port > 65535) {
    return error;
  }
  address.host = std::string(host);
  return address;
}

absl::StatusOr<std::string> ParseHost(absl::string_view text) {
  const bool brackets =
      absl::StartsWith(text, "[") && absl::EndsWith(text, "]");
  const absl::string_view host =
      brackets ? text.substr(1, text.size() - 2) : text;
  if (IsIpv6(host) || (!brackets && IsHostName(host))) {
    return std::string(host);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(Quoted(text), "; allowed: ", kAllowedHosts));
}

absl::Status CheckAddress(absl::string_view field, absl::string_view text) {
  if (ParseAddress(text).ok()) return absl::OkStatus();
  return FieldError(field, Quoted(text), kAllowedAddresses);
}

absl::Status CheckHost(absl::string_view field, absl::string_view text) {
  if (ParseHost(text).ok()) return absl::OkStatus();
  return FieldError(field, Quoted(text), kAllowedHosts);
}

std::string FormatAddress(const Address& address) {
  if (absl::StrContains(address.host, ':')) {
    return absl::StrCat("[", address.host, "]:", address.port);
  }
  return absl::StrCat(address.host, ":", address.port);
}

bool IsLoopback(absl::string_view host) {
  if (host == "localhost" || host == "::1") return true;
  // Not by its first letters: "127.example.org" is a name of anybody's.
  in_addr ipv4;
  return inet_pton(AF_INET, std::string(host).c_str(), &ipv4) == 1 &&
         ntohl(ipv4.s_addr) >> 24 == 127;
}

}  // namespace agg
