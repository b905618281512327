// A pseudo-random generator whose numbers are the same everywhere. The standard
// library's distributions differ from one implementation to the next.
#ifndef AGG_WORKER_CLIENT_EXAMPLES_SPLIT_MIX_H_
#define AGG_WORKER_CLIENT_EXAMPLES_SPLIT_MIX_H_

#include <cmath>
#include <cstdint>

namespace agg {

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

  // In (0, 1).
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

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_EXAMPLES_SPLIT_MIX_H_
