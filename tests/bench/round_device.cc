// Rounds of workers whose gradients and parameters are on the shard's card:
// push, combine, step, pull, without the host's memory between them.
//
//   round_device [--smoke] [--json=FILE]
//
// A server and its workers in this process, adasum and sgd on float32. Medians
// of 15 rounds after two to warm up, by the wall clock, in turns with copies on
// the card. Beside the time: that in which the round's traffic would go through
// the card's memory at the copies' speed. A round's traffic, in bytes of a row:
// 2 P to land the rows, P each for the Gram and the update, 3 for the master
// (read, written, and read for the snapshot that goes to the host), 2 P to
// pull. Says so, and measures nothing, where the rows did not go this way.
// Exits with 0 where there is no device. --smoke: small and short.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>  // NOLINT
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/device_memory/cuda_driver.h"
#include "kernels/device_memory/device_context.h"
#include "kernels/device_memory/shared_device_memory.h"
#include "kernels/dtype.h"
#include "nlohmann/json.hpp"
#include "server/base/json.h"
#include "server/base/log.h"
#include "tests/bench/bench_file.h"
#include "tests/bench/card_facts.h"
#include "tests/bench/cuda_must.h"
#include "tests/bench/device_fill.h"
#include "tests/bench/process_numbers.h"
#include "tests/e2e/cuda_device.h"
#include "tests/e2e/free_ports.h"
#include "tests/e2e/loopback_job.h"
#include "worker_client/agg_client.h"

namespace agg {
namespace {

constexpr int kWarmRounds = 2;
constexpr int64_t kTensors = 16;
constexpr int64_t kMebi = int64_t{1} << 20;

double Seconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

// Of one worker: memory of the card, as a framework would have it.
class DeviceTensors {
 public:
  DeviceTensors(std::shared_ptr<const DeviceContext> context,
                const Manifest& manifest, uint32_t seed, DeviceFill* fill) {
    for (const TensorSpec& tensor : manifest.tensors) {
      memory_.push_back(
          Must(SharedDeviceMemory::Create(context, NumElements(tensor) * 4)));
      fill->Fill(memory_.back()->data(), memory_.back()->num_bytes(),
                 DType::kF32, seed++);
    }
  }

  std::vector<TensorView> views() const {
    std::vector<TensorView> views;
    for (const auto& memory : memory_) views.emplace_back(Floats(*memory));
    return views;
  }
  std::vector<MutableTensorView> targets() const {
    std::vector<MutableTensorView> targets;
    for (const auto& memory : memory_) targets.emplace_back(Floats(*memory));
    return targets;
  }

 private:
  static absl::Span<float> Floats(const SharedDeviceMemory& memory) {
    return absl::MakeSpan(reinterpret_cast<float*>(memory.data()),
                          static_cast<size_t>(memory.num_bytes() / 4));
  }

  std::vector<std::unique_ptr<SharedDeviceMemory>> memory_;
};

// How fast the card copies its own memory, bytes read and written per second.
class CardCopy {
 public:
  CardCopy(int64_t num_bytes, cudaStream_t stream)
      : num_bytes_(num_bytes),
        stream_(stream),
        from_(Must(cuda::AllocateDevice(num_bytes))),
        to_(Must(cuda::AllocateDevice(num_bytes))) {}

  double Measure() {
    constexpr int kCopies = 8;  // that starting them is not what takes time
    const double seconds = Seconds([this] {
      for (int i = 0; i < kCopies; ++i) {
        Must(cudaMemcpyAsync(to_.get(), from_.get(),
                             static_cast<size_t>(num_bytes_),
                             cudaMemcpyDeviceToDevice, stream_));
      }
      Must(cudaStreamSynchronize(stream_));
    });
    return kCopies * 2.0 * static_cast<double>(num_bytes_) / seconds;
  }

 private:
  const int64_t num_bytes_;
  const cudaStream_t stream_;
  const cuda::DeviceMemory from_, to_;
};

class Team {
 public:
  Team(std::shared_ptr<const DeviceContext> context, int num_workers,
       int64_t num_elements, DeviceFill* fill)
      : num_workers_(num_workers),
        row_bytes_(4 * num_elements),
        manifest_(ShapedManifest(std::vector<std::vector<int64_t>>(
            kTensors, {num_elements / kTensors}))),
        metrics_port_(FreePorts(1)[0]),
        job_(1,
             absl::StrCat("workers: ", num_workers,
                          " backend: \"cuda\" combination { rule: \"adasum\" } "
                          "optimizer { kind: \"sgd\" } learning_rate { rate: "
                          "1e-3 }"),
             TheCudaDevice().make_backend,
             [this](ServerOptions* o) { o->metrics.port = metrics_port_; }),
        clients_(static_cast<size_t>(num_workers)) {
    for (int rank = 0; rank < num_workers; ++rank) {
      gradients_.emplace_back(context, manifest_, 100 + 16 * rank, fill);
      parameters_.emplace_back(context, manifest_, 7, fill);
    }
    RunWorkers(num_workers, [&](int rank) {
      clients_[rank] = Must(AggClient::Connect(job_.Options(rank, manifest_)));
      Must(clients_[rank]->SeedOrPull(parameters_[rank].targets()));
    });
  }

