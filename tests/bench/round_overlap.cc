// What overlap is worth: whole steps of training with a model whose layers take
// time to compute, with blocking calls and with operations, in turns in one
// run. The time for a layer is slept, as if a device computed it; with --spin
// it takes a core, as if this host did.
//
//   round_overlap [--workers=N] [--shards=N] [--layers=N] [--mebi_elements=N]
//                 [--compute_ms=N] [--rounds=N] [--spin] [--smoke]
//
// A step is a forward pass (a third of --compute_ms), a backward pass (the
// rest, the last layer first) and a round. Blocking: PushPull after the
// backward pass. Operations: each layer is pushed when its gradient is there
// (StartPush), and each forward layer begins when its parameters are
// (WaitForTensor). Prints means per step by the wall clock, of blocks of
// --rounds steps: the median of 5 blocks after one to warm up.
#include <algorithm>
#include <chrono>  // NOLINT
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/base/log.h"
#include "server/base/process_memory.h"
#include "tests/e2e/loopback_job.h"
#include "worker_client/agg_client.h"

namespace agg {
namespace {

struct Flags {
  int workers = 2;
  int shards = 1;
  int layers = 8;
  int mebi_elements = 8;  // in all
  int compute_ms = 60;
  int rounds = 10;
  bool spin = false;
};

bool ParseFlags(int argc, char** argv, Flags* flags) {
  const struct {
    absl::string_view name;
    int* to;
  } numbers[] = {{"--workers", &flags->workers},
                 {"--shards", &flags->shards},
                 {"--layers", &flags->layers},
                 {"--mebi_elements", &flags->mebi_elements},
                 {"--compute_ms", &flags->compute_ms},
                 {"--rounds", &flags->rounds}};
  for (int i = 1; i < argc; ++i) {
    const absl::string_view flag = argv[i];
    if (flag == "--smoke") {
      flags->mebi_elements = flags->rounds = flags->compute_ms = 1;
    } else if (flag == "--spin") {
      flags->spin = true;
    } else {
      const std::vector<absl::string_view> parts = absl::StrSplit(flag, '=');
      const auto* const end = std::end(numbers);
      const auto* const found =
          std::find_if(std::begin(numbers), end,
                       [&](const auto& each) { return each.name == parts[0]; });
      if (parts.size() != 2 || found == end ||
          !absl::SimpleAtoi(parts[1], found->to) || *found->to < 1) {
        return false;
      }
    }
  }
  return true;
}

void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

// One worker and its model, which only takes time.
class Worker {
 public:
  Worker(const Flags& flags, const LoopbackJob& job, int rank)
      : flags_(flags),
        manifest_(ShapedManifest(std::vector<std::vector<int64_t>>(
            flags.layers,
            {flags.mebi_elements * int64_t{1048576} / flags.layers}))),
        parameters_(MakeTensors(manifest_, 7)),
        gradient_(MakeTensors(manifest_, 100 + static_cast<uint64_t>(rank))) {
    auto client = AggClient::Connect(job.Options(rank, manifest_));
    Must(client.status());
    client_ = *std::move(client);
    for (const TensorSpec& spec : manifest_.tensors) {
      options_.first.push_back(spec.name);
    }
  }

  void Seed() { Must(client_->SeedOrPull(MutableViews(&parameters_))); }

  void BlockingSteps() {
    for (int round = 0; round < flags_.rounds; ++round) {
      for (int layer = 0; layer < flags_.layers; ++layer) Compute(1);
      for (int layer = 0; layer < flags_.layers; ++layer) Compute(2);
      Must(client_->PushPull(Views(gradient_), {}, MutableViews(&parameters_))
               .status());
    }
  }

  void OverlappedSteps() {
    RoundOperation round;
    for (int step = 0; step < flags_.rounds; ++step) {
      for (int layer = 0; layer < flags_.layers; ++layer) {
        if (step > 0) Must(round.WaitForTensor(Name(layer)));
        Compute(1);
      }
      if (step > 0) Must(round.Wait());
      for (int layer = flags_.layers - 1; layer >= 0; --layer) {
        Compute(2);
        Must(client_
                 ->StartPush({TensorView(
                     Name(layer), gradient_[static_cast<size_t>(layer)])})
                 .Status());
      }
      round = client_->StartRound({}, {}, MutableViews(&parameters_), options_);
    }
    Must(round.Wait());
  }

 private:
  const std::string& Name(int layer) const {
    return manifest_.tensors[static_cast<size_t>(layer)].name;
  }
  // A layer takes `parts` thirds of its share.
  void Compute(int parts) const {
    const absl::Duration time =
        absl::Milliseconds(flags_.compute_ms) * parts / 3 / flags_.layers;
    const absl::Time end = absl::Now() + time;
    if (!flags_.spin) return absl::SleepFor(time);
    while (absl::Now() < end) {
    }
  }

  const Flags flags_;
  const Manifest manifest_;
  HostTensors parameters_;
  const HostTensors gradient_;
  PullOptions options_;
  std::unique_ptr<AggClient> client_;
};

class Team {
 public:
  explicit Team(const Flags& flags)
      : flags_(flags),
        job_(flags.shards,
             absl::StrCat("workers: ", flags.workers,
                          " combination { rule: \"adasum\" } replication: "
                          "\"none\" learning_rate { rate: 1e-3 }")) {
    for (int rank = 0; rank < flags.workers; ++rank) {
      workers_.push_back(std::make_unique<Worker>(flags, job_, rank));
    }
    Each(&Worker::Seed);
  }

  // Milliseconds a step.
  double Run(void (Worker::*steps)()) {
    const auto begin = std::chrono::steady_clock::now();
    Each(steps);
    return std::chrono::duration<double, std::milli>(
               std::chrono::steady_clock::now() - begin)
               .count() /
           flags_.rounds;
  }

 private:
  void Each(void (Worker::*call)()) {
    std::vector<std::thread> threads;
    for (auto& worker : workers_) {
      threads.emplace_back([&worker, call] { (worker.get()->*call)(); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  const Flags flags_;
  LoopbackJob job_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Compare(const Flags& flags) {
  Team team(flags);
  constexpr int kBlocks = 5;
  std::vector<double> blocking, overlapped;
  for (int block = 0; block <= kBlocks; ++block) {
    const double first = team.Run(&Worker::BlockingSteps);
    const double second = team.Run(&Worker::OverlappedSteps);
    if (block == 0) continue;  // to warm up
    blocking.push_back(first);
    overlapped.push_back(second);
  }
  std::printf(
      "%d workers, %d shards, %d Mi float32 in %d layers, %d ms of compute "
      "(%s)\n",
      flags.workers, flags.shards, flags.mebi_elements, flags.layers,
      flags.compute_ms, flags.spin ? "on the cores" : "slept");
  std::printf("  blocking   %8.2f ms a step\n", Median(blocking));
  std::printf("  operations %8.2f ms a step, %.2f of blocking\n",
              Median(overlapped), Median(overlapped) / Median(blocking));
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  agg::Flags flags;
  if (!agg::ParseFlags(argc, argv, &flags)) {
    std::fputs(
        "usage: round_overlap [--workers=N] [--shards=N] [--layers=N] "
        "[--mebi_elements=N] [--compute_ms=N] [--rounds=N] [--spin] "
        "[--smoke]\n",
        stderr);
    return 2;
  }
  agg::SetLogLevel(agg::LogLevel::kError);
  agg::TuneMalloc();
  agg::Compare(flags);
  return 0;
}
