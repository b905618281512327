#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/conformance/backend_conformance.h"
#include "tests/conformance/oracle.h"
#include "tests/conformance/update_run.h"

namespace agg {
namespace {

constexpr DType kNarrow[] = {DType::kBF16, DType::kF16};

float FloatWithBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Around every 16-bit pattern: its value, the tie to the next one, and the
// neighbours of both; then float32's extremes and NaNs.
std::vector<float> NarrowingInputs(DType dtype) {
  std::vector<float> inputs;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto next = static_cast<uint16_t>((bits & 0x7fff) + 1);
    const double value = oracle::Widen(dtype, static_cast<uint16_t>(bits));
    if (!std::isfinite(value)) continue;
    const double above = oracle::Widen(dtype, next);
    const double tie =
        std::isfinite(above)
            ? std::copysign((std::fabs(value) + above) / 2, value)
            : std::copysign(65520.0, value);
    for (const double center : {value, tie}) {
      const float x = static_cast<float>(center);
      inputs.insert(inputs.end(),
                    {x, std::nextafter(x, 1e38f), std::nextafter(x, -1e38f)});
    }
  }
  for (const uint32_t bits :
       {0x7f7fffffu, 0xff7fffffu, 0x7f7f8000u, 0x7f7f7fffu, 0x7f800000u,
        0xff800000u, 0x7f800001u, 0xff800001u, 0x7fc00000u, 0xffffffffu,
        0x7fbfffffu, 0x00000001u, 0x80000001u, 0x007fffffu, 0x33000000u,
        0x33000001u, 0x32ffffffu, 0xb3000000u}) {
    inputs.push_back(FloatWithBits(bits));
  }
  return inputs;
}

void ExpectNarrowed(DType dtype, const std::vector<float>& inputs,
                    const std::vector<uint16_t>& narrowed) {
  ASSERT_EQ(inputs.size(), narrowed.size());
  for (size_t k = 0; k < inputs.size(); ++k) {
    ASSERT_EQ(narrowed[k], oracle::Narrow(dtype, inputs[k]))
        << DTypeName(dtype) << " of " << inputs[k] << " (element " << k << ")";
  }
}

TEST_P(BackendConformance, LoadNarrowsEveryInterval) {
  for (const DType dtype : kNarrow) {
    const std::vector<float> inputs = NarrowingInputs(dtype);
    UpdateRun run(backend_.get(), OptimizerOptions(),
                  {{0, static_cast<int64_t>(inputs.size())}}, dtype);
    run.Load(inputs);
    ExpectNarrowed(dtype, inputs, run.NarrowedSnapshot());
  }
}

// The optimizer none publishes the row itself, whose NaNs lose their payload
// on the way (any NaN is right).
TEST_P(BackendConformance, UpdateNarrowsEveryInterval) {
  OptimizerOptions none;
  none.kind = OptimizerKind::kNone;
  for (const DType dtype : kNarrow) {
    std::vector<float> inputs = NarrowingInputs(dtype);
    TestRows rows(backend_.get(), DType::kF32, 1, inputs.size());
    for (size_t k = 0; k < inputs.size(); ++k) rows.Set(0, k, inputs[k]);
    rows.Land();
    UpdateRun run(backend_.get(), none,
                  {{0, static_cast<int64_t>(inputs.size())}}, dtype);
    run.Load(std::vector<float>(inputs.size(), 0.0f));
    ASSERT_TRUE(run.Update(rows, {1.0}, RangeStep()).ok());
    const std::vector<float> snapshot = run.Snapshot();
    std::vector<uint16_t> narrowed = run.NarrowedSnapshot();
    for (size_t k = 0; k < inputs.size(); ++k) {
      ASSERT_TRUE(snapshot[k] == inputs[k] ||
                  (std::isnan(snapshot[k]) && std::isnan(inputs[k])))
          << snapshot[k] << " is not " << inputs[k];
    }
    ExpectNarrowed(dtype, snapshot, narrowed);
  }
}

// Rows hold every 16-bit pattern; the published float32 must be its value.
TEST_P(BackendConformance, UpdateWidensEveryPattern) {
  OptimizerOptions none;
  none.kind = OptimizerKind::kNone;
  for (const DType dtype : kNarrow) {
    auto row = Allocate(BufferUse::kRow, 0x10000 * 2);
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto pattern = static_cast<uint16_t>(bits);
      std::memcpy(row->host() + 2 * bits, &pattern, sizeof(pattern));
    }
    backend_->RowLanded(*row, dtype, {0, 0x10000});
    const Buffer* const rows[] = {row.get()};
    const TestRows unused(backend_.get(), dtype, 1, 0x10000);
    UpdateRun run(backend_.get(), none, {{0, 0x10000}});
    run.Load(std::vector<float>(0x10000, 0.0f));
    ASSERT_TRUE(run.Update(unused, {1.0}, RangeStep(),
                           [&rows](UpdateRequest* r) { r->rows = rows; })
                    .ok());
    const std::vector<float> snapshot = run.Snapshot();
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const double value = oracle::Widen(dtype, static_cast<uint16_t>(bits));
      ASSERT_TRUE(snapshot[bits] == value ||
                  (std::isnan(snapshot[bits]) && std::isnan(value)))
          << snapshot[bits] << " is not " << value;
    }
  }
}

