// The CUDA kernels against this card: its memory, its fp64 tensor cores, its
// bus. Everything is measured in one run; nothing is taken from a data sheet.
//
//   cuda_kernels [--smoke] [--json=FILE]
//
// Medians of up to 15 turns, timed by events: a device-to-device copy, then the
// kernel. A kernel's share of the copy is that of bytes per second in a turn:
// those that the kernel has to move, each array once, and those that the copy
// reads and writes. Rows are 2 GiB together, a copy reads 1 GiB. Both ways to
// a Gram of many rows are measured: where cuBLAS takes less time than the hand
// kernels from is what kManyRows of cuda_scratch.h should say. Exits with 0 and
// says so where there is no device. --smoke: small arrays.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/cuda/args_block.h"
#include "kernels/cuda/chunk_plan.h"
#include "kernels/cuda/cublas_library.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/gram_tile.h"
#include "kernels/cuda/numa_node.h"
#include "kernels/cuda/tile_shape.h"
#include "kernels/cuda/update_kernel.h"
#include "kernels/step_constants.h"
#include "kernels/step_formula.h"
#include "nlohmann/json.hpp"
#include "tests/bench/bench_file.h"
#include "tests/bench/card_facts.h"
#include "tests/bench/copy_turns.h"
#include "tests/bench/cuda_must.h"
#include "tests/bench/device_fill.h"
#include "tests/bench/device_limits.h"
#include "tests/bench/launch_overhead.h"
#include "tests/bench/turn_rates.h"

namespace agg {
namespace {

constexpr int64_t kMi = int64_t{1} << 20;
constexpr int64_t kSliceElements = kMi;
// From as many rows on cuBLAS is measured beside the hand kernels, and up to as
// many Update, which is the same for more.
constexpr int kLeastCublasRows = 32;
constexpr int kMostUpdateRows = 32;

// Bytes of the rows of one size: far more than any cache has, and so few that
// an optimizer's arrays, up to three times as much again, fit into 16 GiB.
int64_t MeasuredBytes() {
  size_t free_bytes = 0, total_bytes = 0;
  Must(cudaMemGetInfo(&free_bytes, &total_bytes));
  return std::min(2048 * kMi, static_cast<int64_t>(free_bytes) / 8 / kMi * kMi);
}

class Bench {
 public:
  Bench(bool smoke, BenchFile* file)
      : smoke_(smoke),
        total_bytes_(smoke ? kMi / 64 : MeasuredBytes()),
        file_(*file),
        stream_(Must(cuda::MakeStream())),
        fill_(stream_.get()),
        turns_(stream_.get(), total_bytes_ / 2),
        args_(Must(cuda::ArgsBlock::Make(cuda::NumaNode()))) {
    fill_.Fill(turns_.from(), turns_.num_bytes(), DType::kF32, 0);
    OpenCublas();
    limits_ = MeasureLimits(smoke_, &turns_, &file_);
  }

  void Run(DType dtype, int num_rows) {
    const int64_t element_bytes = DTypeBytes(dtype);
    const int64_t num_elements = total_bytes_ / (num_rows * element_bytes);
    std::vector<cuda::DeviceMemory> rows;
    rows_.clear();
    for (int r = 0; r < num_rows; ++r) {
      rows.push_back(Must(cuda::AllocateDevice(num_elements * element_bytes)));
      Fill(rows.back().get(), num_elements * element_bytes, dtype);
      rows_.push_back(rows.back().get());
    }
    dtype_ = dtype;
    num_elements_ = num_elements;
    const double by_hand = RunGram();
    if (cublas_ != nullptr && num_rows >= kLeastCublasRows) {
      std::printf("P %3d cuBLAS: %.2f of the hand kernels' time\n", num_rows,
                  by_hand / RunCublas());
    }
    if (num_rows <= kMostUpdateRows) {
      for (const OptimizerKind kind :
           {OptimizerKind::kSgd, OptimizerKind::kAdamW, OptimizerKind::kLamb}) {
        RunUpdate(kind);
      }
    }
  }

 private:
  void OpenCublas() {
    auto cublas = cuda::CublasLibrary::Open("");
    absl::Status status = cublas.status();
    if (status.ok()) status = (*cublas)->Start(stream_.get());
    if (!status.ok()) {
      std::printf("no rows for cuBLAS: %s\n",
                  std::string(status.message()).c_str());
      file_.Set("cublas", nullptr);
      return;
    }
    cublas_ = *std::move(cublas);
    tile_ = Must(cuda::AllocateDevice(64 * kMi));
    matrices_ = Must(cuda::AllocateDevice(64 * kMi));
    file_.Set("cublas", cublas_->path());
  }

  void Fill(char* device, int64_t num_bytes, DType dtype) {
    fill_.Fill(device, num_bytes, dtype, ++num_filled_);
  }

