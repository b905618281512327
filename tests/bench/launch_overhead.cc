#include "tests/bench/launch_overhead.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace agg {
namespace {

constexpr int kRepetitions = 201;
constexpr int kNumRows = 4;
constexpr int64_t kNumElements = 1024;

void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

std::unique_ptr<Buffer> Allocate(Backend* backend, BufferUse use) {
  auto buffer = backend->Allocate(use, kNumElements * 4);
  Must(buffer.status());
  return *std::move(buffer);
}

double MedianSeconds(const std::function<absl::Status()>& call) {
  Must(call());  // to warm up
  std::vector<double> seconds;
  for (int i = 0; i < kRepetitions; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    Must(call());
    const auto end = std::chrono::steady_clock::now();
    seconds.push_back(std::chrono::duration<double>(end - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRepetitions / 2,
                   seconds.end());
  return seconds[kRepetitions / 2];
}

}  // namespace

LaunchOverhead MeasureLaunchOverhead(Backend* backend) {
  std::vector<std::unique_ptr<Buffer>> rows;
  std::vector<const Buffer*> pointers;
  for (int r = 0; r < kNumRows; ++r) {
    rows.push_back(Allocate(backend, BufferUse::kRow));
    pointers.push_back(rows.back().get());
    backend->RowLanded(*rows.back(), DType::kF32, {0, kNumElements});
  }
  const auto master = Allocate(backend, BufferUse::kState);
  const auto momentum = Allocate(backend, BufferUse::kState);
  const auto snapshot = Allocate(backend, BufferUse::kSnapshot);
  OptimizerOptions optimizer;
  optimizer.kind = OptimizerKind::kSgd;
  optimizer.momentum = 0.9f;
  Must(backend->Load(optimizer, *snapshot, master.get(), momentum.get(),
                     nullptr, nullptr, DType::kF32));

  const std::vector<ElementRange> ranges = {{0, kNumElements}};
  std::vector<double> hi(PackedGramSize(kNumRows));
  GramRequest gram;
  gram.rows = pointers;
  gram.ranges = ranges;
  gram.hi = absl::MakeSpan(hi);

  const std::vector<double> coefficients(kNumRows, 0.25);
  const std::vector<UpdateRange> updates = {
      {ranges[0], coefficients, 0.1f, 0.0f, 1.0f}};
  UpdateRequest update;
  update.rows = pointers;
  update.optimizer = optimizer;
  update.ranges = updates;
  update.master = master.get();
  update.state0 = momentum.get();
  update.snapshot = snapshot.get();

  LaunchOverhead overhead;
  overhead.gram = MedianSeconds([&] { return backend->Gram(gram); });
  overhead.update = MedianSeconds([&] { return backend->Update(update); });
  return overhead;
}

}  // namespace agg
