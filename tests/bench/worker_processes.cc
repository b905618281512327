// Each worker has a socket: a byte to it asks for a round, a byte from it says
// that it is done. It ends when its socket does.
#include "tests/bench/worker_processes.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/device_memory/cuda_driver.h"
#include "kernels/device_memory/device_context.h"
#include "server/base/log.h"
#include "tests/bench/cuda_must.h"
#include "tests/bench/device_fill.h"
#include "tests/bench/round_parts.h"
#include "tests/e2e/loopback_job.h"
#include "worker_client/agg_client.h"

namespace agg {
namespace {

constexpr char kWorker[] = "--worker";
constexpr int kNumArguments = 6;  // program, kWorker, and what Start says

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

// Argument 2: coordinator, 3: rank, 4: elements, 5: the socket.
void RunWorker(char** argv) {
  SetLogLevel(LogLevel::kWarning);
  const int rank = std::atoi(argv[3]);
  const int socket = std::atoi(argv[5]);
  const Manifest manifest = DeviceRowManifest(std::atoll(argv[4]));
  const auto context =
      Must(DeviceContext::Retain(Must(CudaDriver::Load("")), 0));
  const cuda::Stream stream = Must(cuda::MakeStream());
  DeviceFill fill(stream.get());
  const DeviceTensors gradient(context, manifest,
                               100 + 16 * static_cast<uint32_t>(rank), &fill);
  const DeviceTensors parameters(context, manifest, 7, &fill);
  ClientOptions options;
  options.coordinator = argv[2];
  options.rank = rank;
  options.manifest = manifest;
  const auto client = Must(AggClient::Connect(options));
  Must(client->SeedOrPull(parameters.targets()));
  char byte = 0;
  while (write(socket, &byte, 1) == 1 && read(socket, &byte, 1) == 1) {
    Must(client->PushPull(gradient.views(), {}, parameters.targets()).status());
  }
}

}  // namespace

Manifest DeviceRowManifest(int64_t num_elements) {
  constexpr int64_t kTensors = 16;
  return ShapedManifest(
      std::vector<std::vector<int64_t>>(kTensors, {num_elements / kTensors}));
}

WorkerProcesses::WorkerProcesses(const std::string& coordinator,
                                 int num_workers, int64_t num_elements) {
  for (int rank = 0; rank < num_workers; ++rank) {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
      Die("socketpair");
    }
    // Formed before the fork: a child of a process with threads may not.
    const std::string rank_text = absl::StrCat(rank);
    const std::string elements_text = absl::StrCat(num_elements);
    const int child_socket = dup(sockets[1]);  // stays open behind exec
    const std::string socket_text = absl::StrCat(child_socket);
    const pid_t process = fork();
    if (process < 0) Die("fork");
    if (process == 0) {
      execl("/proc/self/exe", "worker", kWorker, coordinator.c_str(),
            rank_text.c_str(), elements_text.c_str(), socket_text.c_str(),
            nullptr);
      _exit(127);
    }
    close(sockets[1]);
    close(child_socket);
    workers_.push_back({process, sockets[0]});
  }
  Await();
}

WorkerProcesses::~WorkerProcesses() {
  for (const Worker& worker : workers_) close(worker.socket);
  for (const Worker& worker : workers_) waitpid(worker.process, nullptr, 0);
}

void WorkerProcesses::Step() {
  for (const Worker& worker : workers_) {
    const char byte = 0;
    if (send(worker.socket, &byte, 1, MSG_NOSIGNAL) != 1) Die("a worker");
  }
  Await();
}

void WorkerProcesses::Await() {
  for (const Worker& worker : workers_) {
    char byte = 0;
    if (read(worker.socket, &byte, 1) != 1) {
      std::fprintf(stderr, "a worker's process has ended\n");
      for (const Worker& other : workers_) kill(other.process, SIGKILL);
      std::exit(1);
    }
  }
}

bool RunAsWorker(int argc, char** argv, int* status) {
  if (argc != kNumArguments || std::strcmp(argv[1], kWorker) != 0) return false;
  RunWorker(argv);
  *status = 0;
  return true;
}

}  // namespace agg
