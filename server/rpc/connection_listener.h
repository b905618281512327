// Listens in gRPC's place. gRPC 1.51 takes connections without end, and when
// the process has no descriptor left for one it closes its port for good
// (grpc/grpc tcp_server_posix.cc, "Failed accept4"): whoever can connect could
// end a job. Here connections are bounded, and a failure of accept is for a
// moment.
#ifndef AGG_SERVER_RPC_CONNECTION_LISTENER_H_
#define AGG_SERVER_RPC_CONNECTION_LISTENER_H_

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "server/base/clock.h"
#include "server/base/file_descriptor.h"
#include "server/base/mutex.h"

namespace agg {

// Why an address cannot be listened on, by the errno.
//
// UNAVAILABLE with the system's reason and what to do.
absl::Status ListenError(absl::string_view address, int error);

// The other end as grpc::ServerContext::peer() has it, but for the percent
// signs: "ipv4:10.0.0.1:5000", "ipv6:[::1]:5000"; all Unix sockets are "unix:".
std::string PeerOf(const sockaddr_storage& address);

// What comes in, as the listener knows it.
struct NewConnection {
  int fd = -1;
  std::string host;     // of its other end; "unix" for a Unix socket
  std::string peer;     // PeerOf
  bool local = false;   // it is a Unix socket
  int32_t process = 0;  // at the other end of that; 0: not to be seen from here
};

// Which connections are open, whether one more may come in, and the end of one
// from outside gRPC, which knows no such call. Apart from the sockets so that
// tests can ask. gRPC does not say when it closes a connection. So each is
// known by its descriptor and what the descriptor is of (an inode), which is
// another one, or none, once it was closed. What is closed is looked for when
// places are short, and kLook apart at least. The last eighth of the places is
// for hosts with fewer than kFew connections: no host alone can keep others
// out.
//
// A connection is ended by shutdown(2): from then on no byte goes out, gRPC
// finds it broken, ends its calls, and lets go of what they had to send.
// Thread-safe.
class OpenConnections {
 public:
  static constexpr int kFew = 16;
  static constexpr absl::Duration kLook = absl::Milliseconds(50);

  // What is asked of the system.
  struct Calls {
    // The inode of an open descriptor; 0: it is closed.
    std::function<uint64_t(int fd)> inode;
    // Bytes that went out and were not taken by the other end (SIOCOUTQ).
    std::function<int64_t(int fd)> untaken;
    // shutdown(2), if the descriptor is of this inode still.
    std::function<void(int fd, uint64_t inode)> shut;
  };
  static uint64_t SystemInode(int fd);
  static Calls SystemCalls();

  // `most`: at least 1. `clock` outlives it.
  OpenConnections(int most, const Clock* clock, Calls calls = SystemCalls());

  // Whether the connection may come in, which counts from here on.
  bool Add(const NewConnection& connection);
  int size() const;
  int most() const { return most_; }

  // Ends the connection that a call came by, whose peer() this is. False: there
  // is none; those of Unix sockets have no name of their own, and none of them
  // is ended.
  bool End(absl::string_view peer);
  // Ends all of them: who is let in connects again.
  void EndAll();

  // The certificate that was shown when the connection of this peer() was
  // opened is good until then. Returns whether it is now. Unix sockets have no
  // name of their own: the first one that expires is kept for all of them.
  bool NoteExpiry(absl::string_view peer, absl::Time expires);
  // Whether that was noted, and it is not over yet.
  bool KnowsExpiry(absl::string_view peer) const;
  // Ends connections whose certificate is over, all of the Unix sockets for one
  // of these: who has a new certificate connects again. Returns their peer()s,
  // one text for all Unix sockets.
  std::vector<std::string> EndExpired();

  // The kernel ends a TCP connection whose other end takes nothing for a while
  // (TCP_USER_TIMEOUT), but no Unix socket's, and gRPC's keepalive cannot: its
  // ping waits behind the bytes that are stuck. Ends the local connections that
  // have taken nothing of what waits for them for `timeout`, by the looks of
  // the former calls; returns their processes. To be called about once a
  // second.
  std::vector<int32_t> EndStuck(absl::Duration timeout);
  // Ends the local connections that have taken nothing since the last EndStuck,
  // if that is long enough ago to tell (kLook), each once. Returns their
  // processes.
  std::vector<int32_t> EndUnread();
  // Processes at the other end of local connections that have bytes to take.
  std::vector<int32_t> Unread() const;

