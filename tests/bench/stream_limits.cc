#include "tests/bench/stream_limits.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/stream_limits.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace agg {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// REQUIRES: num_floats is a multiple of four vectors.
float ReadFloats(const float* data, int64_t num_floats) {
  const hn::ScalableTag<float> d;
  const int64_t n = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  auto sum2 = hn::Zero(d);
  auto sum3 = hn::Zero(d);
  for (int64_t k = 0; k < num_floats; k += 4 * n) {
    sum0 = hn::Add(sum0, hn::Load(d, data + k));
    sum1 = hn::Add(sum1, hn::Load(d, data + k + n));
    sum2 = hn::Add(sum2, hn::Load(d, data + k + 2 * n));
    sum3 = hn::Add(sum3, hn::Load(d, data + k + 3 * n));
  }
  return hn::GetLane(
      hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

// One chunk; the sum of the rows passes through the L1 cache.
void MoveChunk(const UpdateTraffic& traffic, int64_t begin, int64_t end) {
  alignas(64) float sums[1024];
  const hn::ScalableTag<float> d;
  const int64_t n = static_cast<int64_t>(hn::Lanes(d));
  const int64_t num_elements = end - begin;
  for (int64_t k = 0; k < num_elements; k += n) {
    auto sum = hn::Zero(d);
    for (const float* row : traffic.rows) {
      sum = hn::Add(sum, hn::Load(d, row + begin + k));
    }
    hn::Store(sum, d, sums + k);
  }
  for (float* state : traffic.states) {
    for (int64_t k = 0; k < num_elements; k += n) {
      const auto value =
          hn::Add(hn::Load(d, state + begin + k), hn::Load(d, sums + k));
      hn::Store(value, d, state + begin + k);
    }
  }
  for (int64_t k = 0; k < num_elements; k += n) {
    const auto value = hn::Load(d, sums + k);
    if (traffic.streaming) {
      hn::Stream(value, d, traffic.written + begin + k);
    } else {
      hn::Store(value, d, traffic.written + begin + k);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace agg
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace agg {
namespace {

HWY_EXPORT(ReadFloats);
HWY_EXPORT(MoveChunk);

constexpr int64_t kUnitBytes = int64_t{1} << 20;
constexpr int64_t kUnitElements = int64_t{64} << 10;
constexpr int64_t kChunkElements = 512;  // as Update

}  // namespace

double ReadAll(ThreadPool* pool, const char* data, int64_t num_bytes) {
  std::vector<double> sums(num_bytes / kUnitBytes);
  pool->ForEach(static_cast<int64_t>(sums.size()), true,
                [&](int64_t unit, int) {
                  sums[unit] = HWY_DYNAMIC_DISPATCH(ReadFloats)(
                      reinterpret_cast<const float*>(data + unit * kUnitBytes),
                      kUnitBytes / 4);
                });
  double sum = 0.0;
  for (const double part : sums) sum += part;
  return sum;
}

void CopyAll(ThreadPool* pool, const char* from, char* to, int64_t num_bytes) {
  pool->ForEach(num_bytes / kUnitBytes, true, [&](int64_t unit, int) {
    std::memcpy(to + unit * kUnitBytes, from + unit * kUnitBytes, kUnitBytes);
  });
}

void MoveUpdateTraffic(ThreadPool* pool, const UpdateTraffic& traffic) {
  pool->ForEach(
      traffic.num_elements / kUnitElements, true, [&](int64_t unit, int) {
        const int64_t end = (unit + 1) * kUnitElements;
        for (int64_t k = unit * kUnitElements; k < end; k += kChunkElements) {
          HWY_DYNAMIC_DISPATCH(MoveChunk)(traffic, k, k + kChunkElements);
        }
      });
}

}  // namespace agg
#endif  // HWY_ONCE