// Gram reads rows by another path: each pattern alone in its range.
TEST_P(BackendConformance, GramWidensEveryPattern) {
  for (const DType dtype : kNarrow) {
    auto row = Allocate(BufferUse::kRow, 0x10000 * 2);
    std::vector<ElementRange> ranges;
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      // One pattern in its own group of 32: all patterns over 32 rounds.
      const auto pattern = static_cast<uint16_t>(bits);
      std::memcpy(row->host() + 2 * bits, &pattern, sizeof(pattern));
    }
    backend_->RowLanded(*row, dtype, {0, 0x10000});
    auto one = Allocate(BufferUse::kRow, 0x10000 * 2);
    std::memset(one->host(), 0, 0x10000 * 2);
    const uint16_t one_bits = oracle::Narrow(dtype, 1.0f);
    for (uint32_t bits = 0; bits < 0x10000; bits += 32) {
      ranges.push_back({bits, 32});
    }
    for (int64_t position = 0; position < 32; ++position) {
      // Picks element `position` of every range, unless a neighbour is NaN
      // or infinite (0 * inf is NaN).
      for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        const uint16_t pick = bits % 32 == position ? one_bits : 0;
        std::memcpy(one->host() + 2 * bits, &pick, sizeof(pick));
      }
      backend_->RowLanded(*one, dtype, {0, 0x10000});
      const Buffer* const rows[] = {row.get(), one.get()};
      std::vector<double> hi(ranges.size() * 3);
      GramRequest request;
      request.rows = rows;
      request.dtype = dtype;
      request.ranges = ranges;
      request.hi = absl::MakeSpan(hi);
      ASSERT_TRUE(backend_->Gram(request).ok());
      for (size_t r = 0; r < ranges.size(); ++r) {
        const auto pattern = static_cast<uint16_t>(32 * r + position);
        const double value = oracle::Widen(dtype, pattern);
        const double picked = hi[3 * r + 1];
        const bool special_range = !std::isfinite(hi[3 * r]);
        ASSERT_TRUE(special_range ? !std::isfinite(picked) : picked == value)
            << picked << " is not " << value;
      }
    }
  }
}

TEST_P(BackendConformance, LoadClearsStateAndSeedsMaster) {
  OptimizerOptions options;
  options.kind = OptimizerKind::kSgd;
  options.momentum = 0.9f;
  const TestRows rows = RandomRows(DType::kF32, 1, 777);
  UpdateRun run(backend_.get(), options, {{0, 777}});
  std::vector<float> seed(777);
  for (size_t k = 0; k < seed.size(); ++k) seed[k] = 0.5f * k;
  run.Load(seed);
  ASSERT_TRUE(run.Update(rows, {1.0}, RangeStep()).ok());
  const std::vector<float> first = run.Snapshot();
  EXPECT_NE(first, seed);
  ASSERT_TRUE(run.Update(rows, {1.0}, RangeStep()).ok());
  EXPECT_NE(run.Snapshot(), first);
  run.Load(seed);
  ASSERT_TRUE(run.Update(rows, {1.0}, RangeStep()).ok());
  EXPECT_EQ(run.Snapshot(), first);
}

TEST_P(BackendConformance, BuffersAreZeroAndAligned) {
  for (const int64_t num_bytes : {0, 1, 100, 5 << 20}) {
    const auto buffer = Allocate(BufferUse::kRow, num_bytes);
    EXPECT_EQ(buffer->num_bytes(), num_bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->host()) % 64, 0u);
    for (int64_t i = 0; i < num_bytes; ++i) {
      ASSERT_EQ(buffer->host()[i], 0);
    }
  }
  EXPECT_EQ(
      backend_->Allocate(BufferUse::kRow, int64_t{1} << 61).status().code(),
      absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace agg