 private:
  struct Connection {
    uint64_t inode;
    NewConnection of;
    int64_t untaken = 0;  // at the last look
    absl::Time since;     // when that changed last
    absl::Time looked;
    bool ended = false;                  // from here; gRPC closes it
    absl::optional<absl::Time> expires;  // TCP's
  };
  using Entry = std::map<int, Connection>::iterator;

  bool HasRoom(const std::string& host) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(Entry connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetClosed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Shut(Entry connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null: there is none. Of TCP alone.
  const Connection* Find(absl::string_view peer) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int most_;
  const Clock* const clock_;
  const Calls calls_;
  mutable Mutex mutex_;
  absl::Time looked_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  // Connections by descriptor; some may be closed.
  std::map<int, Connection> open_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> of_host_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> of_peer_ ABSL_GUARDED_BY(mutex_);  // TCP's
  absl::Time local_expires_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
};

// How many connections a process may have that wants `wanted` of them: as many
// as its files allow, beside those it needs for other things. Raises the
// process's soft limit of files as far as that helps.
int PlacesForConnections(int wanted);

// Readers whose version was written over before they took its last bytes: who
// they are is said, and counted, and who could take what is left for a version
// loses its connection. Thread-safe.
class OvertakenReaders {
 public:
  // Time between two lines of the log; what comes between them is counted.
  static constexpr absl::Duration kQuiet = absl::Seconds(10);

  // `connections` may be null: then none is ended. `clock` outlives it.
  explicit OvertakenReaders(std::shared_ptr<OpenConnections> connections,
                            const Clock* clock = Clock::Real())
      : connections_(std::move(connections)), clock_(clock) {}

  struct Reader {
    std::string who;   // "rank 3 (session 7)", or "the pull of guest"
    std::string peer;  // grpc::ServerContext::peer()
    uint64_t version = 0;
    // Whether the connection is to be ended, as VersionFlow::Events::overtaken
    // says. Which connection of a Unix socket is the reader's is not known: all
    // that take nothing are ended.
    bool cut = false;
  };
  void Note(const Reader& reader);

  // Counts the frames of versions that readers have taken. One that goes up
  // says that some reader still reads.
  void NoteTaken() { ++num_taken_; }
  int64_t num_taken() const { return num_taken_; }

 private:
  const std::shared_ptr<OpenConnections> connections_;
  const Clock* const clock_;
  std::atomic<int64_t> num_taken_{0};
  Mutex mutex_;
  int64_t unsaid_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time said_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

// Sockets that listen on "host:port" (port 0: any; IPv6 in brackets; every
// address of a name; 0.0.0.0 and [::] are all addresses of both kinds), with no
// SO_REUSEPORT: two servers on one port are an error. UNAVAILABLE with the
// system's reason.
absl::StatusOr<std::vector<FileDescriptor>> ListenOn(absl::string_view address);

// The port of such a socket.
int PortOf(const FileDescriptor& socket);

// Connections come in from construction to destruction, on a thread of its own,
// which also ends those of Unix sockets whose other end takes nothing for
// kUserTimeout, as the kernel does with TCP's.
class ConnectionListener {
 public:
  // Takes a connection, which does not block; `local`: of a Unix socket.
  using Take = std::function<void(int listener, int fd, bool local)>;
  // Time without a byte that the other end takes, while some wait, after which
  // a connection ends: gRPC has as much for its own sockets (its keepalive
  // timeout).
  static constexpr absl::Duration kUserTimeout = absl::Seconds(20);

  struct Parts {
    std::vector<FileDescriptor> ports;
    std::vector<FileDescriptor> local_sockets;
    // Counts them, and ends them; those beyond its limit are closed at once.
    std::shared_ptr<OpenConnections> open;
    Take take;
    std::function<void(const std::string& host)> on_refused;  // may be null
    absl::Duration user_timeout = kUserTimeout;
  };
  explicit ConnectionListener(Parts parts);
  // Stops listening. Connections that are open stay.
  ~ConnectionListener();
  ConnectionListener(const ConnectionListener&) = delete;
  ConnectionListener& operator=(const ConnectionListener&) = delete;

 private:
  void Loop();
  // Accepts a connection. False: there was none, or no memory for it.
  bool AcceptOne(int listener, bool local);
  void EndStuck();

  const Parts parts_;
  const FileDescriptor stop_;
  bool failing_ = false;  // the thread's: the last accept, for want of memory
  std::thread thread_;    // last: it uses the others
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_CONNECTION_LISTENER_H_
