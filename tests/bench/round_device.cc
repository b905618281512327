// Rounds of workers whose gradients and parameters are on the shard's card:
// push, combine, step, pull, without the host's memory between them.
//
//   round_device [--smoke] [--json=FILE]
//
// A server and its workers in this process, adasum and sgd on float32. They
// share one CUDA context, so that what a card needs to change from one
// process's work to another's is not in it. Medians of 15 rounds after 20 to
// warm up, by the wall clock, in turns with copies on the card. Beside the
// time: that in which the round's traffic would go through the card's memory at
// the copies' speed. A round's traffic, in bytes of a row: 2 P to land the
// rows, P each for the Gram and the update, 2 for the master (read, written),
// 2 P to pull. (The master goes to the host only when somebody reads it there,
// and here nobody does after the first round.)
//
// Where the time goes: of the same rounds the phases that the server reports,
// and what is outside of them (pushes, early Grams, pulls); of 15 more rounds
// what Push, Commit and Pull take, of the slowest worker each. A phase that the
// server did not report is missing.
//
// Says so, and measures nothing, where the rows did not go this way. Exits with
// 0 where there is no device. --smoke: small and short.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>  // NOLINT
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>  // NOLINT
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

// Seconds by name.
using Parts = std::map<std::string, double>;

// What a job's server says of its rounds.
class ServerPhases {
 public:
  explicit ServerPhases(int metrics_port)
      : port_(metrics_port), num_rounds_(NumRounds()), before_(Read()) {}

  // Those of the round that has just ended; the server tells them soon after.
  // But for the wait for workers, in which a benchmark does other things.
  // Empty if it does not tell.
  Parts Next() {
    constexpr int kTries = 2000;
    for (int i = 0; i < kTries && NumRounds() <= num_rounds_; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const double num_rounds = NumRounds();
    const Parts now = Read();
    Parts round;
    for (const auto& [phase, seconds] : now) {
      const double more = seconds - before_[phase];
      if (phase != "wait" && more > 0.0) round[phase] = more;
    }
    before_ = now;
    const bool one = num_rounds == num_rounds_ + 1;
    num_rounds_ = num_rounds;
    return one ? round : Parts();
  }

 private:
  double NumRounds() const {
    return Metric(port_, "aggserver_round_seconds_count{");
  }
  Parts Read() const {
    return MetricBy(port_, "aggserver_round_duration_seconds_sum{", "phase");
  }

  const int port_;
  double num_rounds_;
  Parts before_;
};

// Lists of them, as spreads.
class PartsOfRounds {
 public:
  void Add(const Parts& round) {
    for (const auto& [name, seconds] : round) all_[name].push_back(seconds);
  }
  Json Spreads() const {
    Json spreads = Json::object();
    for (const auto& [name, values] : all_) spreads[name] = SpreadOf(values);
    return spreads;
  }

 private:
  std::map<std::string, std::vector<double>> all_;
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

  // A round by its parts: each one's time of the worker that took longest.
  Parts StepInParts() {
    std::vector<Parts> parts(static_cast<size_t>(num_workers_));
    RunWorkers(num_workers_, [&](int rank) {
      AggClient& client = *clients_[rank];
      uint64_t version = 0;
      parts[rank]["push"] =
          Seconds([&] { Must(client.Push(gradients_[rank].views())); });
      parts[rank]["commit"] =
          Seconds([&] { version = Must(client.Commit({})).version; });
      parts[rank]["pull"] = Seconds(
          [&] { Must(client.Pull(version, parameters_[rank].targets())); });
    });
    Parts slowest;
    for (const Parts& of_worker : parts) {
      for (const auto& [name, seconds] : of_worker) {
        slowest[name] = std::max(slowest[name], seconds);
      }
    }
    return slowest;
  }

  // Of what rounds have pushed and pulled, the share that was on the card.
  double ShareOnDevice(int rounds) const {
    const double all = 2.0 * rounds * num_workers_ * row_bytes_;
    return (Metric(metrics_port_, "aggserver_push_on_device_bytes_total{") +
            Metric(metrics_port_, "aggserver_pull_on_device_bytes_total{")) /
           all;
  }
  int metrics_port() const { return metrics_port_; }
  double traffic() const {
    return static_cast<double>(row_bytes_) * (6 * num_workers_ + 2);
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

// What one size is measured with.
struct Setting {
  std::shared_ptr<const DeviceContext> context;
  int num_workers = 0;
  int64_t num_elements = 0;
  int warm_rounds = 0;
  int num_rounds = 0;
  int64_t copy_bytes = 0;
};

// An element of the file's list "rounds".
Json Measure(const Setting& setting, DeviceFill* fill, cudaStream_t stream) {
  Team team(setting.context, setting.num_workers, setting.num_elements, fill);
  CardCopy copy(setting.copy_bytes, stream);
  ServerPhases server(team.metrics_port());
  std::vector<double> rounds, traffic, shares;
  PartsOfRounds phases, parts;
  for (int i = -setting.warm_rounds; i < setting.num_rounds; ++i) {
    const double rate = copy.Measure();
    const double seconds = Seconds([&] { team.Step(); });
    Parts of_server = server.Next();
    if (i < 0) continue;
    rounds.push_back(seconds);
    traffic.push_back(team.traffic() / rate);
    shares.push_back(seconds / traffic.back());
    if (of_server.empty()) continue;
    double outside = seconds;
    for (const auto& [phase, of_phase] : of_server) outside -= of_phase;
    of_server["outside"] = outside;
    phases.Add(of_server);
  }
  for (int i = 0; i < setting.num_rounds; ++i) parts.Add(team.StepInParts());
  return {{"P", setting.num_workers},
          {"dtype", "f32"},
          {"optimizer", "sgd"},
          {"elements", setting.num_elements},
          {"repetitions", rounds.size()},
          {"on_device",
           team.ShareOnDevice(setting.warm_rounds + 2 * setting.num_rounds)},
          {"round_s", SpreadOf(rounds)},
          {"traffic_s", SpreadOf(traffic)},
          {"round_over_traffic", SpreadOf(shares)},
          {"server_s", phases.Spreads()},
          {"client_s", parts.Spreads()}};
}

void PrintParts(const char* whose, const Json& spreads) {
  for (const auto& [name, spread] : spreads.items()) {
    std::printf("    %s %-18s %9.3f ms\n", whose, name.c_str(),
                spread["median"].get<double>() * 1e3);
  }
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
  PrintParts("server:", round["server_s"]);
  PrintParts("client:", round["client_s"]);
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
  DeviceFill fill(stream.get());
  for (const int num_workers : {2, flags.smoke ? 3 : 8}) {
    // A row of one frame would come in one trip with its version, which goes by
    // way of the host (P41).
    const int64_t num_elements =
        flags.smoke ? 3 * kMebi / 2 : 512 * kMebi / num_workers;
    const Json round =
        Measure({context, num_workers, num_elements, flags.smoke ? 2 : 20,
                 flags.smoke ? 2 : 15, flags.smoke ? kMebi : 1024 * kMebi},
                &fill, stream.get());
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
