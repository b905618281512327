// Any text as what callers and hosts say of themselves: tokens and their file,
// names in certificates, addresses, traceparents, transports. Refused, or what
// the header promises.
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/traceparent.h"
#include "server/access/identities.h"
#include "server/base/address.h"
#include "server/base/local_socket.h"
#include "server/base/token_file.h"
#include "server/base/utf8.h"
#include "server/round/worker_transports.h"

namespace {

void Require(bool truth) {
  if (!truth) __builtin_trap();
}

void TryTokens(absl::string_view text) {
  const auto tokens = agg::ParseTokens(text);
  if (!tokens.ok()) {
    // The line's number, and never what it says.
    return Require(tokens.status().message().size() <= 120);
  }
  for (const std::string& token : *tokens) {
    Require(token.size() >= agg::kMinTokenBytes &&
            token.size() <= agg::kMaxTokenBytes);
    Require(agg::BearerToken(absl::StrCat("bearer ", token)) == token);
    Require(agg::SameToken(token, token));
    Require(!agg::SameToken(token, absl::StrCat(token, "x")));
  }
}

void TryAddress(absl::string_view text) {
  const auto address = agg::ParseAddress(text);
  if (!address.ok()) return;
  const auto again = agg::ParseAddress(agg::FormatAddress(*address));
  Require(again.ok() && again->host == address->host &&
          again->port == address->port);
  (void)agg::IsLoopback(address->host);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  TryTokens(text);
  TryAddress(text);
  (void)agg::BearerToken(text);
  (void)agg::IsTraceparent(text);
  (void)agg::IsLocalSocketName(text);
  const size_t middle = size / 2;
  const absl::string_view first = text.substr(0, middle);
  const absl::string_view second = text.substr(middle);
  Require(agg::SanMatches(absl::StrCat(first, "*"), text));
  if (agg::SanMatches(first, second)) {
    Require(first == second || absl::EndsWith(first, "*"));
  }
  const auto transports =
      agg::ParseTransports(text, static_cast<int>(size % 5));
  Require(!transports.ok() ||
          transports->text.size() <= agg::WorkerTransports::kMaxBytes);
  const std::string valid = agg::ValidUtf8(text);
  Require(agg::ValidUtf8(valid) == valid);
  return 0;
}
