// Grams of several waves: the waves are made small, since a real one's is one
// GiB per row. What a range's Gram is must not depend on the other ranges.
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cublas_library.h"
#include "kernels/cuda/cuda_buffer.h"
#include "kernels/cuda/cuda_gram.h"
#include "kernels/cuda/cuda_scratch.h"
#include "kernels/cuda/kernel_args.h"
#include "kernels/cuda/numa_node.h"
#include "kernels/cuda/row_copies.h"
#include "tests/kernels/cuda/emulator/device.h"

namespace agg::cuda {
namespace {

constexpr char kFakeCublas[] = "tests/kernels/cuda/emulator/libfake_cublas.so";

// Random rows of `num_rows` x `num_elements` floats on the emulated device.
class Device {
 public:
  Device(int num_rows, int64_t num_elements) : num_rows_(num_rows) {
    emulator::SetLazy(false);
    scratch_ = *CudaScratch::Make(NumaNode());
    copies_ = *RowCopies::Make();
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (int r = 0; r < num_rows; ++r) {
      rows_.push_back(*CudaBuffer::Allocate(BufferUse::kRow, num_elements * 4,
                                            copies_.get(), NumaNode()));
      pointers_.push_back(rows_.back().get());
      auto* const values = reinterpret_cast<float*>(rows_.back()->host());
      for (int64_t k = 0; k < num_elements; ++k) {
        // Values of many magnitudes: another order of a sum shows in its bits.
        values[k] = std::ldexp(normal(random), static_cast<int>(random() % 30));
      }
      copies_->Land(rows_.back()->host(), rows_.back()->device(),
                    {0, num_elements * 4}, kLayoutAlignment * 4);
    }
    EXPECT_TRUE(copies_->WaitForAll(scratch_->compute.get()).ok());
  }

  // Waves of `num_chunks` chunks from now on.
  void SetWaveChunks(int num_chunks, bool compensated) {
    scratch_->wave_bytes =
        num_chunks * PackedGramSize(num_rows_) * (compensated ? 16 : 8);
  }

  void UseFakeCublas() {
    scratch_->cublas = *CublasLibrary::Open(kFakeCublas);
    scratch_->many_rows = 32;
    EXPECT_TRUE(scratch_->PrepareManyRows().ok());
  }

  // hi of all ranges, then lo.
  std::vector<double> Gram(const std::vector<ElementRange>& ranges,
                           bool compensated) {
    const size_t num_doubles = ranges.size() * PackedGramSize(num_rows_);
    std::vector<double> results((compensated ? 2 : 1) * num_doubles);
    GramRequest request;
    request.rows = pointers_;
    request.ranges = ranges;
    request.compensated = compensated;
    request.hi = absl::MakeSpan(results).first(num_doubles);
    if (compensated) request.lo = absl::MakeSpan(results).last(num_doubles);
    const absl::Status status = ComputeGram(request, scratch_.get());
    EXPECT_TRUE(status.ok()) << status;
    return results;
  }

  // One request of all ranges against one request each, in another order.
  void ExpectSameAlone(const std::vector<ElementRange>& ranges,
                       bool compensated) {
    const std::vector<double> all = Gram(ranges, compensated);
    const auto num_pairs = static_cast<size_t>(PackedGramSize(num_rows_));
    const size_t num_doubles = ranges.size() * num_pairs;
    for (size_t r = ranges.size(); r-- > 0;) {
      const std::vector<double> alone = Gram({ranges[r]}, compensated);
      EXPECT_NE(alone[0], 0.0);
      for (size_t at = 0; at < alone.size(); ++at) {
        const size_t part = at / num_pairs;  // hi, lo
        ASSERT_EQ(alone[at],
                  all[part * num_doubles + r * num_pairs + at % num_pairs])
            << "range " << r << " value " << at;
      }
    }
  }

 private:
  const int num_rows_;
  std::unique_ptr<CudaScratch> scratch_;
  std::unique_ptr<RowCopies> copies_;
  std::vector<std::unique_ptr<CudaBuffer>> rows_;
  std::vector<const Buffer*> pointers_;
};

// Ranges of these numbers of elements, one behind the other.
std::vector<ElementRange> Ranges(const std::vector<int64_t>& num_elements) {
  std::vector<ElementRange> ranges;
  int64_t begin = 0;
  for (const int64_t n : num_elements) {
    ranges.push_back({begin, n});
    begin += (n + kLayoutAlignment - 1) / kLayoutAlignment * kLayoutAlignment;
  }
  return ranges;
}

TEST(GramWavesTest, ARangesGramDoesNotDependOnTheOthers) {
  // 2 chunks, 2 of them, 6 (two waves and more), and one that is small.
  const std::vector<ElementRange> ranges = Ranges(
      {kChunkElements + 5, 2 * kChunkElements, 5 * kChunkElements + 77, 100});
  Device device(3, ranges.back().begin + 100);
  for (const bool compensated : {false, true}) {
    device.SetWaveChunks(3, compensated);
    device.ExpectSameAlone(ranges, compensated);
  }
}

TEST(GramWavesTest, NorDoesItInManyRows) {
  // By hand, by tiles, by hand (two waves), by tiles.
  const std::vector<ElementRange> ranges = Ranges({5000, 66000, 60000, 65537});
  Device device(33, ranges.back().begin + 65537);
  device.UseFakeCublas();
  device.SetWaveChunks(2, false);
  device.ExpectSameAlone(ranges, false);
}

}  // namespace
}  // namespace agg::cuda
