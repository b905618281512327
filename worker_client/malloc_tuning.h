// Settings of glibc's malloc for a process that receives large messages. Apart
// because this is the only part of the client that is not portable.
#ifndef AGG_WORKER_CLIENT_MALLOC_TUNING_H_
#define AGG_WORKER_CLIENT_MALLOC_TUNING_H_

namespace agg {

// Keeps freed memory in the process instead of returning it to the kernel. gRPC
// allocates memory for every message that it reads, and without this each page
// of it faults again. A push of 2 GiB took 335k page faults without and 89k
// with it, at about twice the throughput. Leaves settings of the environment
// (MALLOC_*) alone. Does nothing with another C library.
void TuneMalloc();

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_MALLOC_TUNING_H_
