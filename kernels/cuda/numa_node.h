// Which memory of the host is near the card: on a machine of several sockets,
// bytes from another one's memory cross the link between them first.
#ifndef AGG_KERNELS_CUDA_NUMA_NODE_H_
#define AGG_KERNELS_CUDA_NUMA_NODE_H_

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace agg::cuda {

// Says of a machine that it gives less than was asked for: writes a line to
// stderr, unless whoever reads that has left no room: a round
// waits for no reader. At most PIPE_BUF (4096) bytes, the newline included.
inline void Complain(const std::string& line) {
  pollfd descriptor = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&descriptor, 1, /*timeout=*/0) <= 0) return;
  const std::string text = line.substr(0, 4095) + "\n";
  (void)!write(STDERR_FILENO, text.data(), text.size());
}

// Where pages go that are touched for the first time. Thread-safe.
class NumaNode {
 public:
  // Wherever the system puts them.
  NumaNode() = default;
  explicit NumaNode(int number) : number_(number) {}

  // That of the PCI device, "0000:1A:00.0", in whatever case, as `sysfs`
  // ("/sys") knows it; none where the machine has one node or does not say.
  static std::unique_ptr<const NumaNode> OfDevice(absl::string_view pci_bus_id,
                                                  const std::string& sysfs);

  int number() const { return number_; }  // below 0: none

  // Asks for memory on the node, for those pages of [memory, + num_bytes) that
  // nobody has touched yet; with none left there, they come from elsewhere. If
  // the system refuses, which a container may for want of CAP_SYS_NICE, they go
  // wherever it likes, and the first refusal is written to stderr. REQUIRES:
  // `memory` begins at a page.
  void Prefer(char* memory, int64_t num_bytes) const;

 private:
  const int number_ = -1;
  mutable std::atomic<bool> has_complained_{false};
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_NUMA_NODE_H_
