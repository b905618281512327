// The CUDA kernels against this card: its memory, its fp64 tensor cores, its
// bus. Everything is measured in one run; nothing is taken from a data sheet.
//
//   cuda_kernels [--smoke]
//
// Medians of 7 launches timed by events, after one to warm up. GB/s of a
// kernel count each array once (the copy: read and written bytes). Exits with
// 0 and says so where there is no device. --smoke: small arrays.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/args_block.h"
#include "kernels/cuda/chunk_plan.h"
#include "kernels/cuda/cublas_library.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/gram_tile.h"
#include "kernels/cuda/numa_node.h"
#include "kernels/cuda/pinned_memory.h"
#include "kernels/cuda/tile_shape.h"
#include "kernels/cuda/update_kernel.h"
#include "kernels/step_constants.h"
#include "kernels/step_formula.h"
#include "tests/bench/fp64_peak.h"
#include "tests/bench/launch_overhead.h"

namespace agg {
namespace {

constexpr int kRepetitions = 7;
constexpr int64_t kMi = int64_t{1} << 20;
constexpr int64_t kSliceElements = kMi;

void Must(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

template <class T>
T Must(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  std::exit(1);
}

void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

// Median seconds of `launch` on a stream.
double Seconds(cudaStream_t stream, const std::function<void()>& launch) {
  cudaEvent_t begin, end;
  Must(cudaEventCreate(&begin));
  Must(cudaEventCreate(&end));
  std::vector<float> milliseconds(kRepetitions);
  launch();
  for (float& elapsed : milliseconds) {
    Must(cudaEventRecord(begin, stream));
    launch();
    Must(cudaEventRecord(end, stream));
    Must(cudaEventSynchronize(end));
    Must(cudaEventElapsedTime(&elapsed, begin, end));
  }
  Must(cudaEventDestroy(begin));
  Must(cudaEventDestroy(end));
  std::sort(milliseconds.begin(), milliseconds.end());
  return milliseconds[kRepetitions / 2] * 1e-3;
}

// Bytes of the rows: several GB where the card has them; optimizers' arrays
// take up to three times as much again.
int64_t MeasuredBytes() {
  size_t free_bytes = 0, total_bytes = 0;
  Must(cudaMemGetInfo(&free_bytes, &total_bytes));
  return std::min(8192 * kMi, static_cast<int64_t>(free_bytes) / 5 / kMi * kMi);
}

// What everything is compared with.
struct Limits {
  double copy_bytes_per_second = 0.0;
  double fp64_per_second = 0.0;  // the larger of both mma shapes
};

class Bench {
 public:
  explicit Bench(bool smoke)
      : total_bytes_(smoke ? 16 * kMi : MeasuredBytes()),
        stream_(Must(cuda::MakeStream())),
        args_(Must(cuda::ArgsBlock::Make(cuda::NumaNode()))) {
    auto cublas = cuda::CublasLibrary::Open("");
    if (cublas.ok()) {
      cublas_ = *std::move(cublas);
      Must(cublas_->Start(stream_.get()));
      tile_ = Must(cuda::AllocateDevice(64 * kMi));
      matrices_ = Must(cuda::AllocateDevice(64 * kMi));
    } else {
      std::printf("no column for cuBLAS: %s\n",
                  std::string(cublas.status().message()).c_str());
    }
  }

  void MeasureLimits() {
    const auto from = Must(cuda::AllocateDevice(total_bytes_ / 4));
    const auto to = Must(cuda::AllocateDevice(total_bytes_ / 4));
    FillRandom(from.get(), total_bytes_ / 4);
    const double copy = Seconds(stream_.get(), [&] {
      Must(cudaMemcpyAsync(to.get(), from.get(), total_bytes_ / 4,
                           cudaMemcpyDeviceToDevice, stream_.get()));
    });
    limits_.copy_bytes_per_second = total_bytes_ / 2.0 / copy;
    std::printf("device copy, read + written  %8.1f GB/s\n",
                limits_.copy_bytes_per_second * 1e-9);
    constexpr int kBlocks = 4096, kRounds = 2000;
    for (const bool tall : {false, true}) {
      const double seconds = Seconds(stream_.get(), [&] {
        Must(LaunchFp64Peak(tall, kBlocks, kRounds,
                            reinterpret_cast<double*>(to.get()),
                            stream_.get()));
      });
      const double peak = Fp64PeakOperations(kBlocks, kRounds) / seconds;
      std::printf("fp64 mma from registers, %s %6.2f TFLOP/s\n",
                  tall ? "16 rows" : " 8 rows", peak * 1e-12);
      limits_.fp64_per_second = std::max(limits_.fp64_per_second, peak);
    }
    MeasureBus(from.get(), to.get());
  }

  void Run(DType dtype, int num_rows) {
    const int64_t element_bytes = DTypeBytes(dtype);
    const int64_t num_elements = total_bytes_ / (num_rows * element_bytes) /
                                     kSliceElements * kSliceElements +
                                 (total_bytes_ < 1024 * kMi ? 100000 : 0);
    std::vector<cuda::DeviceMemory> rows;
    rows_.clear();
    for (int r = 0; r < num_rows; ++r) {
      rows.push_back(Must(cuda::AllocateDevice(num_elements * element_bytes)));
      FillRandom(rows.back().get(), num_elements * element_bytes, dtype);
      rows_.push_back(rows.back().get());
    }
    dtype_ = dtype;
    num_elements_ = num_elements;
    RunGram();
    if (cublas_ != nullptr) RunCublas();
    if (num_rows <= 32) {
      for (const OptimizerKind kind :
           {OptimizerKind::kSgd, OptimizerKind::kAdamW, OptimizerKind::kLamb}) {
        RunUpdate(kind);
      }
    }
  }

 private:
  void MeasureBus(char* device, char* other) {
    const int64_t num_bytes = std::min(total_bytes_ / 4, 1024 * kMi);
    const auto host = Must(cuda::AllocatePinned(num_bytes, cuda::NumaNode()));
    const double up = Seconds(stream_.get(), [&] {
      Must(
          cuda::CopyToDevice(host.get(), other, {0, num_bytes}, stream_.get()));
    });
    const double down = Seconds(stream_.get(), [&] {
      Must(cuda::CopyToHost(device, host.get(), {0, num_bytes}, stream_.get()));
    });
    std::printf("host to device %22.1f GB/s\ndevice to host %22.1f GB/s\n",
                num_bytes / up * 1e-9, num_bytes / down * 1e-9);
  }

  // Random mantissas and signs, exponents around 1; never zeros, which some
  // units compute faster.
  void FillRandom(char* device, int64_t num_bytes, DType dtype = DType::kF32) {
    constexpr int64_t kBlock = 4 * kMi;
    std::vector<uint16_t> values(kBlock / 2);
    std::mt19937 random(static_cast<uint32_t>(++num_filled_));
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t bits = random();
      const bool low_half = dtype == DType::kF32 && i % 2 == 0;
      values[i] = static_cast<uint16_t>(low_half ? bits
                                        : dtype == DType::kF16
                                            ? (bits & 0x83ff) | 0x3800
                                            : (bits & 0x807f) | 0x3f00);
    }
    for (int64_t at = 0; at < num_bytes; at += kBlock) {
      Must(cudaMemcpy(device + at, values.data(),
                      std::min(kBlock, num_bytes - at),
                      cudaMemcpyHostToDevice));
    }
  }

  void Print(const char* what, double num_bytes, double operations,
             double seconds) {
    std::printf("P %3d %-4s %-17s %8.1f GB/s  %5.1f%% of copy",
                static_cast<int>(rows_.size()),
                std::string(DTypeName(dtype_)).c_str(), what,
                num_bytes / seconds * 1e-9,
                100 * num_bytes / seconds / limits_.copy_bytes_per_second);
    if (operations > 0) {
      std::printf("  %6.2f TFLOP/s  %5.1f%% of fp64 mma",
                  operations / seconds * 1e-12,
                  100 * operations / seconds / limits_.fp64_per_second);
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  double RowBytes() const {
    return static_cast<double>(rows_.size()) * num_elements_ *
           DTypeBytes(dtype_);
  }
  // Useful ones: a multiply and an add per pair and element.
  double GramOperations() const {
    return 2.0 * PackedGramSize(static_cast<int64_t>(rows_.size())) *
           num_elements_;
  }

  // All waves' chunks as one: a benchmark has the memory for it.
  std::vector<cuda::Wave> Waves(int64_t max_chunks) const {
    std::vector<ElementRange> ranges;
    for (int64_t k = 0; k < num_elements_; k += kSliceElements) {
      ranges.push_back({k, std::min(kSliceElements, num_elements_ - k)});
    }
    return cuda::PlanWaves(ranges, max_chunks, max_chunks);
  }

  void RunGram() {
    const int64_t num_pairs =
        PackedGramSize(static_cast<int64_t>(rows_.size()));
    const cuda::Wave wave = Waves(1 << 30)[0];
    const auto partial =
        Must(cuda::AllocateDevice(wave.num_chunks * num_pairs * 8));
    const auto sums = Must(cuda::AllocateDevice(
        static_cast<int64_t>(wave.slot_ranges.size()) * num_pairs * 8));
    Must(args_.Begin());
    cuda::GramLaunch gram;
    gram.rows = args_.Append(absl::MakeConstSpan(rows_), &gram.args);
    gram.num_rows = static_cast<int>(rows_.size());
    gram.dtype = static_cast<int>(dtype_);
    cuda::AppendChunks(wave, &args_, &gram);
    gram.partial = reinterpret_cast<double*>(partial.get());
    cuda::SumLaunch sum;
    sum.partial = gram.partial;
    sum.slots = args_.Append(absl::MakeConstSpan(wave.slots), &sum.args);
    sum.num_slots = static_cast<int64_t>(wave.slot_ranges.size());
    sum.num_values = num_pairs;
    sum.sums = reinterpret_cast<double*>(sums.get());
    for (const bool double_float : {false, true}) {
      const auto launch =
          double_float ? &cuda::LaunchGramDoubleFloat : &cuda::LaunchGram;
      const double seconds = Seconds(stream_.get(), [&] {
        Must(launch(gram, stream_.get()));
        Must(cuda::LaunchSums(sum, stream_.get()));
      });
      Print(double_float ? "gram double-float" : "gram", RowBytes(),
            GramOperations(), seconds);
    }
  }

  void RunCublas() {
    const auto num_rows = static_cast<int64_t>(rows_.size());
    const cuda::TileShape shape = cuda::PlanTile(num_rows, 64 * kMi);
    const auto sums = Must(cuda::AllocateDevice(PackedGramSize(num_rows) * 8));
    Must(args_.Begin());
    cuda::ConvertLaunch convert;
    convert.rows = args_.Append(absl::MakeConstSpan(rows_), &convert.args);
    convert.num_rows = static_cast<int>(num_rows);
    convert.dtype = static_cast<int>(dtype_);
    convert.tile = reinterpret_cast<double*>(tile_.get());
    convert.row_stride = shape.row_stride();
    const double seconds = Seconds(stream_.get(), [&] {
      for (int64_t k = 0; k < num_elements_; k += shape.row_stride()) {
        const int64_t left = std::min(shape.row_stride(), num_elements_ - k);
        const int num_batches = static_cast<int>(
            (left + cuda::kBatchElements - 1) / cuda::kBatchElements);
        auto* const matrices = reinterpret_cast<double*>(matrices_.get());
        convert.begin = k;
        convert.num_elements = static_cast<int>(left);
        convert.num_filled = num_batches * cuda::kBatchElements;
        Must(cuda::LaunchConvert(convert, stream_.get()));
        Must(cublas_->Gram(
            {convert.tile, static_cast<int>(num_rows), cuda::kBatchElements,
             static_cast<int>(shape.row_stride()), num_batches, matrices}));
        Must(cuda::LaunchGather(
            {matrices, num_batches, static_cast<int>(num_rows),
             reinterpret_cast<double*>(sums.get())},
            stream_.get()));
      }
    });
    Print("gram cuBLAS", RowBytes(), GramOperations(), seconds);
  }

  void RunUpdate(OptimizerKind kind) {
    OptimizerOptions optimizer;
    optimizer.kind = kind;
    const int num_states = OptimizerStateArrays(optimizer);
    std::vector<cuda::DeviceMemory> arrays;
    for (int i = 0; i <= num_states; ++i) {
      arrays.push_back(Must(cuda::AllocateDevice(num_elements_ * 4)));
      if (i == 0) FillRandom(arrays[0].get(), num_elements_ * 4);
    }
    const cuda::Wave wave = Waves(1 << 30)[0];
    const std::vector<StepConstants> constants(
        wave.slot_ranges.size(),
        MakeStepConstants(optimizer, 10, 1e-6f, 0.01f, 1.0f));
    const std::vector<double> coefficients(
        wave.slot_ranges.size() * rows_.size(),
        1.0 / static_cast<double>(rows_.size()));
    Must(args_.Begin());
    cuda::UpdateLaunch update;
    update.rows = args_.Append(absl::MakeConstSpan(rows_), &update.args);
    update.num_rows = static_cast<int>(rows_.size());
    update.dtype = static_cast<int>(dtype_);
    update.formula = ChooseFormula(optimizer);
    update.num_states = num_states;
    cuda::AppendChunks(wave, &args_, &update);
    update.constants =
        args_.Append(absl::MakeConstSpan(constants), &update.args);
    update.coefficients =
        args_.Append(absl::MakeConstSpan(coefficients), &update.args);
    const auto floats = [&](int i) {
      return i > num_states ? nullptr
                            : reinterpret_cast<float*>(arrays[i].get());
    };
    update.master = floats(0);
    update.state0 = floats(1);
    update.state1 = floats(2);
    const double seconds = Seconds(stream_.get(), [&] {
      Must(cuda::LaunchUpdate(update, stream_.get()));
    });
    Print(kind == OptimizerKind::kSgd     ? "update sgd"
          : kind == OptimizerKind::kAdamW ? "update adamw"
                                          : "update lamb",
          RowBytes() + 8.0 * (1 + num_states) * num_elements_, 0, seconds);
  }

  const int64_t total_bytes_;  // of rows
  const cuda::Stream stream_;
  cuda::ArgsBlock args_;
  std::unique_ptr<cuda::CublasLibrary> cublas_;
  cuda::DeviceMemory tile_, matrices_;
  Limits limits_;
  std::vector<const void*> rows_;
  DType dtype_ = DType::kF32;
  int64_t num_elements_ = 0;
  int num_filled_ = 0;
};

int Main(int argc, char** argv) {
  const bool smoke = argc == 2 && std::strcmp(argv[1], "--smoke") == 0;
  if (argc > 2 || (argc == 2 && !smoke)) {
    std::fprintf(stderr, "usage: cuda_kernels [--smoke]\n");
    return 2;
  }
  const auto backend = CudaBackend::Make(CudaOptions());
  if (!backend.ok()) {
    std::printf("SKIPPED: %s\n",
                std::string(backend.status().message()).c_str());
    return 0;
  }
  std::printf("%s\n", (*backend)->description().c_str());
  Bench bench(smoke);
  bench.MeasureLimits();
  const LaunchOverhead overhead = MeasureLaunchOverhead(backend->get());
  std::printf(
      "1 Ki elements of 4 rows, call to return: gram %.1f us, update %.1f us\n",
      overhead.gram * 1e6, overhead.update * 1e6);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int num_rows : {2, 4, 8, 16, 32, 64, 128}) {
      bench.Run(dtype, num_rows);
    }
  }
  return 0;
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) { return agg::Main(argc, argv); }
