// Gram, Update and the direct Adasum tree against this machine's memory.
//
//   kernels_bench [--smoke] [--threads=N]
//
// Everything is measured in one run, in turns: each repetition runs every
// loop of a group once, ratios are formed within a repetition, and the table
// gives the median of 7 with minimum and maximum. Ratios hold on a machine
// whose speed drifts; GB/s do not. --smoke: tiny arrays, for CI.
#include <algorithm>
#include <chrono>  // NOLINT
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/row_format.h"
#include "tests/bench/direct_tree.h"
#include "tests/bench/stream_limits.h"

namespace agg {
namespace {

constexpr int64_t kMi = int64_t{1} << 20;

struct Loop {
  std::string name;
  double gigabytes = 0.0;  // of traffic per run
  std::function<void()> run;
  int limit = -1;  // index of the loop that its ratio refers to
  std::vector<double> seconds = {};
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double Seconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  const std::chrono::duration<double> elapsed =
      std::chrono::steady_clock::now() - start;
  return elapsed.count();
}

void Measure(int num_repetitions, std::vector<Loop>* loops) {
  for (Loop& loop : *loops) loop.run();  // touch, and warm up
  for (int r = 0; r < num_repetitions; ++r) {
    for (Loop& loop : *loops) loop.seconds.push_back(Seconds(loop.run));
  }
}

// Rate of `loop` as a share of its limit's, per repetition.
std::vector<double> Ratios(const Loop& loop, const Loop& limit) {
  std::vector<double> ratios;
  for (size_t r = 0; r < loop.seconds.size(); ++r) {
    ratios.push_back(loop.gigabytes / loop.seconds[r] /
                     (limit.gigabytes / limit.seconds[r]));
  }
  return ratios;
}

void Print(const std::vector<Loop>& loops) {
  for (const Loop& loop : loops) {
    std::vector<double> rates;
    for (const double s : loop.seconds) rates.push_back(loop.gigabytes / s);
    std::printf("%-30s %7.2f GB/s [%6.2f, %6.2f] %8.2f ms", loop.name.c_str(),
                Median(rates), *std::min_element(rates.begin(), rates.end()),
                *std::max_element(rates.begin(), rates.end()),
                Median(loop.seconds) * 1e3);
    if (loop.limit >= 0) {
      const std::vector<double> ratios = Ratios(loop, loops[loop.limit]);
      std::printf("  %6.1f%% [%5.1f, %5.1f] of %s", 100 * Median(ratios),
                  100 * *std::min_element(ratios.begin(), ratios.end()),
                  100 * *std::max_element(ratios.begin(), ratios.end()),
                  loops[loop.limit].name.c_str());
    }
    std::printf("\n");
  }
  std::fflush(stdout);
}

// The arrays of one shape, and loops over them.
class Arrays {
 public:
  Arrays(CpuBackend* backend, ThreadPool* pool, DType dtype, int64_t num_rows,
         int64_t num_elements)
      : backend_(backend),
        pool_(pool),
        dtype_(dtype),
        num_elements_(num_elements),
        coefficients_(num_rows, 1e-6) {
    for (int64_t r = 0; r < num_rows; ++r) {
      rows_.push_back(Allocate(RowBytes(dtype, num_elements)));
      row_pointers_.push_back(rows_.back().get());
      Fill(rows_.back().get(), static_cast<uint32_t>(r));
    }
    for (int i = 0; i < 4; ++i) states_.push_back(Allocate(num_elements * 4));
    for (int64_t k = 0; k < num_elements; k += kMi) {
      ranges_.push_back({k, std::min(kMi, num_elements - k)});
    }
    gram_.resize(ranges_.size() * PackedGramSize(num_rows));
  }

  Loop Read() {
    return {"read", Gigabytes(rows_.size() * DTypeBytes(dtype_)), [this] {
              for (const auto& row : rows_) {
                sum_ += ReadAll(pool_, row->host(), row->num_bytes());
              }
            }};
  }

