// A round on the CUDA backend as a shard runs it: rows land in pinned memory
// slice by slice, Grams of slices while the next ones are copied, Update, the
// snapshot is back in host memory.
//
//   round_gpu [--smoke] [--json=FILE]
//
// Medians of 7 rounds after one to warm up, by the wall clock. Beside the
// round: what the bus alone takes for the same bytes, and what computing takes;
// the round's share of the slower of both is of each repetition by itself.
// Exits with 0 and says so where there is no device. --smoke: small arrays.
#include <algorithm>
#include <chrono>  // NOLINT
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "nlohmann/json.hpp"
#include "tests/bench/bench_file.h"
#include "tests/bench/card_facts.h"
#include "tests/bench/cuda_must.h"

namespace agg {
namespace {

constexpr int kRepetitions = 7;
constexpr int64_t kSliceElements = int64_t{1} << 20;
// Grams of a round: the server's early ones are of 32 slices at most.
constexpr size_t kBatches = 8;
constexpr int64_t kSmokeElements = 1000;

double Seconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

double Median(const Json& spread) { return spread["median"]; }

// What a repetition took, in seconds.
struct Times {
  double upload = 0.0;
  double gram = 0.0;
  double update = 0.0;
  double round = 0.0;
};

// Update is either the bus's time or its own, whichever is longer.
double OverSlower(const Times& times) {
  return times.round / (times.update + std::max(times.upload, times.gram));
}

class Round {
 public:
  Round(Backend* backend, int num_rows, int64_t num_elements)
      : backend_(backend),
        num_elements_(num_elements),
        coefficients_(num_rows, 1.0 / num_rows) {
    for (int r = 0; r < num_rows; ++r) {
      rows_.push_back(Allocate(BufferUse::kRow));
      row_pointers_.push_back(rows_.back().get());
      Fill(rows_.back().get(), static_cast<uint32_t>(r));
    }
    master_ = Allocate(BufferUse::kState);
    state0_ = Allocate(BufferUse::kState);
    state1_ = Allocate(BufferUse::kState);
    snapshot_ = Allocate(BufferUse::kSnapshot);
    optimizer_.kind = OptimizerKind::kAdamW;
    Must(backend->Load(optimizer_, *snapshot_, master_.get(), state0_.get(),
                       state1_.get(), nullptr, DType::kF32));
    for (int64_t k = 0; k < num_elements; k += kSliceElements) {
      ranges_.push_back({k, std::min(kSliceElements, num_elements - k)});
      updates_.push_back({ranges_.back(), coefficients_, 1e-4f, 0.01f, 1.0f});
    }
    gram_.resize(ranges_.size() * PackedGramSize(num_rows));
  }

  void Land() {
    for (const ElementRange& range : ranges_) {
      for (const auto& row : rows_) {
        backend_->RowLanded(*row, DType::kF32, range);
      }
    }
  }

  // For the slices [begin, end).
  void Gram(size_t begin, size_t end) {
    const size_t packed = PackedGramSize(static_cast<int64_t>(rows_.size()));
    GramRequest request;
    request.rows = row_pointers_;
    request.ranges = absl::MakeConstSpan(ranges_).subspan(begin, end - begin);
    request.hi =
        absl::MakeSpan(gram_).subspan(begin * packed, (end - begin) * packed);
    Must(backend_->Gram(request));
  }

  // A batch computes while later ones are copied.
  void GramInBatches() {
    const size_t batch = std::max<size_t>(1, ranges_.size() / kBatches);
    for (size_t begin = 0; begin < ranges_.size(); begin += batch) {
      Gram(begin, std::min(begin + batch, ranges_.size()));
    }
  }

  void Update() {
    UpdateRequest request;
    request.rows = row_pointers_;
    request.optimizer = optimizer_;
    request.step = ++step_;
    request.ranges = updates_;
    request.master = master_.get();
    request.state0 = state0_.get();
    request.state1 = state1_.get();
    request.snapshot = snapshot_.get();
    Must(backend_->Update(request));
  }

