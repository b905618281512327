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
// Last, a worker whose shard computes on the host.
//
// Says so, and measures nothing, where the rows did not go this way. Exits with
// 0 where there is no device. --smoke: small and short.
#include <cuda_runtime_api.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>  // NOLINT
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>  // NOLINT
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/device_memory/cuda_driver.h"
#include "kernels/device_memory/device_context.h"
#include "kernels/device_memory/device_stream.h"
#include "kernels/device_memory/shared_device_memory.h"
#include "kernels/dtype.h"
#include "nlohmann/json.hpp"
#include "proto/shard_plan.h"
#include "server/base/json.h"
#include "server/base/log.h"
#include "tests/bench/bench_file.h"
#include "tests/bench/card_facts.h"
#include "tests/bench/cuda_must.h"
#include "tests/bench/device_fill.h"
#include "tests/bench/process_numbers.h"
#include "tests/e2e/cuda_device.h"
#include "tests/e2e/loopback_job.h"
#include "worker_client/agg_client.h"
#include "worker_client/tensor_view.h"

namespace agg {
namespace {

constexpr int64_t kMebi = int64_t{1} << 20;

// Seconds of the wall clock.
double Seconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

// A row of so many elements, several tensors. REQUIRES: a multiple of 16.
Manifest DeviceRowManifest(int64_t num_elements) {
  constexpr int64_t kTensors = 16;
  return ShapedManifest(
      std::vector<std::vector<int64_t>>(kTensors, {num_elements / kTensors}));
}

// One worker's memory of the card, as a framework would have it.
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

// The parts of several rounds, as spreads.
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

// --- Workers as processes ----------------------------------------------------

constexpr char kWorker[] = "--worker";
constexpr int kNumArguments = 6;  // program, kWorker, and four of a worker

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

// Workers as processes of their own whose gradients and parameters are on the
// shard's card: this program, started again for each of them. Each has a
// socket: a byte to it asks for a round, a byte from it says that it is done.
// It ends when its socket does. All of it ends this process if one of them does
// not answer.
class WorkerProcesses {
 public:
  // Returns when all have joined and have the parameters.
  WorkerProcesses(const std::string& coordinator, int num_workers,
                  int64_t num_elements) {
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
  // Ends them.
  ~WorkerProcesses() {
    for (const Worker& worker : workers_) close(worker.socket);
    for (const Worker& worker : workers_) waitpid(worker.process, nullptr, 0);
  }
  WorkerProcesses(const WorkerProcesses&) = delete;
  WorkerProcesses& operator=(const WorkerProcesses&) = delete;

  // A round of all: returns when each has its version.
  void Step() {
    for (const Worker& worker : workers_) {
      const char byte = 0;
      if (send(worker.socket, &byte, 1, MSG_NOSIGNAL) != 1) Die("a worker");
    }
    Await();
  }

 private:
  struct Worker {
    pid_t process = 0;
    int socket = -1;
  };

  // Waits for a word of each.
  void Await() {
    for (const Worker& worker : workers_) {
      char byte = 0;
      if (read(worker.socket, &byte, 1) != 1) {
        std::fprintf(stderr, "a worker's process has ended\n");
        for (const Worker& other : workers_) kill(other.process, SIGKILL);
        std::exit(1);
      }
    }
  }

  std::vector<Worker> workers_;
};

// --- Rounds ------------------------------------------------------------------

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

// --- A shard on the host -----------------------------------------------------

// Copies of a row between the card and pinned memory.
class BusCopies {
 public:
  BusCopies(const std::shared_ptr<const DeviceContext>& context,
            int64_t num_bytes)
      : num_bytes_(num_bytes),
        device_(Must(SharedDeviceMemory::Create(context, num_bytes))),
        host_(Must(PinnedHostMemory::Allocate(context, num_bytes))),
        stream_(Must(DeviceStream::Make(context))) {}

  double ToHost() {
    return Seconds([this] {
      Must(stream_->CopyToHost(host_->data(), device_->data(), num_bytes_));
      Must(stream_->Synchronize());
    });
  }
  double ToDevice() {
    return Seconds([this] {
      Must(stream_->CopyToDevice(device_->data(), host_->data(), num_bytes_));
      Must(stream_->Synchronize());
    });
  }

 private:
  const int64_t num_bytes_;
  const std::unique_ptr<SharedDeviceMemory> device_;
  const std::unique_ptr<PinnedHostMemory> host_;
  const std::unique_ptr<DeviceStream> stream_;
};

// What a worker pays whose tensors are on a card, where its shard computes on
// the host: ten rounds of one worker with rows of 64 Mi float32, in turns with
// copies of as many bytes between the card and pinned memory; `smoke`: small
// and short. With members "elements", "transport" (JobDescription's),
// "repetitions", and spreads of seconds and of their shares: "push_s",
// "copy_to_host_s", "push_over_copy", "pull_s", "copy_to_device_s",
// "pull_over_copy".
Json MeasureHostWay(const std::shared_ptr<const DeviceContext>& context,
                    bool smoke, DeviceFill* fill) {
  const int64_t num_elements = int64_t{smoke ? 1536 : 65536} << 10;
  const int warm_rounds = smoke ? 1 : 3;
  const int num_rounds = smoke ? 2 : 10;
  const LoopbackJob job(1,
                        "workers: 1 backend: \"cpu\" combination { rule: "
                        "\"mean\" } optimizer { kind: \"sgd\" } learning_rate "
                        "{ rate: 1e-3 }",
                        TheCudaDevice().make_backend);
  const Manifest manifest = DeviceRowManifest(num_elements);
  const DeviceTensors gradient(context, manifest, 100, fill);
  const DeviceTensors parameters(context, manifest, 7, fill);
  const auto client = Must(AggClient::Connect(job.Options(0, manifest)));
  Must(client->SeedOrPull(parameters.targets()));
  BusCopies copies(context, 4 * num_elements);
  std::map<std::string, std::vector<double>> all;
  for (int i = -warm_rounds; i < num_rounds; ++i) {
    const double down = copies.ToHost();
    const double push = Seconds([&] { Must(client->Push(gradient.views())); });
    const uint64_t version = Must(client->Commit({})).version;
    const double up = copies.ToDevice();
    const double pull =
        Seconds([&] { Must(client->Pull(version, parameters.targets())); });
    if (i < 0) continue;
    all["copy_to_host_s"].push_back(down);
    all["push_s"].push_back(push);
    all["push_over_copy"].push_back(push / down);
    all["copy_to_device_s"].push_back(up);
    all["pull_s"].push_back(pull);
    all["pull_over_copy"].push_back(pull / up);
  }
  Json measured = {{"elements", num_elements},
                   {"transport", client->job().transports[0]},
                   {"repetitions", num_rounds}};
  for (const auto& [name, values] : all) measured[name] = SpreadOf(values);
  return measured;
}

void PrintHostWay(const Json& measured) {
  std::printf(
      "1 worker, %.0f Mi float32 on the card, a shard on the host (%s)\n",
      measured["elements"].get<double>() / (1 << 20),
      measured["transport"].get<std::string>().c_str());
  for (const char* name : {"push", "pull"}) {
    const auto median = [&](const std::string& member) {
      return measured[name + member]["median"].get<double>();
    };
    std::printf("  %s %27.3f ms, %.3f times a pinned copy's time\n", name,
                median("_s") * 1e3, median("_over_copy"));
  }
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  if (argc == kNumArguments && std::strcmp(argv[1], kWorker) == 0) {
    RunWorker(argv);
    return 0;
  }
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

int main(int argc, char** argv) { return agg::Main(argc, argv); }
