#include "tests/bench/round_parts.h"

#include <chrono>  // NOLINT
#include <thread>  // NOLINT
#include <utility>

#include "kernels/dtype.h"
#include "tests/bench/bench_file.h"
#include "tests/bench/cuda_must.h"
#include "tests/bench/process_numbers.h"

namespace agg {

double Seconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

DeviceTensors::DeviceTensors(std::shared_ptr<const DeviceContext> context,
                             const Manifest& manifest, uint32_t seed,
                             DeviceFill* fill) {
  for (const TensorSpec& tensor : manifest.tensors) {
    memory_.push_back(
        Must(SharedDeviceMemory::Create(context, NumElements(tensor) * 4)));
    fill->Fill(memory_.back()->data(), memory_.back()->num_bytes(), DType::kF32,
               seed++);
  }
}

std::vector<TensorView> DeviceTensors::views() const {
  std::vector<TensorView> views;
  for (const auto& memory : memory_) views.emplace_back(Floats(*memory));
  return views;
}

std::vector<MutableTensorView> DeviceTensors::targets() const {
  std::vector<MutableTensorView> targets;
  for (const auto& memory : memory_) targets.emplace_back(Floats(*memory));
  return targets;
}

absl::Span<float> DeviceTensors::Floats(const SharedDeviceMemory& memory) {
  return absl::MakeSpan(reinterpret_cast<float*>(memory.data()),
                        static_cast<size_t>(memory.num_bytes() / 4));
}

CardCopy::CardCopy(int64_t num_bytes, cudaStream_t stream)
    : num_bytes_(num_bytes),
      stream_(stream),
      from_(Must(cuda::AllocateDevice(num_bytes))),
      to_(Must(cuda::AllocateDevice(num_bytes))) {}

double CardCopy::Measure() {
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

ServerPhases::ServerPhases(int metrics_port)
    : port_(metrics_port), num_rounds_(NumRounds()), before_(Read()) {}

Parts ServerPhases::Next() {
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

double ServerPhases::NumRounds() const {
  return Metric(port_, "aggserver_round_seconds_count{");
}

Parts ServerPhases::Read() const {
  return MetricBy(port_, "aggserver_round_duration_seconds_sum{", "phase");
}

void PartsOfRounds::Add(const Parts& round) {
  for (const auto& [name, seconds] : round) all_[name].push_back(seconds);
}

Json PartsOfRounds::Spreads() const {
  Json spreads = Json::object();
  for (const auto& [name, values] : all_) spreads[name] = SpreadOf(values);
  return spreads;
}

}  // namespace agg
