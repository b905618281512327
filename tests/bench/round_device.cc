// Rounds of workers whose gradients and parameters are on the shard's card:
// push, combine, step, pull, without the host's memory between them.
//
//   round_device [--smoke] [--json=FILE]
//
// A server in this process, adasum and sgd on float32, and its workers twice:
// as threads of this process, which share one CUDA context, and as processes of
// their own, which map the server's memory, and in which also shows what a card
// needs to change from one process's work to another's. The first is what the
// target is for. Medians of 15 rounds after 20 to
// warm up, by the wall clock, in turns with copies on the card. Beside the
// time: that in which the round's traffic would go through the card's memory at
// the copies' speed. A round's traffic, in bytes of a row: 2 P to land the
// rows, P each for the Gram and the update, 2 for the master (read, written),
// 2 P to pull. (The master goes to the host only when somebody reads it there,
// and here nobody does after the first round.)
//
// Where the time goes: of the same rounds the phases that the server reports,
// and what is outside of them (pushes, early Grams, pulls); of 15 more rounds
// of threads what Push, Commit and Pull take, of the slowest worker each. A
// phase that the server did not report is missing.
//
// Last, a worker whose shard computes on the host (host_way.h).
//
// Says so, and measures nothing, where the rows did not go this way. Exits with
// 0 where there is no device. --smoke: small and short.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/device_memory/cuda_driver.h"
#include "kernels/device_memory/device_context.h"
#include "nlohmann/json.hpp"
#include "server/base/json.h"
#include "server/base/log.h"
#include "tests/bench/bench_file.h"
#include "tests/bench/card_facts.h"
#include "tests/bench/cuda_must.h"
#include "tests/bench/device_fill.h"
#include "tests/bench/host_way.h"
#include "tests/bench/process_numbers.h"
#include "tests/bench/round_parts.h"
#include "tests/bench/worker_processes.h"
#include "tests/e2e/cuda_device.h"
#include "tests/e2e/free_ports.h"
#include "tests/e2e/loopback_job.h"
#include "worker_client/agg_client.h"

namespace agg {
namespace {

constexpr int64_t kMebi = int64_t{1} << 20;

// A job of one shard on the card, for rows of so many elements.
class DeviceJob {
 public:
  DeviceJob(int num_workers, int64_t num_elements)
      : num_workers_(num_workers),
        row_bytes_(4 * num_elements),
        metrics_port_(FreePorts(1)[0]),
        job_(1,
             absl::StrCat("workers: ", num_workers,
                          " backend: \"cuda\" combination { rule: \"adasum\" } "
                          "optimizer { kind: \"sgd\" } learning_rate { rate: "
                          "1e-3 }"),
             TheCudaDevice().make_backend,
             [this](ServerOptions* o) { o->metrics.port = metrics_port_; }) {}

  const LoopbackJob& job() const { return job_; }
  int metrics_port() const { return metrics_port_; }
  // Of what rounds have pushed and pulled, the share that was on the card.
  double ShareOnDevice(int rounds) const {
    const double all = 2.0 * rounds * num_workers_ * row_bytes_;
    return (Metric(metrics_port_, "aggserver_push_on_device_bytes_total{") +
            Metric(metrics_port_, "aggserver_pull_on_device_bytes_total{")) /
           all;
  }
  double traffic() const {
    return static_cast<double>(row_bytes_) * (6 * num_workers_ + 2);
  }