  // An element of the file's list "rounds".
  Json Measure() {
    std::vector<Times> all;
    for (int i = 0; i <= kRepetitions; ++i) {
      Times times;
      // A Gram of the last slice waits for all copies, and does little else.
      times.upload = Seconds([this] {
        Land();
        Gram(ranges_.size() - 1, ranges_.size());
      });
      times.gram = Seconds([this] { GramInBatches(); });
      times.update = Seconds([this] { Update(); });
      times.round = Seconds([this] {
        Land();
        GramInBatches();
        Update();
      });
      if (i > 0) all.push_back(times);
    }
    const auto spread = [&](const std::function<double(const Times&)>& of) {
      std::vector<double> values;
      for (const Times& times : all) values.push_back(of(times));
      return SpreadOf(values);
    };
    return {{"P", rows_.size()},
            {"dtype", "f32"},
            {"optimizer", "adamw"},
            {"elements", num_elements_},
            {"repetitions", all.size()},
            {"upload_s", spread([](const Times& t) { return t.upload; })},
            {"gram_s", spread([](const Times& t) { return t.gram; })},
            {"update_s", spread([](const Times& t) { return t.update; })},
            {"round_s", spread([](const Times& t) { return t.round; })},
            {"round_over_slower", spread(&OverSlower)}};
  }

 private:
  std::unique_ptr<Buffer> Allocate(BufferUse use) {
    return Must(backend_->Allocate(use, num_elements_ * 4));
  }

  static void Fill(Buffer* row, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(1 << 20);
    for (float& value : values) value = normal(random);
    const int64_t block = static_cast<int64_t>(values.size()) * 4;
    for (int64_t at = 0; at < row->num_bytes(); at += block) {
      std::memcpy(row->host() + at, values.data(),
                  std::min(block, row->num_bytes() - at));
    }
  }

  Backend* const backend_;
  const int64_t num_elements_;
  const std::vector<double> coefficients_;
  OptimizerOptions optimizer_;
  std::vector<std::unique_ptr<Buffer>> rows_;
  std::vector<const Buffer*> row_pointers_;
  std::unique_ptr<Buffer> master_, state0_, state1_, snapshot_;
  std::vector<ElementRange> ranges_;
  std::vector<UpdateRange> updates_;
  std::vector<double> gram_;
  int64_t step_ = 0;
};

void Print(const Json& round) {
  const double num_elements = round["elements"];
  const int num_rows = round["P"];
  const double row_bytes = 4.0 * num_rows * num_elements;
  const double upload = Median(round["upload_s"]);
  const double gram = Median(round["gram_s"]);
  const double update = Median(round["update_s"]);
  std::printf(
      "%d rows of %.0f Mi float32, adamw\n"
      "  rows to device       %9.3f ms  %6.1f GB/s\n"
      "  gram                 %9.3f ms  %6.1f GB/s of rows\n"
      "  update and download  %9.3f ms  %6.1f GB/s of snapshot\n"
      "  round                %9.3f ms\n"
      "  round / the slower of transfer and compute %.3f\n",
      num_rows, num_elements / 1048576.0, upload * 1e3,
      row_bytes / upload * 1e-9, gram * 1e3, row_bytes / gram * 1e-9,
      update * 1e3, 4.0 * num_elements / update * 1e-9,
      Median(round["round_s"]) * 1e3, Median(round["round_over_slower"]));
  std::fflush(stdout);
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
  BenchFile file("round_gpu", flags.json);
  file.Set("card", CardFacts());
  for (const int num_rows : {2, 8, 32}) {
    const int64_t num_elements =
        flags.smoke ? kSmokeElements : 512 * kSliceElements / num_rows;
    const Json round = Round(backend->get(), num_rows, num_elements).Measure();
    Print(round);
    file.Append("rounds", round);
  }
  file.Finish();
  return 0;
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) { return agg::Main(argc, argv); }
