// copy_threads: what it brings to split the copy of a row, or of a version,
// over threads, where as many workers of the host copy theirs at the same time.
//
//   copy_threads [--bytes=N] [--repetitions=R]     (under chrt -r 10 on a
//                                                  shared machine)
//
// P workers (1, 2, 4) each copy N bytes to memory of their own with T threads
// (1, 2), in slices of 4 MiB as a client does, with CopyBytes; P and T take
// turns. Prints the medians, from the start of all workers to the end of the
// last one, and the ratio to one thread.
#include <algorithm>
#include <atomic>
#include <chrono>  // NOLINT
#include <cstdint>
#include <cstdio>
#include <memory>
#include <thread>  // NOLINT
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "proto/stream_copy.h"

ABSL_FLAG(int64_t, bytes, 100000000, "that each worker copies");
ABSL_FLAG(int, repetitions, 15, "of each combination");

namespace agg {
namespace {

constexpr int64_t kSliceBytes = int64_t{4} << 20;
constexpr int kWorkers[] = {1, 2, 4};
constexpr int kThreads[] = {1, 2};

struct Memory {
  explicit Memory(int64_t bytes) : from(bytes, 1), to(bytes, 2) {}
  std::vector<char> from;
  std::vector<char> to;
};

// One thread's part of each slice.
void CopyPart(Memory* memory, int thread, int num_threads) {
  const auto bytes = static_cast<int64_t>(memory->from.size());
  for (int64_t begin = 0; begin < bytes; begin += kSliceBytes) {
    const int64_t size = std::min(kSliceBytes, bytes - begin);
    const int64_t first = size * thread / num_threads / 64 * 64;
    const int64_t end = thread + 1 == num_threads
                            ? size
                            : size * (thread + 1) / num_threads / 64 * 64;
    CopyBytes(memory->to.data() + begin + first,
              memory->from.data() + begin + first,
              static_cast<size_t>(end - first));
  }
}

double Milliseconds(int num_workers, int num_threads,
                    std::vector<std::unique_ptr<Memory>>* memory) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (int worker = 0; worker < num_workers; ++worker) {
    for (int thread = 0; thread < num_threads; ++thread) {
      threads.emplace_back([&, worker, thread] {
        ++ready;
        while (!go) std::this_thread::yield();
        CopyPart((*memory)[worker].get(), thread, num_threads);
      });
    }
  }
  while (ready < num_workers * num_threads) std::this_thread::yield();
  const auto begin = std::chrono::steady_clock::now();
  go = true;
  for (std::thread& thread : threads) thread.join();
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now() - begin)
      .count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Run() {
  std::vector<std::unique_ptr<Memory>> memory;
  for (int i = 0; i < 4; ++i) {
    memory.push_back(std::make_unique<Memory>(absl::GetFlag(FLAGS_bytes)));
  }
  std::vector<double> times[3][2];
  for (int r = 0; r < absl::GetFlag(FLAGS_repetitions) + 2; ++r) {
    for (int p = 0; p < 3; ++p) {
      for (int t = 0; t < 2; ++t) {
        const double time = Milliseconds(kWorkers[p], kThreads[t], &memory);
        if (r >= 2) times[p][t].push_back(time);  // after two to warm up
      }
    }
  }
  std::printf("workers  1 thread, ms  2 threads, ms  ratio\n");
  for (int p = 0; p < 3; ++p) {
    const double one = Median(times[p][0]), two = Median(times[p][1]);
    std::printf("%7d  %12.2f  %13.2f  %5.2f\n", kWorkers[p], one, two,
                two / one);
  }
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  agg::Run();
  return 0;
}