 private:
  const int num_workers_;
  const int64_t row_bytes_;
  const int metrics_port_;
  LoopbackJob job_;
};

// Its workers, as threads of this process.
class Team {
 public:
  Team(std::shared_ptr<const DeviceContext> context, const LoopbackJob& job,
       int num_workers, int64_t num_elements, DeviceFill* fill)
      : num_workers_(num_workers), clients_(static_cast<size_t>(num_workers)) {
    const Manifest manifest = DeviceRowManifest(num_elements);
    for (int rank = 0; rank < num_workers; ++rank) {
      gradients_.emplace_back(context, manifest, 100 + 16 * rank, fill);
      parameters_.emplace_back(context, manifest, 7, fill);
    }
    RunWorkers(num_workers, [&](int rank) {
      clients_[rank] = Must(AggClient::Connect(job.Options(rank, manifest)));
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

 private:
  const int num_workers_;
  std::vector<DeviceTensors> gradients_, parameters_;
  std::vector<std::unique_ptr<AggClient>> clients_;
};

// What one size is measured with.
struct Setting {
  int num_workers = 0;
  int64_t num_elements = 0;
  int warm_rounds = 0;
  int num_rounds = 0;
  int64_t copy_bytes = 0;
};

// An element of the file's lists, but for what is measured of other rounds.
// Wants to know of `step` that it runs a round of `job`.
Json MeasureRounds(const Setting& setting, const char* workers,
                   const DeviceJob& job, const std::function<void()>& step,
                   cudaStream_t stream) {
  CardCopy copy(setting.copy_bytes, stream);
  ServerPhases server(job.metrics_port());
  std::vector<double> rounds, traffic, shares;
  PartsOfRounds phases;
  for (int i = -setting.warm_rounds; i < setting.num_rounds; ++i) {
    const double rate = copy.Measure();
    const double seconds = Seconds(step);
    Parts of_server = server.Next();
    if (i < 0) continue;
    rounds.push_back(seconds);
    traffic.push_back(job.traffic() / rate);
    shares.push_back(seconds / traffic.back());
    if (of_server.empty()) continue;
    double outside = seconds;
    for (const auto& [phase, of_phase] : of_server) outside -= of_phase;
    of_server["outside"] = outside;
    phases.Add(of_server);
  }
  return {{"P", setting.num_workers},
          {"workers", workers},
          {"dtype", "f32"},
          {"optimizer", "sgd"},
          {"elements", setting.num_elements},
          {"repetitions", rounds.size()},
          {"on_device",
           job.ShareOnDevice(setting.warm_rounds + setting.num_rounds)},
          {"round_s", SpreadOf(rounds)},
          {"traffic_s", SpreadOf(traffic)},
          {"round_over_traffic", SpreadOf(shares)},
          {"server_s", phases.Spreads()}};
}

Json MeasureThreads(const Setting& setting,
                    const std::shared_ptr<const DeviceContext>& context,
                    DeviceFill* fill, cudaStream_t stream) {
  DeviceJob job(setting.num_workers, setting.num_elements);
  Team team(context, job.job(), setting.num_workers, setting.num_elements,
            fill);
  Json round = MeasureRounds(
      setting, "threads", job, [&] { team.Step(); }, stream);
  PartsOfRounds parts;
  for (int i = 0; i < setting.num_rounds; ++i) parts.Add(team.StepInParts());
  round["client_s"] = parts.Spreads();
  return round;
}

Json MeasureProcesses(const Setting& setting, cudaStream_t stream) {
  DeviceJob job(setting.num_workers, setting.num_elements);
  WorkerProcesses workers(job.job().coordinator(), setting.num_workers,
                          setting.num_elements);
  Json round = MeasureRounds(
      setting, "processes", job, [&] { workers.Step(); }, stream);
  round["client_s"] = Json::object();
  return round;
}

void PrintParts(const char* whose, const Json& spreads) {
  for (const auto& [name, spread] : spreads.items()) {
    std::printf("    %s %-18s %9.3f ms\n", whose, name.c_str(),
                spread["median"].get<double>() * 1e3);
  }
}

void Print(const Json& round) {
  std::printf(
      "%d workers as %s, %.0f Mi float32 each on the card, adasum, sgd\n"
      "  round                      %9.3f ms\n"
      "  its traffic as copies      %9.3f ms\n"
      "  round / traffic            %9.3f\n"
      "  went through the card      %9.3f of all bytes\n",
      round["P"].get<int>(), round["workers"].get<std::string>().c_str(),
      round["elements"].get<double>() / kMebi,
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
  if (!ParseBenchFlags(argc, argv, &flags)) return 2;
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
    const Setting setting = {num_workers, num_elements, flags.smoke ? 2 : 20,
                             flags.smoke ? 2 : 15,
                             flags.smoke ? kMebi : 1024 * kMebi};
    const Json round = MeasureThreads(setting, context, &fill, stream.get());
    worst =
        std::max(worst, round["round_over_traffic"]["median"].get<double>());
    const Json apart = MeasureProcesses(setting, stream.get());
    for (const Json& measured : {round, apart}) {
      Print(measured);
      file.Append("rounds", measured);
      // All but the first pull, of the seed, which may come before a row has.
      all_on_device =
          all_on_device && measured["on_device"].get<double>() > 0.99;
    }
  }
  if (all_on_device) {
    file.Set("device_rows_round_over_traffic", worst);
  } else {
    std::printf("rows or parameters went by way of the host: no such round\n");
  }
  const Json host_way = MeasureHostWay(context, flags.smoke, &fill);
  PrintHostWay(host_way);
  file.Set("host_way", host_way);
  file.Finish();
  return 0;
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  int status = 0;
  return agg::RunAsWorker(argc, argv, &status) ? status : agg::Main(argc, argv);
}
