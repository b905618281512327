// The CUDA kernels against this card: its memory, its fp64 tensor cores, its
// bus. Everything is measured in one run; nothing is taken from a data sheet.
//
//   cuda_kernels [--smoke] [--json=FILE]
//
// What is launched is what the backend launches in a job of large tensors: the
// server's calls, in the backend's waves, back to back (kernel_work.h), which
// leaves out its waits for results and its copies to the host. Medians of up to
// 15 turns, timed by events, after 200 ms of the same: a device-to-device copy,
// the kernels, a copy again, and a kernel that does next to nothing but move
// the same bytes, the yardstick (device_peaks.h). Shares are those of bytes per
// second in a turn: of a kernel the bytes that it has to move, each array once,
// of the copy those that it reads and writes. Rows are 2 GiB together, a copy
// reads 1 GiB. Both ways to a Gram of many rows are measured: where cuBLAS
// takes less time than the hand kernels from is what kManyRows of
// cuda_scratch.h should say. For 8 rows, and Grams of 32, all is launched once
// more, at once ("one launch"): what calls and waves of such sizes cost, and of
// an Update the arguments that then do not fit into a launch.
// Exits with 0 and says so where there is no device. --smoke: small arrays.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>  // NOLINT
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/args_block.h"
#include "kernels/cuda/cublas_library.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/gram_schedule.h"
#include "kernels/cuda/kernel_args.h"
#include "kernels/cuda/numa_node.h"
#include "kernels/cuda/update_kernel.h"
#include "nlohmann/json.hpp"
#include "tests/bench/bench_file.h"
#include "tests/bench/card_facts.h"
#include "tests/bench/copy_turns.h"
#include "tests/bench/cuda_must.h"
#include "tests/bench/device_fill.h"
#include "tests/bench/device_peaks.h"
#include "tests/bench/kernel_work.h"

