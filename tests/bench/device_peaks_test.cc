// The yardstick's kernels on the emulated device: that they move all that they
// say they do.
#include "tests/bench/device_peaks.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_memory.h"
#include "tests/bench/cuda_must.h"

namespace agg {
namespace {

// A thread whose loads have this sum, and only such a one, shows it.
constexpr unsigned kShown = 0x9e3779b9u;
constexpr int kBlocks = 3;
constexpr int kThreads = 256;

class StreamPeakTest : public testing::Test {
 protected:
  // Rows and arrays of zeros.
  void Make(int num_rows, int num_arrays, int element_bytes,
            int64_t num_elements) {
    memory_.clear();
    row_words_.clear();
    std::vector<const void*> rows;
    for (int r = 0; r < num_rows; ++r) {
      row_words_.push_back(Allocate(num_elements * element_bytes));
      rows.push_back(row_words_.back());
    }
    unsigned* const addresses =
        Allocate(static_cast<int64_t>(num_rows * sizeof(void*)));
    std::memcpy(addresses, rows.data(), rows.size() * sizeof(void*));
    work_ = StreamPeak();
    work_.rows = reinterpret_cast<const void* const*>(addresses);
    work_.num_rows = num_rows;
    work_.element_bytes = element_bytes;
    work_.num_elements = num_elements;
    work_.num_arrays = num_arrays;
    for (int a = 0; a < num_arrays; ++a) {
      work_.arrays[a] = reinterpret_cast<float*>(Allocate(num_elements * 4));
    }
    work_.sink = Allocate(4);
  }

  bool ShowsInRead() {
    *work_.sink = 0;
    Must(LaunchReadPeak(work_, kBlocks, stream_.get()));
    Must(cudaStreamSynchronize(stream_.get()));
    return *work_.sink == kShown;
  }
  void Mix() {
    Must(LaunchMixPeak(work_, kBlocks, stream_.get()));
    Must(cudaStreamSynchronize(stream_.get()));
  }

  // Words of an array that are not zero.
  int64_t NumChanged(int array) const {
    int64_t changed = 0;
    for (int64_t i = 0; i < work_.num_elements; ++i) {
      changed += work_.arrays[array][i] != 0.0f ? 1 : 0;
    }
    return changed;
  }

  StreamPeak work_;
  std::vector<unsigned*> row_words_;

 private:
  unsigned* Allocate(int64_t num_bytes) {
    memory_.push_back(Must(cuda::AllocateDevice(num_bytes)));
    return reinterpret_cast<unsigned*>(memory_.back().get());
  }

  const cuda::Stream stream_ = Must(cuda::MakeStream());
  std::vector<cuda::DeviceMemory> memory_;
};

TEST_F(StreamPeakTest, ReadsEverythingOnce) {
  // A tile and a piece of one; the last 8 bytes of a row are no load.
  Make(2, 0, 4, 4096 + 70);
  EXPECT_FALSE(ShowsInRead());
  for (unsigned* const row : row_words_) {
    for (const int64_t at : {0, 3, 1000, 4095, 4096, 4163}) {
      row[at] = kShown;
      EXPECT_TRUE(ShowsInRead()) << at;
      row[at] = 0;
    }
    row[4164] = kShown;
    EXPECT_FALSE(ShowsInRead());
    row[4164] = 0;
  }
}

TEST_F(StreamPeakTest, MixReadsAllRowsAndWritesAllArrays) {
  for (const int element_bytes : {2, 4}) {
    for (const int num_rows : {1, 4, 7}) {
      const int64_t num_tiles = 5;
      const int64_t num_elements = num_tiles * kThreads * 8;
      Make(num_rows, 3, element_bytes, num_elements + 6);
      Mix();
      EXPECT_EQ(NumChanged(0), 0);
      // Each thread's last load of the last row, of all tiles.
      const int row_loads = element_bytes / 2;
      for (int64_t tile = 0; tile < num_tiles; ++tile) {
        for (int t = 0; t < kThreads; ++t) {
          const int64_t load =
              (tile * row_loads + row_loads - 1) * kThreads + t;
          row_words_.back()[4 * load + 1] = kShown;
        }
      }
      Mix();
      // The first of four words that a thread stores at a time.
      for (int a = 0; a < 3; ++a) {
        EXPECT_EQ(NumChanged(a), num_elements / 4) << a;
      }
    }
  }
}

TEST_F(StreamPeakTest, MixLeavesOtherArraysAlone) {
  Make(2, 1, 4, 2048);
  for (int i = 0; i < 4 * kThreads; i += 4) row_words_[0][i] = kShown;
  Mix();
  EXPECT_EQ(NumChanged(0), 2048 / 4);
}

}  // namespace
}  // namespace agg
