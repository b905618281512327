// Settings of glibc's malloc for a process that receives large messages: of the
// server, and of workers that ask for it.
#ifndef AGG_SERVER_BASE_MALLOC_TUNING_H_
#define AGG_SERVER_BASE_MALLOC_TUNING_H_

#include <cstddef>

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

// To be called by who has taken much memory for a moment: TrimIfAsked gives
// what is free by then back to the kernel, all but `keep_bytes` of it, on the
// thread that calls it, and says whether it was asked. Thread-safe.
void AskForTrim();
bool TrimIfAsked(size_t keep_bytes);

}  // namespace agg

#endif  // AGG_SERVER_BASE_MALLOC_TUNING_H_
