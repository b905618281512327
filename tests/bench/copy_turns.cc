#include "tests/bench/copy_turns.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/bench/cuda_must.h"

namespace agg {
namespace {

constexpr int kClockOfSms = 1;  // NVML_CLOCK_SM

template <class Function>
bool Find(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace

// Four functions of NVML, declared by hand: not every toolkit has its header.
struct SmClock::Nvml {
  ~Nvml() {
    if (started) shutdown();
    if (library != nullptr) dlclose(library);
  }

  // Whether it knows the device.
  bool Open(const std::string& pci_bus_id) {
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    int (*start)() = nullptr;
    int (*find)(const char*, void**) = nullptr;
    if (!Find(library, "nvmlInit_v2", &start) ||
        !Find(library, "nvmlShutdown", &shutdown) ||
        !Find(library, "nvmlDeviceGetHandleByPciBusId_v2", &find) ||
        !Find(library, "nvmlDeviceGetClockInfo", &clock_info)) {
      return false;
    }
    started = start() == 0;
    return started && find(pci_bus_id.c_str(), &device) == 0;
  }

  void* library = nullptr;
  int (*shutdown)() = nullptr;
  int (*clock_info)(void* device, int type, unsigned* mhz) = nullptr;
  bool started = false;
  void* device = nullptr;
};

SmClock::SmClock(const std::string& pci_bus_id) {
  auto nvml = std::make_unique<Nvml>();
  if (nvml->Open(pci_bus_id)) nvml_ = std::move(nvml);
}

SmClock::~SmClock() = default;

Json SmClock::Mhz() const {
  unsigned mhz = 0;
  if (nvml_ == nullptr ||
      nvml_->clock_info(nvml_->device, kClockOfSms, &mhz) != 0) {
    return nullptr;
  }
  return mhz;
}

namespace {

constexpr int kMaxTurns = 15;
constexpr int kMinTurns = 3;
constexpr double kMaxSeconds = 0.5;
constexpr int kTurnEvents = 4;

std::string BusIdOfDevice() {
  int device = 0;
  char bus_id[32] = "";
  Must(cudaGetDevice(&device));
  if (cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), device) != cudaSuccess) {
    cudaGetLastError();
  }
  return bus_id;
}

// Between two events, in seconds.
double Between(cudaEvent_t begin, cudaEvent_t end) {
  float milliseconds = 0.0f;
  Must(cudaEventElapsedTime(&milliseconds, begin, end));
  return milliseconds * 1e-3;
}

double SecondsOf(const Turn& turn) {
  return turn.kernel + turn.yardstick +
         (turn.yardstick > 0.0 ? 2 : 1) * turn.copy;
}

int TurnsIn(double seconds, double each, int least) {
  return static_cast<int>(
      std::clamp<double>(std::ceil(seconds / each), least, kMaxTurns));
}

}  // namespace

CopyTurns::CopyTurns(cudaStream_t stream, int64_t num_bytes,
                     double warm_seconds)
    : stream_(stream),
      num_bytes_(num_bytes),
      warm_seconds_(warm_seconds),
      from_(Must(cuda::AllocateDevice(num_bytes))),
      to_(Must(cuda::AllocateDevice(num_bytes))),
      clock_(BusIdOfDevice()),
      sm_mhz_(std::make_unique<Json>()),
      events_(kTurnEvents * kMaxTurns + 1) {
  for (cudaEvent_t& event : events_) {
    Must(cudaEventCreateWithFlags(&event, cudaEventDefault));
  }
}

CopyTurns::~CopyTurns() {
  for (const cudaEvent_t event : events_) cudaEventDestroy(event);
}

std::vector<Turn> CopyTurns::Measure(const Launch& launch,
                                     const Launch& yardstick) {
  Run(1, launch, yardstick);  // which may load kernels
  double each = SecondsOf(Run(kMinTurns, launch, yardstick).back());
  for (double left = warm_seconds_; left > 0.0;) {
    // It becomes faster meanwhile.
    for (const Turn& turn : Run(TurnsIn(left, each, 1), launch, yardstick)) {
      each = SecondsOf(turn);
      left -= each;
    }
  }
  // The clock is asked for, and the timed turns come, while it is busy.
  for (int turn = 0; turn < kMinTurns; ++turn) {
    Enqueue(launch, yardstick, nullptr);
  }
  const Json before = clock_.Mhz();
  const std::vector<Turn> turns =
      Run(TurnsIn(kMaxSeconds, each, kMinTurns), launch, yardstick);
  *sm_mhz_ = {{"before", before}, {"after", clock_.Mhz()}};
  return turns;
}

void CopyTurns::Enqueue(const Launch& launch, const Launch& yardstick,
                        cudaEvent_t* events) {
  const auto record = [&] {
    if (events != nullptr) Must(cudaEventRecord(*events++, stream_));
  };
  Copy();
  record();
  launch();
  record();
  if (yardstick == nullptr) return;
  Copy();
  record();
  yardstick();
  record();
}

std::vector<Turn> CopyTurns::Run(int num_turns, const Launch& launch,
                                 const Launch& yardstick) {
  const int num_events = yardstick == nullptr ? 2 : kTurnEvents;
  Copy();
  Must(cudaEventRecord(events_[0], stream_));
  for (int turn = 0; turn < num_turns; ++turn) {
    Enqueue(launch, yardstick, &events_[num_events * turn + 1]);
  }
  Must(cudaEventSynchronize(events_[num_events * num_turns]));
  std::vector<Turn> turns;
  for (int i = 0; i < num_turns; ++i) {
    const cudaEvent_t* const at = &events_[num_events * i];
    Turn turn;
    turn.copy = Between(at[0], at[1]);
    turn.kernel = Between(at[1], at[2]);
    if (yardstick != nullptr) turn.yardstick = Between(at[3], at[4]);
    turns.push_back(turn);
  }
  return turns;
}

void CopyTurns::Copy() {
  Must(cudaMemcpyAsync(to_.get(), from_.get(), num_bytes_,
                       cudaMemcpyDeviceToDevice, stream_));
}

}  // namespace agg
