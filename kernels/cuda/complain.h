// What a backend says of a machine that gives less than was asked for.
#ifndef AGG_KERNELS_CUDA_COMPLAIN_H_
#define AGG_KERNELS_CUDA_COMPLAIN_H_

#include <poll.h>
#include <unistd.h>

#include <string>

namespace agg::cuda {

// Writes a line to stderr, unless whoever reads that has left no room: a round
// waits for no reader. At most PIPE_BUF (4096) bytes, the newline included.
inline void Complain(const std::string& line) {
  pollfd descriptor = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&descriptor, 1, /*timeout=*/0) <= 0) return;
  const std::string text = line.substr(0, 4095) + "\n";
  (void)!write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_COMPLAIN_H_
