// Workers as processes of their own whose gradients and parameters are on the
// shard's card.
#ifndef AGG_TESTS_BENCH_WORKER_PROCESSES_H_
#define AGG_TESTS_BENCH_WORKER_PROCESSES_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "proto/shard_plan.h"

namespace agg {

// Of a row of so many elements, several tensors. REQUIRES: a multiple of 16.
Manifest DeviceRowManifest(int64_t num_elements);

// This program, started again for each of them; its main asks RunAsWorker
// first. All of it ends this process if one of them does not answer.
class WorkerProcesses {
 public:
  // Returns when all have joined and have the parameters.
  WorkerProcesses(const std::string& coordinator, int num_workers,
                  int64_t num_elements);
  // Ends them.
  ~WorkerProcesses();
  WorkerProcesses(const WorkerProcesses&) = delete;
  WorkerProcesses& operator=(const WorkerProcesses&) = delete;

  // A round of all: returns when each has its version.
  void Step();

 private:
  // Waits for a word of each.
  void Await();

  struct Worker {
    pid_t process = 0;
    int socket = -1;
  };
  std::vector<Worker> workers_;
};

// Whether the arguments are those of a worker: then this was its life, and
// *status is what the process ends with.
bool RunAsWorker(int argc, char** argv, int* status);

}  // namespace agg

#endif  // AGG_TESTS_BENCH_WORKER_PROCESSES_H_
