#include "worker_client/client_token.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/address.h"
#include "server/base/clock.h"
#include "server/base/field_error.h"
#include "server/base/local_socket.h"
#include "server/base/mutex.h"
#include "server/base/token_file.h"

namespace agg {
namespace {

// A channel may outlive its client, and so does the reader.
absl::StatusOr<std::shared_ptr<TokenFile>> FileAt(const std::string& path) {
  static Mutex* const mutex = new Mutex;
  static auto* const files =
      new std::map<std::string, std::shared_ptr<TokenFile>>;
  MutexLock lock(mutex);
  std::shared_ptr<TokenFile>& file = (*files)[path];
  if (file != nullptr) return file;
  absl::StatusOr<std::unique_ptr<TokenFile>> opened =
      TokenFile::Open(path, Clock::Real());
  if (!opened.ok()) return opened.status();
  file = *std::move(opened);
  return file;
}

bool IsPrivate(const std::string& address) {
  if (absl::StartsWith(address, LocalSocketTarget(""))) return true;
  const absl::StatusOr<Address> parsed = ParseAddress(address);
  return parsed.ok() && IsLoopback(parsed->host);
}

}  // namespace

std::string WithTokenEnvironment(const std::string& token_file) {
  if (!token_file.empty()) return token_file;
  const char* const environment = std::getenv("AGG_TOKEN_FILE");
  return environment == nullptr ? "" : environment;
}

absl::Status CheckToken(const std::string& token_file,
                        const std::string& address, bool tls) {
  if (token_file.empty()) return absl::OkStatus();
  const absl::Status status = FileAt(token_file).status();
  if (!status.ok()) {
    // Whatever the reason: it is no connection that may come back.
    return absl::InvalidArgumentError(
        absl::StrCat("token_file is ", status.message(),
                     "; allowed: a file with a token a line"));
  }
  if (tls || IsPrivate(address)) return absl::OkStatus();
  return FieldError(
      "the address to send a token to", address,
      "with token_file and without TLS: a loopback address; the token would "
      "cross the network in clear text");
}

CallToken TokenFor(const std::string& token_file, const std::string& address,
                   bool tls) {
  if (token_file.empty() || !(tls || IsPrivate(address))) return nullptr;
  const absl::StatusOr<std::shared_ptr<TokenFile>> file = FileAt(token_file);
  if (!file.ok()) return nullptr;
  return [file = *file] { return file->first(); };
}

std::string LocalToken(const std::string& token_file) {
  if (token_file.empty()) return "";
  const absl::StatusOr<std::shared_ptr<TokenFile>> file = FileAt(token_file);
  return file.ok() ? (*file)->first() : "";
}

}  // namespace agg