  void Step() {
    RunWorkers(num_workers_, [&](int rank) {
      Must(clients_[rank]
               ->PushPull(gradients_[rank].views(), {},
                          parameters_[rank].targets())
               .status());
    });
  }

  // Of what rounds have pushed and pulled, the share that was on the card.
  double ShareOnDevice(int rounds) const {
    const double all = 2.0 * rounds * num_workers_ * row_bytes_;
    return (Metric(metrics_port_, "aggserver_push_on_device_bytes_total{") +
            Metric(metrics_port_, "aggserver_pull_on_device_bytes_total{")) /
           all;
  }
  double traffic() const {
    return static_cast<double>(row_bytes_) * (6 * num_workers_ + 3);
  }

 private:
  const int num_workers_;
  const int64_t row_bytes_;
  const Manifest manifest_;
  const int metrics_port_;
  LoopbackJob job_;
  std::vector<DeviceTensors> gradients_, parameters_;
  std::vector<std::unique_ptr<AggClient>> clients_;
};

// An element of the file's list "rounds".
Json Measure(const std::shared_ptr<const DeviceContext>& context,
             int num_workers, int64_t num_elements, int num_rounds,
             int64_t copy_bytes, cudaStream_t stream) {
  DeviceFill fill(stream);
  Team team(context, num_workers, num_elements, &fill);
  CardCopy copy(copy_bytes, stream);
  std::vector<double> rounds, traffic, shares;
  for (int round = 0; round < kWarmRounds + num_rounds; ++round) {
    const double rate = copy.Measure();
    const double seconds = Seconds([&] { team.Step(); });
    if (round < kWarmRounds) continue;
    rounds.push_back(seconds);
    traffic.push_back(team.traffic() / rate);
    shares.push_back(seconds / traffic.back());
  }
  return {{"P", num_workers},
          {"dtype", "f32"},
          {"optimizer", "sgd"},
          {"elements", num_elements},
          {"repetitions", rounds.size()},
          {"on_device", team.ShareOnDevice(kWarmRounds + num_rounds)},
          {"round_s", SpreadOf(rounds)},
          {"traffic_s", SpreadOf(traffic)},
          {"round_over_traffic", SpreadOf(shares)}};
}

void Print(const Json& round) {
  std::printf(
      "%d workers, %.0f Mi float32 each on the card, adasum, sgd\n"
      "  round                      %9.3f ms\n"
      "  its traffic as copies      %9.3f ms\n"
      "  round / traffic            %9.3f\n"
      "  went through the card      %9.3f of all bytes\n",
      round["P"].get<int>(), round["elements"].get<double>() / kMebi,
      round["round_s"]["median"].get<double>() * 1e3,
      round["traffic_s"]["median"].get<double>() * 1e3,
      round["round_over_traffic"]["median"].get<double>(),
      round["on_device"].get<double>());
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  BenchFlags flags;
  if (!ParseBenchFlags(argc, argv, &flags)) {
    std::fprintf(stderr, "usage: round_device [--smoke] [--json=FILE]\n");
    return 2;
  }
  SetLogLevel(LogLevel::kWarning);
  if (!TheCudaDevice().why_not.empty()) {
    std::printf("SKIPPED: %s\n", TheCudaDevice().why_not.c_str());
    return 0;
  }
  BenchFile file("round_device", flags.json);
  file.Set("card", CardFacts());
  const auto context =
      Must(DeviceContext::Retain(Must(CudaDriver::Load("")), 0));
  const cuda::Stream stream = Must(cuda::MakeStream());
  double worst = 0.0;
  bool all_on_device = true;
  const int num_rounds = flags.smoke ? 2 : 15;
  for (const int num_workers : {2, flags.smoke ? 3 : 8}) {
    // A row of one frame would come in one trip with its version, which goes by
    // way of the host (P41).
    const int64_t num_elements =
        flags.smoke ? 3 * kMebi / 2 : 512 * kMebi / num_workers;
    const Json round =
        Measure(context, num_workers, num_elements, num_rounds,
                flags.smoke ? kMebi : 1024 * kMebi, stream.get());
    Print(round);
    file.Append("rounds", round);
    worst =
        std::max(worst, round["round_over_traffic"]["median"].get<double>());
    // All but the first pull, of the seed, which may come before a row has.
    all_on_device = all_on_device && round["on_device"].get<double>() > 0.99;
  }
  if (all_on_device) {
    file.Set("device_rows_round_over_traffic", worst);
  } else {
    std::printf("rows or parameters went by way of the host: no such round\n");
  }
  file.Finish();
  return 0;
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) { return agg::Main(argc, argv); }
