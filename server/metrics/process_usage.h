// What this process takes of its machine.
#ifndef AGG_SERVER_METRICS_PROCESS_USAGE_H_
#define AGG_SERVER_METRICS_PROCESS_USAGE_H_

namespace agg {

// NaN where the kernel does not say.
struct ProcessUsage {
  double resident_bytes = 0.0;      // physical memory, libraries included
  double virtual_bytes = 0.0;       // address space, used or not
  double cpu_seconds = 0.0;         // of all threads, user and system
  double start_time_seconds = 0.0;  // Unix time of the process's start
  double open_files = 0.0;          // file descriptors, sockets included
  double max_open_files = 0.0;      // the soft limit; +Inf: none
};

// Reads /proc/self: some tens of microseconds. Thread-safe.
ProcessUsage ReadProcessUsage();

}  // namespace agg

#endif  // AGG_SERVER_METRICS_PROCESS_USAGE_H_