  Loop GramLoop(const std::string& name) {
    return {name, Gigabytes(rows_.size() * DTypeBytes(dtype_)), [this] {
              GramRequest request;
              request.rows = row_pointers_;
              request.dtype = dtype_;
              request.ranges = ranges_;
              request.hi = absl::MakeSpan(gram_);
              Must(backend_->Gram(request));
            }};
  }

  Loop UpdateLoop(const std::string& name, OptimizerKind kind) {
    OptimizerOptions optimizer;
    optimizer.kind = kind;
    const int num_states = 1 + OptimizerStateArrays(optimizer);
    const int64_t traffic =
        rows_.size() * DTypeBytes(dtype_) + 8 * num_states + 4;
    return {name, Gigabytes(traffic), [this, optimizer] {
              std::vector<UpdateRange> updates;
              for (const ElementRange& range : ranges_) {
                updates.push_back({range, coefficients_, 1e-6f, 0.0f, 1.0f});
              }
              UpdateRequest request;
              request.rows = row_pointers_;
              request.dtype = dtype_;
              request.optimizer = optimizer;
              request.ranges = updates;
              request.master = states_[0].get();
              request.state0 = states_[1].get();
              request.state1 = states_[2].get();
              request.snapshot = states_[3].get();
              Must(backend_->Update(request));
            }};
  }

  Loop Limit(const std::string& name, int num_states, bool streaming) {
    const int64_t traffic = rows_.size() * 4 + 8 * num_states + 4;
    return {name, Gigabytes(traffic), [this, num_states, streaming] {
              UpdateTraffic moved;
              for (const auto& row : rows_) moved.rows.push_back(Floats(row));
              for (int i = 0; i < num_states; ++i) {
                moved.states.push_back(Floats(states_[i]));
              }
              moved.written = Floats(states_[3]);
              moved.num_elements = num_elements_;
              moved.streaming = streaming;
              MoveUpdateTraffic(pool_, moved);
            }};
  }

  Loop Copy() {
    return {"memcpy", Gigabytes(8), [this] {
              CopyAll(pool_, states_[0]->host(), states_[3]->host(),
                      num_elements_ * 4);
            }};
  }

  // Tensors of 1 Mi elements, or one of all.
  Loop Tree(bool one_tensor) {
    return {"direct Adasum tree", Gigabytes(rows_.size() * 4),
            [this, one_tensor] {
              std::vector<float*> rows;
              for (const auto& row : rows_) rows.push_back(Floats(row));
              DirectAdasumTree(
                  pool_, rows, num_elements_,
                  one_tensor ? num_elements_ : std::min(kMi, num_elements_));
            }};
  }

 private:
  static void Must(const absl::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::exit(1);
  }
  static float* Floats(const std::unique_ptr<Buffer>& buffer) {
    return reinterpret_cast<float*>(buffer->host());
  }
  std::unique_ptr<Buffer> Allocate(int64_t num_bytes) {
    auto buffer = backend_->Allocate(BufferUse::kRow, num_bytes);
    Must(buffer.status());
    return *std::move(buffer);
  }
  double Gigabytes(int64_t bytes_per_element) const {
    return 1e-9 * static_cast<double>(bytes_per_element * num_elements_);
  }
  // Values in +-[1, 2) with uncorrelated signs and mantissas.
  void Fill(Buffer* row, uint32_t seed) const {
    uint32_t state = seed * 2654435761u + 1;
    for (int64_t k = 0; k < num_elements_; ++k) {
      state = state * 1664525u + 1013904223u;
      const uint32_t bits = 0x3f800000u | (state >> 9) | (state & 0x80000000u);
      const auto high = static_cast<uint16_t>(bits >> 16);
      if (dtype_ == DType::kF32) {
        std::memcpy(row->host() + 4 * k, &bits, 4);
      } else if (dtype_ == DType::kI8) {
        row->host()[k] = static_cast<char>(state >> 24);
      } else {
        std::memcpy(row->host() + 2 * k, &high, 2);
      }
    }
    if (dtype_ != DType::kI8) return;
    const float scale = 1.0f / 64;
    for (int64_t k = 0; k < num_elements_; k += kScaleBlockElements) {
      std::memcpy(row->host() + ScaleOffset(row->num_bytes(), k), &scale, 4);
    }
  }

