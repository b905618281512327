// The handwritten digits of deploy/data: 8x8 images and their labels. Apart
// from the model, which any data of this shape would train.
#ifndef AGG_WORKER_CLIENT_EXAMPLES_DIGITS_DATA_H_
#define AGG_WORKER_CLIENT_EXAMPLES_DIGITS_DATA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace agg {

inline constexpr int kDigitPixels = 64;
inline constexpr int kDigitClasses = 10;

// Images row by row, pixels scaled to 0..1.
struct DigitsData {
  std::vector<float> pixels;  // num_examples() x kDigitPixels
  std::vector<int> labels;    // 0..9

  int num_examples() const { return static_cast<int>(labels.size()); }
  absl::Span<const float> image(int example) const {
    return absl::MakeConstSpan(pixels).subspan(
        static_cast<size_t>(example) * kDigitPixels, kDigitPixels);
  }
  // Examples [begin, end).
  DigitsData Range(int begin, int end) const;
};

// Reads lines of 64 pixel values 0..16 and a label 0..9, comma-separated,
// from a file compressed by gzip or not. NOT_FOUND: cannot be opened;
// INVALID_ARGUMENT naming the line: anything else.
absl::StatusOr<DigitsData> ReadDigits(const std::string& path);

// 0..num_examples-1 in the order of an epoch: a Fisher-Yates shuffle by a
// generator of our own, so that (seed, epoch) give the same order to every
// worker, with every compiler and on every platform.
std::vector<int> EpochOrder(int num_examples, uint64_t seed, int epoch);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_EXAMPLES_DIGITS_DATA_H_
