// What the system has been asked about the place of memory.
#ifndef AGG_TESTS_KERNELS_CUDA_MEMORY_POLICY_H_
#define AGG_TESTS_KERNELS_CUDA_MEMORY_POLICY_H_

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace agg {

// How pages at `memory` are placed: MPOL_DEFAULT, MPOL_PREFERRED, ..; below 0
// if the system does not say.
inline int MemoryPolicy(const void* memory) {
  int mode = -1;
  const int64_t result = syscall(SYS_get_mempolicy, &mode, nullptr, int64_t{0},
                                 memory, int64_t{MPOL_F_ADDR});
  return result == 0 ? mode : -1;
}

// Whether this process may ask for node 0: containers may refuse it.
inline bool MayPlaceMemory() {
  const uint64_t node = 1;
  alignas(4096) static char page[4096];
  if (syscall(SYS_mbind, page, int64_t{4096}, MPOL_PREFERRED, &node,
              int64_t{65}, int64_t{0}) != 0) {
    return false;
  }
  return MemoryPolicy(page) == MPOL_PREFERRED;
}

}  // namespace agg

#endif  // AGG_TESTS_KERNELS_CUDA_MEMORY_POLICY_H_
