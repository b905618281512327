// A TCP relay between two ends, whose connections a test can cut.
#ifndef AGG_TESTS_SERVER_RPC_TCP_RELAY_H_
#define AGG_TESTS_SERVER_RPC_TCP_RELAY_H_

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"

namespace agg {

// Passes bytes between who connects to address() and the target. Thread-safe.
class TcpRelay {
 public:
  // `target`: "127.0.0.1:port".
  explicit TcpRelay(const std::string& target);
  ~TcpRelay();

  std::string address() const;
  // New connections go there.
  void Redirect(const std::string& target);
  // Throws away what the target sends from now on.
  void Mute();
  // Returns when something has been thrown away since Mute.
  void AwaitMuted();
  // Ends all connections, and Mute; new connections are let through.
  void Cut();
  // Cut; nobody listens any more.
  void Close();

 private:
  void Accept();
  void Pass(int from, int to, bool from_target);
  void CutLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  int listener_ = -1;
  int port_ = 0;
  Mutex mutex_;
  CondVar changed_;
  int target_port_ ABSL_GUARDED_BY(mutex_);
  bool mute_ ABSL_GUARDED_BY(mutex_) = false;
  bool muted_any_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // Each connection's two sockets; closed by the destructor alone, so that no
  // thread reads a number that has another meaning meanwhile.
  std::vector<int> sockets_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> passers_ ABSL_GUARDED_BY(mutex_);
  std::thread acceptor_;
};

}  // namespace agg

#endif  // AGG_TESTS_SERVER_RPC_TCP_RELAY_H_
