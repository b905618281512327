// raw_limits: what this machine gives to programs that do nothing but move
// bytes. The floor under deploy/bench.sh's numbers, measured in turns with
// them.
//
//   raw_limits --workers=P --bytes=N [--memory_bytes=N]
//
// Prints {"ready": true}. Then, for each line `N` of stdin, moves everything
// again and prints {"memcpy_1": G, "memcpy_2": G, "read_1": G, "read_2": G,
// "socket_ms": [M, ..]} with GB/s of 1 and 2 threads, and N times of a bare
// round over loopback TCP: each of P connections carries N bytes into memory of
// its own, and N bytes back once all have come, as a round's rows and
// parameters do, with no framing and no arithmetic.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>  // NOLINT
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <string>
#include <thread>  // NOLINT
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cpu/thread_pool.h"
#include "tests/bench/process_barrier.h"
#include "tests/bench/stream_limits.h"

ABSL_FLAG(int, workers, 4, "connections");
ABSL_FLAG(int64_t, bytes, 100000000, "each way on each connection");
ABSL_FLAG(int64_t, memory_bytes, int64_t{64} << 20, "that are copied and read");

namespace agg {
namespace {

constexpr int64_t kCallBytes = int64_t{1} << 20;  // of a send or recv

// Aligned to a page, as stream_limits' vectors want.
struct Pages {
  explicit Pages(int64_t num_bytes)
      : data(static_cast<char*>(std::aligned_alloc(
            4096, (std::max<int64_t>(num_bytes, 1) + 4095) / 4096 * 4096))) {
    std::fill(data, data + num_bytes, 1);
  }
  Pages(Pages&& other) noexcept : data(std::exchange(other.data, nullptr)) {}
  ~Pages() { std::free(data); }
  char* data;
};

double Seconds(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

void Check(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::exit(1);
}

void SendAll(int socket, const char* data, int64_t num_bytes) {
  for (int64_t done = 0; done < num_bytes;) {
    const ssize_t sent =
        send(socket, data + done, std::min(num_bytes - done, kCallBytes), 0);
    Check(sent > 0, "send");
    done += sent;
  }
}

void ReceiveAll(int socket, char* data, int64_t num_bytes) {
  for (int64_t done = 0; done < num_bytes;) {
    const ssize_t got =
        recv(socket, data + done, std::min(num_bytes - done, kCallBytes), 0);
    Check(got > 0, "recv");
    done += got;
  }
}

// A TCP connection of loopback, both ends.
std::pair<int, int> ConnectedPair() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  Check(bind(listener, any, size) == 0 && listen(listener, 1) == 0 &&
            getsockname(listener, any, &size) == 0,
        "listen");
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  Check(connect(client, any, size) == 0, "connect");
  const int server = accept(listener, nullptr, nullptr);
  Check(server >= 0, "accept");
  close(listener);
  const int on = 1;
  for (const int end : {client, server}) {
    setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  return {client, server};
}

// The bare round: connections that stay, and a thread at each end of each.
class SocketStar {
 public:
  SocketStar(int num_workers, int64_t num_bytes)
      : num_workers_(num_workers), num_bytes_(num_bytes), sent_(num_bytes) {
    for (int w = 0; w < num_workers; ++w) {
      pairs_.push_back(ConnectedPair());
      rows_.emplace_back(num_bytes);
      parameters_.emplace_back(num_bytes);
    }
  }

  // The milliseconds of each round: from the first send to the last receipt.
  std::vector<double> Run(int num_rounds) {
    std::vector<double> begins(num_rounds * num_workers_);
    std::vector<double> ends(begins.size());
    const auto start = std::chrono::steady_clock::now();
    BarrierState before_round, rows_complete;
    std::vector<std::thread> threads;
    for (int w = 0; w < num_workers_; ++w) {
      threads.emplace_back([&, w] {
        for (int round = 0; round < num_rounds; ++round) {
          WaitAtBarrier(&before_round, num_workers_);
          begins[round * num_workers_ + w] = Seconds(start);
          SendAll(pairs_[w].first, sent_.data, num_bytes_);
          ReceiveAll(pairs_[w].first, parameters_[w].data, num_bytes_);
          ends[round * num_workers_ + w] = Seconds(start);
        }
      });
      threads.emplace_back([&, w] {
        for (int round = 0; round < num_rounds; ++round) {
          ReceiveAll(pairs_[w].second, rows_[w].data, num_bytes_);
          WaitAtBarrier(&rows_complete, num_workers_);
          SendAll(pairs_[w].second, sent_.data, num_bytes_);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<double> milliseconds;
    for (int round = 0; round < num_rounds; ++round) {
      const int first = round * num_workers_;
      const int last = first + num_workers_;
      milliseconds.push_back(
          1e3 *
          (*std::max_element(ends.begin() + first, ends.begin() + last) -
           *std::min_element(begins.begin() + first, begins.begin() + last)));
    }
    return milliseconds;
  }

 private:
  const int num_workers_;
  const int64_t num_bytes_;
  const Pages sent_;
  std::vector<std::pair<int, int>> pairs_;  // worker's end, server's end
  std::vector<Pages> rows_;
  std::vector<Pages> parameters_;
};

// GB/s of the fastest of some tries: a limit is what nothing else disturbs.
template <typename Work>
double Fastest(int64_t num_bytes, Work work) {
  double seconds = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    seconds = std::min(seconds, Seconds(begin));
  }
  return num_bytes / seconds * 1e-9;
}

// By number of threads, as members of a JSON object.
std::string MemoryLimits(const Pages& from, const Pages& to,
                         int64_t num_bytes) {
  std::string text;
  volatile double sum = 0;  // the reading must not be left out
  for (const int num_threads : {1, 2}) {
    ThreadPool pool(num_threads);
    const double copy = Fastest(
        num_bytes, [&] { CopyAll(&pool, from.data, to.data, num_bytes); });
    const double read =
        Fastest(num_bytes, [&] { sum = ReadAll(&pool, from.data, num_bytes); });
    absl::StrAppend(&text, "\"memcpy_", num_threads, "\": ", copy, ", \"read_",
                    num_threads, "\": ", read, ", ");
  }
  return text;
}

int Main() {
  // Of complete units of stream_limits.
  const int64_t memory_bytes =
      std::max<int64_t>(absl::GetFlag(FLAGS_memory_bytes) >> 20, 1) << 20;
  const Pages from(memory_bytes), to(memory_bytes);
  SocketStar star(absl::GetFlag(FLAGS_workers), absl::GetFlag(FLAGS_bytes));
  std::puts("{\"ready\": true}");
  std::fflush(stdout);
  int num_rounds = 0;
  while (std::cin >> num_rounds) {
    const std::string memory = MemoryLimits(from, to, memory_bytes);
    const std::string sockets = absl::StrJoin(star.Run(num_rounds), ", ");
    std::printf("{%s\"socket_ms\": [%s]}\n", memory.c_str(), sockets.c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return agg::Main();
}
