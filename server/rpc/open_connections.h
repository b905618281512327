// Which connections are open, and whether one more may come in. Apart from the
// sockets so that tests can ask.
#ifndef AGG_SERVER_RPC_OPEN_CONNECTIONS_H_
#define AGG_SERVER_RPC_OPEN_CONNECTIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "server/base/clock.h"

namespace agg {

// gRPC does not say when it closes a connection. So each is known by its
// descriptor and what the descriptor is of (an inode), which is another one, or
// none, once it was closed. What is closed is looked for when places are short,
// and kLook apart at least. The last eighth of the places is for hosts with
// fewer than kFew connections: no host alone can keep others out.
// Thread-compatible.
class OpenConnections {
 public:
  static constexpr int kFew = 16;
  static constexpr absl::Duration kLook = absl::Milliseconds(50);

  // The inode of an open descriptor; 0: it is closed.
  using Inode = std::function<uint64_t(int fd)>;
  static uint64_t SystemInode(int fd);

  // `most`: at least 1. `clock` outlives it.
  OpenConnections(int most, const Clock* clock, Inode inode = SystemInode);

  // Whether the connection may come in, which counts from here on. `host`: of
  // its other end.
  bool Add(int fd, const std::string& host);
  int size() const { return static_cast<int>(open_.size()); }

 private:
  struct Connection {
    uint64_t inode;
    std::string host;
  };

  bool HasRoom(const std::string& host) const;
  void Forget(std::map<int, Connection>::iterator connection);
  void ForgetClosed();

  const int most_;
  const Clock* const clock_;
  const Inode inode_;
  absl::Time looked_ = absl::InfinitePast();
  std::map<int, Connection> open_;  // by descriptor; some may be closed
  std::map<std::string, int> of_host_;
};

// How many connections a process may have that wants `wanted` of them: as many
// as its files allow, beside those it needs for other things. Raises the
// process's soft limit of files as far as that helps.
int PlacesForConnections(int wanted);

}  // namespace agg

#endif  // AGG_SERVER_RPC_OPEN_CONNECTIONS_H_
