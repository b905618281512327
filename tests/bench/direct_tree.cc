#include "tests/bench/direct_tree.h"

#include <atomic>
#include <thread>  // NOLINT

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/direct_tree.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include "hwy/highway.h"

#ifndef AGG_TESTS_BENCH_DIRECT_TREE_ONCE_
#define AGG_TESTS_BENCH_DIRECT_TREE_ONCE_
namespace agg {
struct PairScalars {
  double dot = 0.0;
  double a_squared = 0.0;
  double b_squared = 0.0;
};
}  // namespace agg
#endif  // AGG_TESTS_BENCH_DIRECT_TREE_ONCE_

HWY_BEFORE_NAMESPACE();
namespace agg {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void AddScalars(const float* a, const float* b, int64_t num_elements,
                PairScalars& scalars) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const int64_t n = static_cast<int64_t>(hn::Lanes(d));
  auto dot0 = hn::Zero(d), dot1 = hn::Zero(d);
  auto a0 = hn::Zero(d), a1 = hn::Zero(d);
  auto b0 = hn::Zero(d), b1 = hn::Zero(d);
  for (int64_t k = 0; k < num_elements; k += 2 * n) {
    const auto x0 = hn::PromoteTo(d, hn::Load(df, a + k));
    const auto y0 = hn::PromoteTo(d, hn::Load(df, b + k));
    const auto x1 = hn::PromoteTo(d, hn::Load(df, a + k + n));
    const auto y1 = hn::PromoteTo(d, hn::Load(df, b + k + n));
    dot0 = hn::MulAdd(x0, y0, dot0);
    dot1 = hn::MulAdd(x1, y1, dot1);
    a0 = hn::MulAdd(x0, x0, a0);
    a1 = hn::MulAdd(x1, x1, a1);
    b0 = hn::MulAdd(y0, y0, b0);
    b1 = hn::MulAdd(y1, y1, b1);
  }
  scalars.dot = hn::GetLane(hn::SumOfLanes(d, hn::Add(dot0, dot1)));
  scalars.a_squared = hn::GetLane(hn::SumOfLanes(d, hn::Add(a0, a1)));
  scalars.b_squared = hn::GetLane(hn::SumOfLanes(d, hn::Add(b0, b1)));
}

void ScaledAdd(double a_scale, double b_scale, const float* HWY_RESTRICT b,
               int64_t num_elements, float* HWY_RESTRICT a) {
  for (int64_t k = 0; k < num_elements; ++k) {
    a[k] = static_cast<float>(
        __builtin_fma(b_scale, static_cast<double>(b[k]), a_scale * a[k]));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace agg
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace agg {
namespace {

HWY_EXPORT(AddScalars);
HWY_EXPORT(ScaledAdd);

// Threads wait for each other without sleeping: a handover through the pool
// per phase would cost the tree more than its arithmetic.
class SpinBarrier {
 public:
  explicit SpinBarrier(int num_threads) : num_threads_(num_threads) {}
  void Wait() {
    const int phase = phase_.load();
    if (num_waiting_.fetch_add(1) + 1 == num_threads_) {
      num_waiting_.store(0);
      phase_.store(phase + 1);
      return;
    }
    while (phase_.load() == phase) std::this_thread::yield();
  }

 private:
  const int num_threads_;
  std::atomic<int> num_waiting_{0};
  std::atomic<int> phase_{0};
};

struct Scales {
  double a;
  double b;
};

Scales ScalesOf(const std::vector<PairScalars>& parts) {
  PairScalars sum;
  for (const PairScalars& part : parts) {
    sum.dot += part.dot;
    sum.a_squared += part.a_squared;
    sum.b_squared += part.b_squared;
  }
  return {sum.a_squared > 0.0 ? 1.0 - sum.dot / sum.a_squared * 0.5 : 1.0,
          sum.b_squared > 0.0 ? 1.0 - sum.dot / sum.b_squared * 0.5 : 1.0};
}

}  // namespace

void DirectAdasumTree(ThreadPool* pool, const std::vector<float*>& rows,
                      int64_t num_elements, int64_t tensor_elements) {
  const int num_threads = pool->num_threads();
  SpinBarrier barrier(num_threads);
  // Per pair of a level and thread.
  std::vector<std::vector<PairScalars>> parts(
      rows.size(), std::vector<PairScalars>(num_threads));
  pool->ForEach(num_threads, true, [&](int64_t thread, int) {
    for (int64_t tensor = 0; tensor < num_elements; tensor += tensor_elements) {
      const int64_t share = tensor_elements / num_threads;
      const int64_t at = tensor + thread * share;
      for (size_t level = 1; level < rows.size(); level *= 2) {
        for (size_t r = 0; r + level < rows.size(); r += 2 * level) {
          HWY_DYNAMIC_DISPATCH(AddScalars)
          (rows[r] + at, rows[r + level] + at, share, parts[r][thread]);
        }
        barrier.Wait();
        for (size_t r = 0; r + level < rows.size(); r += 2 * level) {
          const Scales scales = ScalesOf(parts[r]);
          HWY_DYNAMIC_DISPATCH(ScaledAdd)
          (scales.a, scales.b, rows[r + level] + at, share, rows[r] + at);
        }
        barrier.Wait();
      }
    }
  });
}

}  // namespace agg
#endif  // HWY_ONCE
