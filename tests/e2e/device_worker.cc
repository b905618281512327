// A worker whose tensors are on the fake driver's device, or on the host, for
// device_rows_test.py:
//
//   device_worker --coordinator=HOST:PORT --rank=N --rounds=N
//                 [--gradients=device|host] [--parameters=device|host]
//                 [--device=N] [--host_only] [--dtype=f32|bf16]
//                 [--die_after=N]
//
// Each round's gradient is a function of round and rank alone. What makes it is
// given to the device's default stream, whose work the push must wait for, and
// what is in the memory before and after the push is something else. Prints a
// line for each version: its number and the CRC32C of the parameters. The last
// line: how rows travelled to the shards, by ordinal. --device: the one that
// has the tensors, of those of AGG_FAKE_CUDA_DEVICES. --host_only: cuda_rows is
// off. --die_after: SIGKILL behind the push of that round.
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "kernels/narrow_float.h"
#include "proto/crc32c.h"
#include "tests/e2e/loopback_job.h"
#include "tests/kernels/device_memory/fake_cuda.h"
#include "worker_client/agg_client.h"

namespace agg {
namespace {

struct Flags {
  ClientOptions client;
  int rounds = 3;
  int device = 0;
  bool device_gradients = true;
  bool device_parameters = true;
  bool is_bf16 = false;
  int die_after = -1;
};

bool ParseFlags(int argc, char** argv, Flags* flags) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view flag = argv[i];
    if (absl::ConsumePrefix(&flag, "--coordinator=")) {
      flags->client.coordinator = std::string(flag);
    } else if (absl::ConsumePrefix(&flag, "--rank=")) {
      if (!absl::SimpleAtoi(flag, &flags->client.rank)) return false;
    } else if (absl::ConsumePrefix(&flag, "--rounds=")) {
      if (!absl::SimpleAtoi(flag, &flags->rounds)) return false;
    } else if (absl::ConsumePrefix(&flag, "--device=")) {
      if (!absl::SimpleAtoi(flag, &flags->device)) return false;
    } else if (absl::ConsumePrefix(&flag, "--die_after=")) {
      if (!absl::SimpleAtoi(flag, &flags->die_after)) return false;
    } else if (absl::ConsumePrefix(&flag, "--gradients=")) {
      flags->device_gradients = flag == "device";
    } else if (absl::ConsumePrefix(&flag, "--parameters=")) {
      flags->device_parameters = flag == "device";
    } else if (absl::ConsumePrefix(&flag, "--dtype=")) {
      flags->is_bf16 = flag == "bf16";
    } else if (flag == "--host_only") {
      flags->client.cuda_rows = false;
    } else {
      return false;
    }
  }
  return true;
}

void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::_Exit(1);
}

// Tensors of the job in memory of one kind.
class Memory {
 public:
  // `device`: below 0: the host's memory.
  Memory(const Manifest& manifest, int device, int64_t element_bytes)
      : device_(device) {
    for (const TensorSpec& tensor : manifest.tensors) {
      const int64_t num_bytes = NumElements(tensor) * element_bytes;
      num_elements_.push_back(NumElements(tensor));
      bytes_.push_back(num_bytes);
      if (device >= 0) {
        data_.push_back(fake_cuda::Alloc(num_bytes, device));
      } else {
        host_.push_back(std::make_unique<char[]>(num_bytes));
        data_.push_back(host_.back().get());
      }
    }
  }

  // Work that fills the tensor: on a device, when its default stream is waited
  // for.
  void Write(size_t tensor, std::string bytes) {
    char* const to = data_[tensor];
    const auto write = [to, bytes = std::move(bytes)] {
      std::memcpy(to, bytes.data(), bytes.size());
    };
    if (device_ >= 0) {
      fake_cuda::Launch(device_, write);
    } else {
      write();
    }
  }
  void Spoil() {
    for (size_t t = 0; t < data_.size(); ++t) {
      std::memset(data_[t], 0x7e, static_cast<size_t>(bytes_[t]));
    }
  }

  std::vector<TensorView> views(DType dtype) const {
    std::vector<TensorView> views;
    for (size_t t = 0; t < data_.size(); ++t) {
      TensorView view;
      view.data = data_[t];
      view.num_elements = num_elements_[t];
      view.dtype = dtype;
      views.push_back(view);
    }
    return views;
  }
  std::vector<MutableTensorView> targets() const {
    std::vector<MutableTensorView> targets;
    for (size_t t = 0; t < data_.size(); ++t) {
      targets.emplace_back(
          absl::MakeSpan(reinterpret_cast<float*>(data_[t]),
                         static_cast<size_t>(num_elements_[t])));
    }
    return targets;
  }
  uint32_t Sum() const {
    std::vector<uint32_t> sums;
    for (size_t t = 0; t < data_.size(); ++t) {
      sums.push_back(
          Crc32c(absl::string_view(data_[t], static_cast<size_t>(bytes_[t]))));
    }
    return Crc32cOfWords(sums);
  }

 private:
  const int device_;
  std::vector<std::unique_ptr<char[]>> host_;
  std::vector<char*> data_;
  std::vector<int64_t> num_elements_, bytes_;
};

std::string BytesOf(const std::vector<float>& values, bool is_bf16) {
  std::string bytes;
  for (const float value : values) {
    const uint16_t narrowed = Bf16OfFloat(value);
    if (is_bf16) {
      bytes.append(reinterpret_cast<const char*>(&narrowed), sizeof(narrowed));
    } else {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
  }
  return bytes;
}

void Run(Flags flags) {
  // A scalar, neighbours that are copied together, and several slices.
  const Manifest manifest =
      ShapedManifest({{}, {7, 3}, {32}, {64}, {1}, {1200, 1000}});
  flags.client.manifest = manifest;
  const DType dtype = flags.is_bf16 ? DType::kBF16 : DType::kF32;
  Memory gradient(manifest, flags.device_gradients ? flags.device : -1,
                  flags.is_bf16 ? 2 : 4);
  Memory parameters(manifest, flags.device_parameters ? flags.device : -1, 4);
  const HostTensors seed = MakeTensors(manifest, 1);
  for (size_t t = 0; t < seed.size(); ++t) {
    parameters.Write(t, BytesOf(seed[t], false));
  }
  auto client = AggClient::Connect(flags.client);
  Must(client.status());
  Must((*client)->SeedOrPull(parameters.targets()));
  while (static_cast<int>((*client)->version()) < flags.rounds) {
    const uint64_t round = (*client)->version();
    const HostTensors values = MakeTensors(
        manifest, 100 + 10 * round + static_cast<uint64_t>(flags.client.rank));
    gradient.Spoil();
    for (size_t t = 0; t < values.size(); ++t) {
      gradient.Write(t, BytesOf(values[t], flags.is_bf16));
    }
    if (flags.die_after == static_cast<int>(round)) {
      Must((*client)->Push(gradient.views(dtype)));
      kill(getpid(), SIGKILL);
    }
    parameters.Spoil();
    Must((*client)
             ->PushPull(gradient.views(dtype), {}, parameters.targets())
             .status());
    std::printf("version %d %08x\n", static_cast<int>((*client)->version()),
                parameters.Sum());
    std::fflush(stdout);
  }
  std::printf("transports %s\n",
              absl::StrJoin((*client)->job().transports, " ").c_str());
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  agg::Flags flags;
  if (!agg::ParseFlags(argc, argv, &flags)) {
    std::fprintf(stderr, "device_worker: see the top of device_worker.cc\n");
    return 2;
  }
  agg::Run(flags);
  return 0;
}
