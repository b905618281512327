// Memory of a process that receives large messages: of the server, and of
// workers that ask for it.
#ifndef AGG_SERVER_BASE_PROCESS_MEMORY_H_
#define AGG_SERVER_BASE_PROCESS_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace agg {

// Keeps freed memory in the process instead of returning it to the kernel. gRPC
// allocates memory for every message that it reads, and without this each page
// of it faults again. A push of 2 GiB took 335k page faults without and 89k
// with it, at about twice the throughput. To be called before large
// allocations, best before any thread. It also limits malloc to one arena per
// processor, unless MALLOC_ARENA_MAX says how many: each keeps what was freed
// in it.
//
// False, and nothing is changed: the environment has one of these settings
// (MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_, MALLOC_TOP_PAD_,
// glibc.malloc in GLIBC_TUNABLES), or the C library is another one.
bool TuneMalloc();

// Must be called by who has taken much memory for a moment: TrimIfAsked gives
// what is free by then back to the kernel, all but `keep_bytes` of it, on the
// thread that calls it, and says whether it was asked. Thread-safe.
void AskForTrim();
bool TrimIfAsked(size_t keep_bytes);

// values->resize(num_values), which touches all of it: memory as large as a
// shard's part. RESOURCE_EXHAUSTED, with the vector as it was: the host has no
// such memory; an exception would end the process.
// REQUIRES: num_values >= 0.
absl::Status TryResize(int64_t num_values, std::vector<float>* values);

}  // namespace agg

#endif  // AGG_SERVER_BASE_PROCESS_MEMORY_H_
