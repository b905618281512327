#include "tests/bench/host_way.h"

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "kernels/device_memory/device_stream.h"
#include "kernels/device_memory/shared_device_memory.h"
#include "nlohmann/json.hpp"
#include "tests/bench/bench_file.h"
#include "tests/bench/cuda_must.h"
#include "tests/bench/round_parts.h"
#include "tests/bench/worker_processes.h"
#include "tests/e2e/cuda_device.h"
#include "tests/e2e/loopback_job.h"
#include "worker_client/agg_client.h"

namespace agg {
namespace {

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

}  // namespace

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

}  // namespace agg