  // Prints and keeps what `turns` say of a kernel. `optimizer`: "" for none.
  // Returns bytes per second.
  double Add(const std::string& kernel, const std::string& route,
             const std::string& optimizer, double num_bytes, double operations,
             const std::vector<Turn>& turns) {
    Json row = {{"kernel", kernel},
                {"route", route},
                {"P", rows_.size()},
                {"dtype", std::string(DTypeName(dtype_))},
                {"optimizer", optimizer.empty() ? Json() : Json(optimizer)},
                {"elements", num_elements_}};
    row.update(RatesOf(turns, num_bytes, turns_.copied_bytes()));
    const double rate = row["gb_per_s"]["median"].get<double>() * 1e9;
    const std::string& kind = optimizer.empty() ? route : optimizer;
    std::printf("P %3d %-4s %-6s %-12s %8.1f GB/s  %5.1f%% of copy",
                static_cast<int>(rows_.size()),
                std::string(DTypeName(dtype_)).c_str(), kernel.c_str(),
                kind.c_str(), rate * 1e-9,
                100 * row["share_of_copy"]["median"].get<double>());
    if (operations > 0) {
      const double per_second = operations / num_bytes * rate;
      row["tflop_per_s"] = RoundedNumber(per_second * 1e-12);
      std::printf("  %6.2f TFLOP/s  %5.1f%% of fp64 mma", per_second * 1e-12,
                  100 * per_second / limits_.fp64_per_second);
    }
    std::printf("\n");
    std::fflush(stdout);
    file_.Append("rows", std::move(row));
    return rate;
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

  // Bytes of rows per second by the hand kernels, as RunCublas by cuBLAS.
  double RunGram() {
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
    double by_hand = 0.0;
    for (const bool double_float : {false, true}) {
      const auto launch =
          double_float ? &cuda::LaunchGramDoubleFloat : &cuda::LaunchGram;
      const auto turns = turns_.Measure([&] {
        Must(launch(gram, stream_.get()));
        Must(cuda::LaunchSums(sum, stream_.get()));
      });
      const double rate = Add("gram", double_float ? "double-float" : "hand",
                              "", RowBytes(), GramOperations(), turns);
      if (!double_float) by_hand = rate;
    }
    return by_hand;
  }

  double RunCublas() {
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
    const auto turns = turns_.Measure([&] {
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
    return Add("gram", "cublas", "", RowBytes(), GramOperations(), turns);
  }

  void RunUpdate(OptimizerKind kind) {
    OptimizerOptions optimizer;
    optimizer.kind = kind;
    const int num_states = OptimizerStateArrays(optimizer);
    std::vector<cuda::DeviceMemory> arrays;
    for (int i = 0; i <= num_states; ++i) {
      arrays.push_back(Must(cuda::AllocateDevice(num_elements_ * 4)));
      if (i == 0) Fill(arrays[0].get(), num_elements_ * 4, DType::kF32);
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
    const auto turns = turns_.Measure(
        [&] { Must(cuda::LaunchUpdate(update, stream_.get())); });
    Add("update", "hand",
        kind == OptimizerKind::kSgd     ? "sgd"
        : kind == OptimizerKind::kAdamW ? "adamw"
                                        : "lamb",
        RowBytes() + 8.0 * (1 + num_states) * num_elements_, 0, turns);
  }

  const bool smoke_;
  const int64_t total_bytes_;  // of rows
  BenchFile& file_;
  const cuda::Stream stream_;
  DeviceFill fill_;
  CopyTurns turns_;
  cuda::ArgsBlock args_;
  std::unique_ptr<cuda::CublasLibrary> cublas_;
  cuda::DeviceMemory tile_, matrices_;
  DeviceLimits limits_;
  std::vector<const void*> rows_;
  DType dtype_ = DType::kF32;
  int64_t num_elements_ = 0;
  uint32_t num_filled_ = 0;
};

void MeasureCalls(Backend* backend, BenchFile* file) {
  const LaunchOverhead overhead = MeasureLaunchOverhead(backend);
  std::printf(
      "1 Ki elements of 4 rows, call to return: gram %.1f us, update %.1f us\n",
      overhead.gram * 1e6, overhead.update * 1e6);
  file->Set("calls", {{"gram_us", RoundedNumber(overhead.gram * 1e6)},
                      {"update_us", RoundedNumber(overhead.update * 1e6)}});
}

int Main(int argc, char** argv) {
  BenchFlags flags;
  if (!ParseBenchFlags(argc, argv, &flags)) {
    std::fprintf(stderr, "usage: cuda_kernels [--smoke] [--json=FILE]\n");
    return 2;
  }
  const auto backend = CudaBackend::Make(CudaOptions());
  if (!backend.ok()) {
    std::printf("SKIPPED: %s\n",
                std::string(backend.status().message()).c_str());
    return 0;
  }
  std::printf("%s\n", (*backend)->description().c_str());
  BenchFile file("cuda_kernels", flags.json);
  file.Set("card", CardFacts());
  Bench bench(flags.smoke, &file);
  MeasureCalls(backend->get(), &file);
  const std::vector<int> row_counts =
      flags.smoke
          ? std::vector<int>{2, 8, 32, 64}
          : std::vector<int>{2, 3, 4, 8, 12, 16, 24, 32, 64, 128, 256, 512};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int num_rows : row_counts) bench.Run(dtype, num_rows);
  }
  file.Finish();
  return 0;
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) { return agg::Main(argc, argv); }