  CpuBackend* backend_;
  ThreadPool* pool_;
  DType dtype_;
  int64_t num_elements_;
  std::vector<double> coefficients_;
  std::vector<std::unique_ptr<Buffer>> rows_;
  std::vector<const Buffer*> row_pointers_;
  std::vector<std::unique_ptr<Buffer>> states_;
  std::vector<ElementRange> ranges_;
  std::vector<double> gram_;
  volatile double sum_ = 0.0;
};

struct Setup {
  CpuBackend* backend;
  ThreadPool* pool;
  int64_t total_bytes;  // of rows
  int num_repetitions;
};

void BenchGram(const Setup& setup) {
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kI8}) {
    for (const int64_t num_rows : {2, 4, 8, 16, 32}) {
      Arrays arrays(setup.backend, setup.pool, dtype, num_rows,
                    setup.total_bytes / DTypeBytes(dtype) / num_rows);
      std::vector<Loop> loops = {
          arrays.Read(),
          arrays.GramLoop("Gram " + std::string(DTypeName(dtype)) +
                          " P=" + std::to_string(num_rows))};
      loops[1].limit = 0;
      Measure(setup.num_repetitions, &loops);
      Print(loops);
    }
  }
}

// The better of ordinary and streaming stores is the limit.
void AddUpdate(Arrays* arrays, const std::string& name, OptimizerKind kind,
               int num_states, std::vector<Loop>* loops) {
  const int at = static_cast<int>(loops->size());
  const std::string suffix = " limit, " + std::to_string(num_states) + " rw";
  loops->push_back(arrays->Limit("plain" + suffix, num_states, false));
  loops->push_back(arrays->Limit("streaming" + suffix, num_states, true));
  for (const int limit : {at, at + 1}) {
    loops->push_back(arrays->UpdateLoop("Update " + name, kind));
    loops->back().limit = limit;
  }
}

void BenchUpdate(const Setup& setup) {
  for (const int64_t num_rows : {1, 2, 4, 8, 16, 32}) {
    Arrays arrays(setup.backend, setup.pool, DType::kF32, num_rows,
                  setup.total_bytes / 4 / std::max<int64_t>(num_rows, 4));
    std::printf("-- P=%d f32\n", static_cast<int>(num_rows));
    std::vector<Loop> loops = {arrays.Read(), arrays.Copy()};
    AddUpdate(&arrays, "sgd", OptimizerKind::kSgd, 1, &loops);
    AddUpdate(&arrays, "adamw", OptimizerKind::kAdamW, 3, &loops);
    AddUpdate(&arrays, "lamb", OptimizerKind::kLamb, 3, &loops);
    Measure(setup.num_repetitions, &loops);
    Print(loops);
  }
}

// The same rows in every dtype, in turns: what the milliseconds of a round are.
void BenchDTypes(const Setup& setup) {
  for (const int64_t num_rows : {2, 4, 8, 16, 32}) {
    std::vector<std::unique_ptr<Arrays>> arrays;
    std::vector<Loop> loops;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
      arrays.push_back(
          std::make_unique<Arrays>(setup.backend, setup.pool, dtype, num_rows,
                                   setup.total_bytes / 4 / num_rows));
      const std::string name =
          std::string(DTypeName(dtype)) + " P=" + std::to_string(num_rows);
      loops.push_back(arrays.back()->GramLoop("Gram " + name));
      loops.push_back(
          arrays.back()->UpdateLoop("Update sgd " + name, OptimizerKind::kSgd));
    }
    Measure(setup.num_repetitions, &loops);
    Print(loops);
  }
}

