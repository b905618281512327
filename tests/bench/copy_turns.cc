#include "tests/bench/copy_turns.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/bench/cuda_must.h"

namespace agg {
namespace {

constexpr int kMaxTurns = 15;
constexpr int kMinTurns = 3;
constexpr double kMaxSeconds = 1.0;

}  // namespace

CopyTurns::CopyTurns(cudaStream_t stream, int64_t num_bytes)
    : stream_(stream),
      num_bytes_(num_bytes),
      from_(Must(cuda::AllocateDevice(num_bytes))),
      to_(Must(cuda::AllocateDevice(num_bytes))),
      events_(2 * kMaxTurns + 1) {
  for (cudaEvent_t& event : events_) {
    Must(cudaEventCreateWithFlags(&event, cudaEventDefault));
  }
}

CopyTurns::~CopyTurns() {
  for (const cudaEvent_t event : events_) cudaEventDestroy(event);
}

std::vector<Turn> CopyTurns::Measure(const std::function<void()>& launch) {
  Run(1, launch);
  std::vector<Turn> turns = Run(kMinTurns, launch);
  const double each = turns.back().copy + turns.back().kernel;
  const double more = kMaxSeconds / each - kMinTurns;
  const int num_more =
      static_cast<int>(std::clamp<double>(more, 0, kMaxTurns - kMinTurns));
  if (num_more > 0) {
    const std::vector<Turn> others = Run(num_more, launch);
    turns.insert(turns.end(), others.begin(), others.end());
  }
  return turns;
}

std::vector<Turn> CopyTurns::Run(int num_turns,
                                 const std::function<void()>& launch) {
  Copy();
  Must(cudaEventRecord(events_[0], stream_));
  for (int turn = 0; turn < num_turns; ++turn) {
    Copy();
    Must(cudaEventRecord(events_[2 * turn + 1], stream_));
    launch();
    Must(cudaEventRecord(events_[2 * turn + 2], stream_));
  }
  Must(cudaEventSynchronize(events_[2 * num_turns]));
  std::vector<Turn> turns;
  for (int turn = 0; turn < num_turns; ++turn) {
    float copy = 0.0f, kernel = 0.0f;
    Must(cudaEventElapsedTime(&copy, events_[2 * turn], events_[2 * turn + 1]));
    Must(cudaEventElapsedTime(&kernel, events_[2 * turn + 1],
                              events_[2 * turn + 2]));
    turns.push_back({copy * 1e-3, kernel * 1e-3});
  }
  return turns;
}

void CopyTurns::Copy() {
  Must(cudaMemcpyAsync(to_.get(), from_.get(), num_bytes_,
                       cudaMemcpyDeviceToDevice, stream_));
}

}  // namespace agg