namespace agg {
namespace {

constexpr int64_t kMi = int64_t{1} << 20;
// From as many rows on cuBLAS is measured beside the hand kernels, and up to as
// many Update, which is the same for more.
constexpr int kLeastCublasRows = 32;
constexpr int kMostUpdateRows = 32;
constexpr int kOneLaunchRows = 8;
// Where a kernel with many registers has few blocks in a call.
constexpr int kOneGramRows = 32;
constexpr double kWarmSeconds = 0.2;
constexpr char kOneLaunch[] = "one launch";

// Bytes of the rows of one size: far more than any cache has, and so few that
// an optimizer's arrays, up to three times as much again, fit into 16 GiB.
int64_t MeasuredBytes() {
  size_t free_bytes = 0, total_bytes = 0;
  Must(cudaMemGetInfo(&free_bytes, &total_bytes));
  return std::min(2048 * kMi, static_cast<int64_t>(free_bytes) / 8 / kMi * kMi);
}

const char* NameOf(OptimizerKind kind) {
  return kind == OptimizerKind::kSgd     ? "sgd"
         : kind == OptimizerKind::kAdamW ? "adamw"
                                         : "lamb";
}

// What kernels are compared with in print; the file has each turn's own copy.
struct DeviceLimits {
  double copy_bytes_per_second = 0.0;  // read and written
  double fp64_per_second = 0.0;        // the larger of both mma shapes
};

// By "amount / seconds" of each turn.
std::vector<double> RatesOfKernel(const std::vector<Turn>& turns,
                                  double amount) {
  std::vector<double> rates;
  for (const Turn& turn : turns) rates.push_back(amount / turn.kernel);
  return rates;
}

double MeasureCopy(CopyTurns* turns, BenchFile* file) {
  std::vector<double> rates;
  for (const Turn& turn : turns->Measure([] {})) {
    rates.push_back(turns->copied_bytes() / turn.copy * 1e-9);
  }
  const Json spread = SpreadOf(rates);
  file->Set("copy", {{"bytes", ExactNumber(turns->copied_bytes())},
                     {"repetitions", rates.size()},
                     {"gb_per_s", spread}});
  const double median = spread["median"];
  std::printf("device copy, read + written  %8.1f GB/s\n", median);
  return median * 1e9;
}

double MeasureFp64(bool smoke, CopyTurns* turns, BenchFile* file) {
  const int num_blocks = smoke ? 2 : 4096;
  const int num_rounds = smoke ? 2 : 2000;
  Json rates;
  double largest = 0.0;
  for (const bool tall : {false, true}) {
    const auto measured = turns->Measure([&] {
      Must(LaunchFp64Peak(tall, num_blocks, num_rounds,
                          reinterpret_cast<double*>(turns->to()),
                          turns->stream()));
    });
    const Json spread = SpreadOf(RatesOfKernel(
        measured, Fp64PeakOperations(num_blocks, num_rounds) * 1e-12));
    rates[tall ? "m16n8k4_tflop_per_s" : "m8n8k4_tflop_per_s"] = spread;
    const double median = spread["median"];
    std::printf("fp64 mma from registers, %s %6.2f TFLOP/s\n",
                tall ? "m16n8k4" : " m8n8k4", median);
    largest = std::max(largest, median * 1e12);
  }
  file->Set("fp64", rates);
  return largest;
}

void MeasureBus(CopyTurns* turns, BenchFile* file) {
  const int64_t num_bytes = turns->num_bytes();
  const auto host = Must(cuda::AllocatePinned(num_bytes, cuda::NumaNode()));
  Json rates;
  for (const bool up : {true, false}) {
    const auto measured = turns->Measure([&] {
      Must(up ? cuda::CopyToDevice(host.get(), turns->to(), {0, num_bytes},
                                   turns->stream())
              : cuda::CopyToHost(turns->to(), host.get(), {0, num_bytes},
                                 turns->stream()));
    });
    const Json spread = SpreadOf(
        RatesOfKernel(measured, static_cast<double>(num_bytes) * 1e-9));
    rates[up ? "host_to_device_gb_per_s" : "device_to_host_gb_per_s"] = spread;
    std::printf("%s %22.1f GB/s\n", up ? "host to device" : "device to host",
                spread["median"].get<double>());
  }
  file->Set("bus", rates);
}

// Measures, prints, and sets "copy", "bus" and "fp64" in `file`. `smoke`:
// little work.
DeviceLimits MeasureLimits(bool smoke, CopyTurns* turns, BenchFile* file) {
  DeviceLimits limits;
  limits.copy_bytes_per_second = MeasureCopy(turns, file);
  limits.fp64_per_second = MeasureFp64(smoke, turns, file);
  MeasureBus(turns, file);
  return limits;
}

// What a row of the file is about, besides the rows of the Gram or the Update.
struct Measured {
  std::string kernel;
  std::string route;
  Json optimizer;           // null: none
  double num_bytes = 0.0;   // that it has to move
  double operations = 0.0;  // 0: not of interest
  Json launches;
  Json blocks_per_sm;
  // Where the share of the yardstick is kept.
  const char* share = "share_of_read";
};

class Bench {
 public:
  Bench(bool smoke, BenchFile* file)
      : smoke_(smoke),
        total_bytes_(smoke ? kMi / 64 : MeasuredBytes()),
        file_(*file),
        stream_(Must(cuda::MakeStream())),
        fill_(stream_.get()),
        turns_(stream_.get(), total_bytes_ / 2, smoke ? 0.0 : kWarmSeconds),
        args_(Must(cuda::ArgsBlock::Make(cuda::NumaNode()))),
        row_addresses_(Must(cuda::AllocateDevice(4096 * sizeof(void*)))),
        sm_limits_(LimitsOfDevice()) {
    int num_sms = 1;
    Must(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, 0));
    stream_blocks_ = smoke ? 2 : num_sms * kStreamPeakBlocks;
    fill_.Fill(turns_.from(), turns_.num_bytes(), DType::kF32, 0);
    OpenCublas();
    limits_ = MeasureLimits(smoke_, &turns_, &file_);
  }

