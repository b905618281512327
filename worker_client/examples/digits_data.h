// The handwritten digits of deploy/data, 8x8 images and their labels, and
// random numbers that are the same everywhere. Apart from the model, which any
// data of this shape would train.
#ifndef AGG_WORKER_CLIENT_EXAMPLES_DIGITS_DATA_H_
#define AGG_WORKER_CLIENT_EXAMPLES_DIGITS_DATA_H_

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace agg {

// A pseudo-random generator whose numbers are the same everywhere; the standard
// library's distributions differ from one implementation to the next.
// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
// generators", OOPSLA 2014). Streams of different (seed, stream) are unrelated.
class SplitMix {
 public:
  SplitMix(uint64_t seed, uint64_t stream) : state_(seed) {
    state_ = Next() ^ (stream * 0xd1342543de82ef95u);
  }

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // Returns a number in (0, 1).
  double Uniform() {
    return (static_cast<double>(Next() >> 11) + 0.5) * 0x1p-53;
  }

  // 0..limit-1, without bias that matters for small limits (2^-32).
  uint32_t Below(uint32_t limit) {
    return static_cast<uint32_t>(((Next() >> 32) * limit) >> 32);
  }

  // Standard normal (Box and Muller, "A note on the generation of random normal
  // deviates", 1958).
  double Normal() {
    constexpr double kTwoPi = 6.283185307179586476925286766559;
    const double radius = std::sqrt(-2 * std::log(Uniform()));
    return radius * std::cos(kTwoPi * Uniform());
  }

 private:
  uint64_t state_;
};

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
