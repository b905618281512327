// slow_link: a link of a given rate, delay and loss between two network
// namespaces, where the kernel has no netem. Each of them gets a TUN device;
// a thread for each direction takes packets from the one and gives them to the
// other when the link would have (LinkQueue).
//
//   slow_link --from=NETNS --to=NETNS --mbit=N [--delay_ms=F] [--loss=F]
//             [--queue_kb=N] [--seed=N] [--device=NAME]
//
// Needs root. Prints {"ready": true} when the devices are there; addresses are
// the caller's to give. Then, for each line of stdin, how many packets have
// gone each way. Ends with stdin, and the devices with it.
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iostream>
#include <string>
#include <thread>  // NOLINT
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "server/base/file_descriptor.h"
#include "server/base/mutex.h"
#include "tests/bench/link_queue.h"

ABSL_FLAG(std::string, from, "", "network namespace of one end");
ABSL_FLAG(std::string, to, "", "network namespace of the other end");
ABSL_FLAG(std::string, device, "end", "name of the device in both");
ABSL_FLAG(int64_t, mbit, 1000, "10^6 bits per second, each way");
ABSL_FLAG(double, delay_ms, 0, "one way");
ABSL_FLAG(double, loss, 0, "percent of the packets, each way");
ABSL_FLAG(int64_t, queue_kb, 256, "1000 bytes before each direction");
ABSL_FLAG(uint64_t, seed, 1, "of the losses");

namespace agg {
namespace {

// More than any packet of a device whose MTU nobody has raised beyond it.
constexpr size_t kMaxPacketBytes = 65536;
// Packets that are taken before it is looked at what is due.
constexpr int kBatch = 32;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "slow_link: %s: %s\n", what.c_str(),
               std::strerror(errno));
  std::exit(1);
}

absl::Time Now() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::TimeFromTimespec(now);
}

// The namespace's end of the link. Moves this thread there.
FileDescriptor OpenDevice(const std::string& netns) {
  const std::string path = "/run/netns/" + netns;
  const FileDescriptor space(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!space.valid() || setns(space.get(), CLONE_NEWNET) != 0) Fail(path);
  FileDescriptor device(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!device.valid()) Fail("/dev/net/tun");
  ifreq request = {};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  absl::SNPrintF(request.ifr_name, IFNAMSIZ, "%s", absl::GetFlag(FLAGS_device));
  if (ioctl(device.get(), TUNSETIFF, &request) != 0) Fail("TUNSETIFF");
  return device;
}

LinkOptions Options(uint64_t direction) {
  LinkOptions options;
  options.bits_per_second = 1000000 * absl::GetFlag(FLAGS_mbit);
  options.delay = absl::Milliseconds(absl::GetFlag(FLAGS_delay_ms));
  options.loss = absl::GetFlag(FLAGS_loss) / 100;
  options.queue_bytes = 1000 * absl::GetFlag(FLAGS_queue_kb);
  options.seed = 2 * absl::GetFlag(FLAGS_seed) + direction;
  return options;
}

// From `in` to `out`, until Stop.
class Direction {
 public:
  Direction(const LinkOptions& options, int in, int out)
      : in_(in), out_(out), queue_(options) {
    thread_ = std::thread([this] { Run(); });
  }

  void Stop() {
    stopping_ = true;
    thread_.join();
  }

  std::string Counts() {
    MutexLock lock(&mutex_);
    const LinkCounts& counts = queue_.counts();
    return absl::StrFormat(
        "{\"packets\": %d, \"bytes\": %d, \"lost\": %d, \"dropped\": %d, "
        "\"refused\": %d, \"latest_us\": %.0f, \"mean_late_us\": %.1f}",
        counts.packets, counts.bytes, counts.lost, counts.dropped, refused_,
        absl::ToDoubleMicroseconds(counts.latest),
        counts.packets == 0
            ? 0.0
            : absl::ToDoubleMicroseconds(counts.all_late) / counts.packets);
  }

 private:
  void Run() {
    while (!stopping_) {
      absl::Time due;
      bool more;
      {
        MutexLock lock(&mutex_);
        more = Take();
        Give();
        due = queue_.next_due();
      }
      if (!more) Wait(due);
    }
  }

  // What the stack has sent; whether there may be more.
  bool Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (int i = 0; i < kBatch; ++i) {
      const ssize_t size = read(in_, buffer_, sizeof(buffer_));
      if (size <= 0) return false;
      queue_.Push(Now(), std::string(buffer_, static_cast<size_t>(size)));
    }
    return true;
  }

  void Give() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::string packet;
    const absl::Time now = Now();
    while (queue_.Pop(now, &packet)) {
      // The device is not up yet, or not any more.
      if (write(out_, packet.data(), packet.size()) < 0) ++refused_;
    }
  }

  // Not for long, to look at stopping_.
  void Wait(absl::Time due) const {
    const absl::Duration wait = std::min(
        std::max(due - Now(), absl::ZeroDuration()), absl::Milliseconds(100));
    const timespec timeout = absl::ToTimespec(wait);
    pollfd event = {in_, POLLIN, 0};
    ppoll(&event, 1, &timeout, nullptr);
  }

  const int in_;
  const int out_;
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  LinkQueue queue_ ABSL_GUARDED_BY(mutex_);
  int64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
  char buffer_[kMaxPacketBytes];  // of thread_ alone
  std::thread thread_;
};

int Run() {
  const absl::Status status = CheckLinkOptions(Options(0));
  if (!status.ok()) {
    std::fprintf(stderr, "slow_link: %s\n", status.ToString().c_str());
    return 1;
  }
  // A link that is late is another link: before all other processes, where the
  // system has such priorities.
  sched_param priority = {};
  priority.sched_priority = 1;
  if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0) {
    setpriority(PRIO_PROCESS, 0, -20);
  }
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  const FileDescriptor from = OpenDevice(absl::GetFlag(FLAGS_from));
  const FileDescriptor to = OpenDevice(absl::GetFlag(FLAGS_to));
  Direction forth(Options(0), from.get(), to.get());
  Direction back(Options(1), to.get(), from.get());
  std::puts("{\"ready\": true}");
  std::fflush(stdout);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::printf("{\"forth\": %s, \"back\": %s}\n", forth.Counts().c_str(),
                back.Counts().c_str());
    std::fflush(stdout);
  }
  forth.Stop();
  back.Stop();
  return 0;
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return agg::Run();
}