  void Run(DType dtype, int num_rows) {
    const int64_t element_bytes = DTypeBytes(dtype);
    const int64_t num_elements = total_bytes_ / (num_rows * element_bytes);
    std::vector<cuda::DeviceMemory> memory;
    rows_ = {{}, dtype, num_elements};
    for (int r = 0; r < num_rows; ++r) {
      memory.push_back(
          Must(cuda::AllocateDevice(num_elements * element_bytes)));
      fill_.Fill(memory.back().get(), num_elements * element_bytes, dtype,
                 ++num_filled_);
      rows_.rows.push_back(memory.back().get());
    }
    PrepareYardstick();
    const double by_hand = RunGrams();
    if (cublas_ != nullptr && num_rows >= kLeastCublasRows) {
      std::printf("P %3d cuBLAS: %.2f of the hand kernels' time\n", num_rows,
                  by_hand / RunCublas());
    }
    if (num_rows > kMostUpdateRows) return;
    for (const OptimizerKind kind :
         {OptimizerKind::kSgd, OptimizerKind::kAdamW, OptimizerKind::kLamb}) {
      RunUpdate(kind, "hand", UpdateWaves(num_rows, num_elements));
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

  // Of the rows alone: its kernels find their addresses on the device.
  void PrepareYardstick() {
    yardstick_ = StreamPeak();
    Must(cudaMemcpyAsync(row_addresses_.get(), rows_.rows.data(),
                         rows_.rows.size() * sizeof(void*),
                         cudaMemcpyHostToDevice, stream_.get()));
    Must(cudaStreamSynchronize(stream_.get()));
    yardstick_.rows =
        reinterpret_cast<const void* const*>(row_addresses_.get());
    yardstick_.num_rows = num_rows();
    yardstick_.element_bytes = static_cast<int>(DTypeBytes(rows_.dtype));
    yardstick_.num_elements = rows_.num_elements;
    yardstick_.sink = reinterpret_cast<unsigned*>(turns_.to());
  }

  std::vector<Turn> MeasureGram(const CopyTurns::Launch& launch) {
    return turns_.Measure(launch, [this] {
      Must(LaunchReadPeak(yardstick_, stream_blocks_, stream_.get()));
    });
  }

  // Prints and keeps what `turns` say. Returns bytes per second.
  double Add(const Measured& measured, const std::vector<Turn>& turns) {
    Json row = {{"kernel", measured.kernel},
                {"route", measured.route},
                {"P", num_rows()},
                {"dtype", std::string(DTypeName(rows_.dtype))},
                {"optimizer", measured.optimizer},
                {"elements", rows_.num_elements}};
    row.update(RatesOf(turns, measured.num_bytes, turns_.copied_bytes()));
    row["share_of_read"] = row["share_of_mix"] = nullptr;
    row[measured.share] = ShareOfYardstick(turns);
    row["launches"] = measured.launches;
    row["blocks_per_sm"] = measured.blocks_per_sm;
    row["sm_mhz"] = turns_.sm_mhz();
    const double rate = row["gb_per_s"]["median"].get<double>() * 1e9;
    if (measured.operations > 0) {
      row["tflop_per_s"] = RoundedNumber(measured.operations /
                                         measured.num_bytes * rate * 1e-12);
    }
    Print(measured, row);
    file_.Append("rows", std::move(row));
    return rate;
  }

  void Print(const Measured& measured, const Json& row) const {
    const std::string kind = measured.optimizer.is_null()
                                 ? measured.route
                                 : measured.optimizer.get<std::string>();
    std::printf(
        "P %3d %-4s %-6s %-12s %8.1f GB/s  %5.1f%% of copy  %5.1f%% of "
        "%s",
        num_rows(), std::string(DTypeName(rows_.dtype)).c_str(),
        measured.kernel.c_str(), kind.c_str(),
        row["gb_per_s"]["median"].get<double>(),
        100 * row["share_of_copy"]["median"].get<double>(),
        100 * row[measured.share]["median"].get<double>(),
        measured.share + sizeof("share_of_") - 1);
    if (row.contains("tflop_per_s")) {
      const double tflops = row["tflop_per_s"];
      std::printf("  %6.2f TFLOP/s  %5.1f%% of fp64 mma", tflops,
                  100 * tflops * 1e12 / limits_.fp64_per_second);
    }
    if (measured.route == kOneLaunch) std::printf("  in one launch");
    if (row["blocks_per_sm"].is_object()) {
      std::printf("  %s of %s blocks per SM",
                  row["blocks_per_sm"]["driver"].dump().c_str(),
                  row["blocks_per_sm"]["expected"].dump().c_str());
    }
    std::printf("  SM %s .. %s MHz\n", row["sm_mhz"]["before"].dump().c_str(),
                row["sm_mhz"]["after"].dump().c_str());
    std::fflush(stdout);
  }

  int num_rows() const { return static_cast<int>(rows_.rows.size()); }
  double RowBytes() const {
    return static_cast<double>(num_rows()) * rows_.num_elements *
           DTypeBytes(rows_.dtype);
  }
  // Useful ones: a multiply and an add per pair and element.
  double GramOperations() const {
    return 2.0 * PackedGramSize(num_rows()) * rows_.num_elements;
  }

  // Bytes of rows per second by the hand kernels, as RunCublas by cuBLAS.
  double RunGrams() {
    const int dtype = static_cast<int>(rows_.dtype);
    cuda::KernelUse use;
    Must(cuda::FindGramUse(num_rows(), dtype, &use));
    const auto waves = GramWaves(num_rows(), rows_.num_elements);
    const double rate = RunGram("hand", false, waves, use);
    if (num_rows() == kOneLaunchRows || num_rows() == kOneGramRows) {
      RunGram(kOneLaunch, false, {OneWave(rows_.num_elements)}, use);
    }
    Must(cuda::FindDoubleFloatUse(dtype, &use));
    RunGram("double-float", true, waves, use);
    return rate;
  }

  double RunGram(const std::string& route, bool double_float,
                 const std::vector<cuda::Wave>& waves,
                 const cuda::KernelUse& use) {
    const GramWork work(rows_, waves, &args_);
    const auto turns =
        MeasureGram([&] { work.Launch(double_float, stream_.get()); });
    return Add({"gram", route, nullptr, RowBytes(), GramOperations(),
                work.num_launches(), BlocksPerSm(use, sm_limits_)},
               turns);
  }

  double RunCublas() {
    const cuda::TileShape shape = cuda::PlanTile(num_rows(), 64 * kMi);
    const auto sums =
        Must(cuda::AllocateDevice(PackedGramSize(num_rows()) * 8));
    Must(args_.Begin());
    cuda::ConvertLaunch convert;
    convert.rows = args_.Append(absl::MakeConstSpan(rows_.rows), &convert.args);
    convert.num_rows = num_rows();
    convert.dtype = static_cast<int>(rows_.dtype);
    convert.tile = reinterpret_cast<double*>(tile_.get());
    convert.row_stride = shape.row_stride();
    const auto turns = MeasureGram([&] {
      for (int64_t k = 0; k < rows_.num_elements; k += shape.row_stride()) {
        const int64_t left =
            std::min(shape.row_stride(), rows_.num_elements - k);
        const int num_batches = static_cast<int>(
            (left + cuda::kBatchElements - 1) / cuda::kBatchElements);
        auto* const matrices = reinterpret_cast<double*>(matrices_.get());
        convert.begin = k;
        convert.num_elements = static_cast<int>(left);
        convert.num_filled = num_batches * cuda::kBatchElements;
        Must(cuda::LaunchConvert(convert, stream_.get()));
        Must(cublas_->Gram({convert.tile, num_rows(), cuda::kBatchElements,
                            static_cast<int>(shape.row_stride()), num_batches,
                            matrices}));
        Must(cuda::LaunchGather({matrices, num_batches, num_rows(),
                                 reinterpret_cast<double*>(sums.get())},
                                stream_.get()));
      }
    });
    return Add({"gram", "cublas", nullptr, RowBytes(), GramOperations(),
                nullptr, nullptr},
               turns);
  }

  void RunUpdate(OptimizerKind kind, const std::string& route,
                 const std::vector<cuda::Wave>& waves) {
    OptimizerOptions optimizer;
    optimizer.kind = kind;
    const auto fill = [this](char* memory, int64_t num_bytes) {
      fill_.Fill(memory, num_bytes, DType::kF32, ++num_filled_);
    };
    const UpdateWork work(rows_, optimizer, waves, fill, &args_);
    StreamPeak mix = yardstick_;
    for (const cuda::DeviceMemory& array : work.arrays()) {
      mix.arrays[mix.num_arrays++] = reinterpret_cast<float*>(array.get());
    }
    const auto turns = turns_.Measure(
        [&] { work.Launch(stream_.get()); },
        [&] { Must(LaunchMixPeak(mix, stream_blocks_, stream_.get())); });
    cuda::KernelUse use;
    Must(cuda::FindUpdateUse(static_cast<int>(rows_.dtype), &use));
    Add({"update", route, NameOf(kind),
         RowBytes() + 8.0 * mix.num_arrays * rows_.num_elements, 0.0,
         work.num_launches(), BlocksPerSm(use, sm_limits_), "share_of_mix"},
        turns);
  }

  const bool smoke_;
  const int64_t total_bytes_;  // of rows
  BenchFile& file_;
  const cuda::Stream stream_;
  DeviceFill fill_;
  CopyTurns turns_;
  cuda::ArgsBlock args_;
  const cuda::DeviceMemory row_addresses_;
  const std::optional<SmLimits> sm_limits_;
  int stream_blocks_ = 1;
  std::unique_ptr<cuda::CublasLibrary> cublas_;
  cuda::DeviceMemory tile_, matrices_;
  DeviceLimits limits_;
  DeviceRows rows_;
  StreamPeak yardstick_;
  uint32_t num_filled_ = 0;
};

constexpr int kCallRepetitions = 201;
constexpr int kCallRows = 4;
constexpr int64_t kCallElements = 1024;

std::unique_ptr<Buffer> Allocate(Backend* backend, BufferUse use) {
  return Must(backend->Allocate(use, kCallElements * 4));
}

double MedianSeconds(const std::function<absl::Status()>& call) {
  Must(call());  // to warm up
  std::vector<double> seconds;
  for (int i = 0; i < kCallRepetitions; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    Must(call());
    const auto end = std::chrono::steady_clock::now();
    seconds.push_back(std::chrono::duration<double>(end - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + kCallRepetitions / 2,
                   seconds.end());
  return seconds[kCallRepetitions / 2];
}

// What the backend's calls cost when there is next to nothing to compute:
// median seconds, from call to return.
void MeasureCalls(Backend* backend, BenchFile* file) {
  std::vector<std::unique_ptr<Buffer>> rows;
  std::vector<const Buffer*> pointers;
  for (int r = 0; r < kCallRows; ++r) {
    rows.push_back(Allocate(backend, BufferUse::kRow));
    pointers.push_back(rows.back().get());
    backend->RowLanded(*rows.back(), DType::kF32, {0, kCallElements});
  }
  const auto master = Allocate(backend, BufferUse::kState);
  const auto momentum = Allocate(backend, BufferUse::kState);
  const auto snapshot = Allocate(backend, BufferUse::kSnapshot);
  OptimizerOptions optimizer;
  optimizer.kind = OptimizerKind::kSgd;
  optimizer.momentum = 0.9f;
  Must(backend->Load(optimizer, *snapshot, master.get(), momentum.get(),
                     nullptr, nullptr, DType::kF32));

  const std::vector<ElementRange> ranges = {{0, kCallElements}};
  std::vector<double> hi(PackedGramSize(kCallRows));
  GramRequest gram;
  gram.rows = pointers;
  gram.ranges = ranges;
  gram.hi = absl::MakeSpan(hi);

  const std::vector<double> coefficients(kCallRows, 0.25);
  const std::vector<UpdateRange> updates = {
      {ranges[0], coefficients, 0.1f, 0.0f, 1.0f}};
  UpdateRequest update;
  update.rows = pointers;
  update.optimizer = optimizer;
  update.ranges = updates;
  update.master = master.get();
  update.state0 = momentum.get();
  update.snapshot = snapshot.get();

  const double gram_us =
      1e6 * MedianSeconds([&] { return backend->Gram(gram); });
  const double update_us =
      1e6 * MedianSeconds([&] { return backend->Update(update); });
  std::printf(
      "1 Ki elements of 4 rows, call to return: gram %.1f us, update %.1f us\n",
      gram_us, update_us);
  file->Set("calls", {{"gram_us", RoundedNumber(gram_us)},
                      {"update_us", RoundedNumber(update_us)}});
}

int Main(int argc, char** argv) {
  BenchFlags flags;
  if (!ParseBenchFlags(argc, argv, &flags)) return 2;
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
