// The server's side of TLS over bytes that somebody else moves: OpenSSL does
// the protocol, and touches no socket.
#ifndef AGG_SERVER_TLS_TLS_SESSION_H_
#define AGG_SERVER_TLS_TLS_SESSION_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/base/mutex.h"
#include "server/tls/tls_reload.h"

namespace agg {

// One connection. Used by one thread.
class TlsSession {
 public:
  // Bytes that Write takes at most.
  static constexpr size_t kMaxWrite = 16384;

  virtual ~TlsSession() = default;

  // Bytes that came from the other end.
  virtual void Feed(absl::string_view bytes) = 0;
  // What has to be sent there, and was not taken yet; look after each call.
  virtual std::string TakeOutput() = 0;

  // Plain bytes of what was fed: their number; 0: it takes more first; below 0:
  // it is over, by the other end's word or by an error. Shakes hands first.
  virtual ssize_t Read(char* bytes, size_t num_bytes) = 0;
  // Encrypts at most kMaxWrite of them; the number, or below 0: it is over.
  // REQUIRES: something has been read, so that hands are shaken, or it is over.
  virtual ssize_t Write(absl::string_view bytes) = 0;
  // Says that no more comes, so that a cut answer is known for one.
  virtual void End() = 0;
};

// Makes sessions with a server's certificate, always the newest: those that are
// there keep theirs. Nobody is asked for a certificate. TLS 1.2 and newer,
// without resumption and renegotiation. Thread-safe.
class TlsAcceptor {
 public:
  // INVALID_ARGUMENT if OpenSSL takes the files not at all (a key that is too
  // small, say). `files`: opened; outlives it and its sessions.
  static absl::StatusOr<std::unique_ptr<TlsAcceptor>> Make(TlsReload* files);
  ~TlsAcceptor();

  // Null: the system is out of memory.
  std::unique_ptr<TlsSession> Accept();

 private:
  struct Context;
  explicit TlsAcceptor(TlsReload* files);
  absl::Status Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  TlsReload* const files_;
  Mutex mutex_;
  uint64_t seen_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<Context> context_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_TLS_TLS_SESSION_H_
