// The arguments of a gRPC channel, each with its reason.
#include "worker_client/channel.h"

#include <grpcpp/support/channel_arguments.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/grpc_channel.h"
#include "proto/grpc_transport.h"
#include "server/base/address.h"
#include "server/base/clock.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"
#include "server/base/local_socket.h"
#include "server/base/mutex.h"
#include "server/base/status_macros.h"
#include "server/base/token_file.h"

namespace agg {

namespace {

// Of the first client; 0: there was none. A child has its parent's memory, and
// so its number.
std::atomic<int64_t> process{0};

}  // namespace

absl::Status CheckNotForked() {
  const int64_t first = process;
  if (first == 0 || first == getpid()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "process ", getpid(), " is a fork of ", first,
      ", which has had a client, and no client works in a fork of that; "
      "connect in a process that was started by exec (of Python's "
      "multiprocessing: \"spawn\" or \"forkserver\"), or fork before the first "
      "client is made"));
}

void NoteConnecting() {
  AGG_DCHECK(CheckNotForked().ok());
  process = getpid();
}

namespace {

// A channel may outlive its client, and so does the reader.
absl::StatusOr<std::shared_ptr<TokenFile>> FileAt(const std::string& path) {
  static Mutex* const mutex = new Mutex;
  static auto* const files =
      new std::map<std::string, std::shared_ptr<TokenFile>>;
  MutexLock lock(mutex);
  std::shared_ptr<TokenFile>& file = (*files)[path];
  if (file != nullptr) return file;
  AGG_ASSIGN_OR_RETURN(file, TokenFile::Open(path, Clock::Real()));
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

// An empty variable counts as none.

namespace {

void Take(const char* name, std::string* value) {
  const char* const found = std::getenv(name);
  if (value->empty() && found != nullptr) *value = found;
}

}  // namespace

TlsOptions WithTlsEnvironment(TlsOptions tls) {
  const bool own = !tls.certificate.empty() || !tls.key.empty();
  Take("AGG_TLS_CA", &tls.ca);
  Take("AGG_TLS_SERVER_NAME", &tls.server_name);
  if (own) return tls;
  Take("AGG_TLS_CERTIFICATE", &tls.certificate);
  Take("AGG_TLS_KEY", &tls.key);
  return tls;
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const TlsOptions& tls,
                                           const std::string& token_file) {
  return MakeChannel(address, tls, token_file, address);
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target,
                                           const TlsOptions& tls,
                                           const std::string& token_file,
                                           const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxHttp2FrameBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // Despite its name: the time limit of one connection attempt.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  // 0: no limit. Waiting for a round sends no data for long.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A restarted pod has another address within seconds; the default is 30 s.
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
  // Its DNS TXT lookup delays the first connection and finds nothing.
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  return NewGrpcChannel(target, address, tls,
                        TokenFor(token_file, target, tls.any()), arguments);
}

}  // namespace agg