void PrintShare(const char* of, const std::vector<double>& ours,
                const std::vector<double>& theirs) {
  std::vector<double> ratios;
  for (size_t r = 0; r < ours.size(); ++r) {
    ratios.push_back(ours[r] / theirs[r]);
  }
  std::printf("  %5.2f [%4.2f, %4.2f] of %s", Median(ratios),
              *std::min_element(ratios.begin(), ratios.end()),
              *std::max_element(ratios.begin(), ratios.end()), of);
}

std::vector<double> Sum(const Loop& a, const Loop& b) {
  std::vector<double> sum;
  for (size_t r = 0; r < a.seconds.size(); ++r) {
    sum.push_back(a.seconds[r] + b.seconds[r]);
  }
  return sum;
}

// The tree ends with a combined gradient; Update also steps and publishes, so
// that the same work is the tree and an Update of its one row.
void BenchTree(const Setup& setup) {
  for (const int64_t num_rows : {2, 4, 8, 16, 32}) {
    const int64_t num_elements = setup.total_bytes / 4 / num_rows;
    Arrays arrays(setup.backend, setup.pool, DType::kF32, num_rows,
                  num_elements);
    Arrays one(setup.backend, setup.pool, DType::kF32, 1, num_elements);
    std::vector<Loop> loops = {
        arrays.Tree(false), arrays.Tree(true), arrays.GramLoop("Gram"),
        arrays.UpdateLoop("Update", OptimizerKind::kSgd),
        one.UpdateLoop("Update of one", OptimizerKind::kSgd)};
    Measure(setup.num_repetitions, &loops);
    const std::vector<double> ours = Sum(loops[2], loops[3]);
    std::printf("Gram + Update P=%-2d %6.2f ms (%.2f + %.2f), trees %.2f, %.2f",
                static_cast<int>(num_rows), Median(ours) * 1e3,
                Median(loops[2].seconds) * 1e3, Median(loops[3].seconds) * 1e3,
                Median(loops[0].seconds) * 1e3, Median(loops[1].seconds) * 1e3);
    PrintShare("tree", ours, loops[0].seconds);
    PrintShare("tree + step", ours, Sum(loops[0], loops[4]));
    PrintShare("large tree + step", ours, Sum(loops[1], loops[4]));
    std::printf("\n");
    std::fflush(stdout);
  }
}

int Main(int argc, char** argv) {
  int64_t total_bytes = 256 * kMi;
  int num_repetitions = 7;
  int num_threads = 0;
  bool gram = true, update = true, tree = true, dtypes = true;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--smoke") {
      total_bytes = 32 * kMi;
      num_repetitions = 1;
    } else if (arg.rfind("--threads=", 0) == 0) {
      num_threads = std::atoi(argv[i] + 10);
    } else if (arg.rfind("--only=", 0) == 0) {
      gram = arg == "--only=gram";
      update = arg == "--only=update";
      tree = arg == "--only=tree";
      dtypes = arg == "--only=dtypes";
    } else {
      std::fprintf(stderr,
                   "usage: kernels_bench [--smoke] [--threads=N] "
                   "[--only=gram|update|tree|dtypes]\n");
      return 2;
    }
  }
  CpuBackend backend(num_threads);
  ThreadPool pool(backend.num_threads());
  std::printf("%s; %d MiB of rows, median of %d [min, max]\n",
              backend.description().c_str(),
              static_cast<int>(total_bytes / kMi), num_repetitions);
  const Setup setup = {&backend, &pool, total_bytes, num_repetitions};
  if (gram) BenchGram(setup);
  if (update) BenchUpdate(setup);
  if (tree) BenchTree(setup);
  if (dtypes) BenchDTypes(setup);
  return 0;
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) { return agg::Main(argc, argv); }
