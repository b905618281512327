// The network that the quickstart trains: 64 - 64 ReLU - 10 softmax. It knows
// nothing of the job, so that tests can check its gradient alone.
#ifndef AGG_WORKER_CLIENT_EXAMPLES_DIGITS_MODEL_H_
#define AGG_WORKER_CLIENT_EXAMPLES_DIGITS_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/shard_plan.h"
#include "worker_client/examples/digits_data.h"
#include "worker_client/tensor_view.h"

namespace agg {

inline constexpr int kDigitHidden = 64;

// The network's parameters, or a gradient of them: matrices are [from][to].
struct DigitsTensors {
  DigitsTensors();  // zeros

  std::vector<float> hidden_weights;  // kDigitPixels x kDigitHidden
  std::vector<float> hidden_bias;     // kDigitHidden
  std::vector<float> output_weights;  // kDigitHidden x kDigitClasses
  std::vector<float> output_bias;     // kDigitClasses

  // The tensors in manifest order.
  std::vector<TensorView> views() const;
  std::vector<MutableTensorView> mutable_views();
};

Manifest DigitsManifest();

// Weights from a normal distribution of variance 2 / inputs (He et al.,
// "Delving Deep into Rectifiers", 2015), zero biases; equal seeds give equal
// bits.
DigitsTensors InitialDigitsParameters(uint64_t seed);

// The mean softmax cross-entropy of the examples, and its gradient. In float
// and in a fixed order: equal arguments give equal bits.
// REQUIRES: at least one example.
double DigitsGradient(const DigitsTensors& parameters, const DigitsData& data,
                      absl::Span<const int> examples, DigitsTensors* gradient);

// The share of examples whose label has the largest output.
double DigitsAccuracy(const DigitsTensors& parameters, const DigitsData& data);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_EXAMPLES_DIGITS_MODEL_H_
