// Forward and backward pass of one image, in float32, with loops whose order
// of additions is fixed.
#include "worker_client/examples/digits_model.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "server/base/dcheck.h"
#include "worker_client/examples/digits_data.h"

namespace agg {
namespace {

using Hidden = std::array<float, kDigitHidden>;
using Outputs = std::array<float, kDigitClasses>;

// What the network computes for one image.
struct Activations {
  Hidden hidden;    // after the ReLU
  Outputs outputs;  // logits
};

// to += from * weights, row by row, so that the inner loop vectorises without
// another order of additions.
template <size_t kFrom, size_t kTo>
void AddProduct(const float* from, const float* weights,
                std::array<float, kTo>* to) {
  for (size_t i = 0; i < kFrom; ++i) {
    const float factor = from[i];
    const float* row = weights + i * kTo;
    for (size_t j = 0; j < kTo; ++j) (*to)[j] += factor * row[j];
  }
}

Activations Forward(const DigitsTensors& parameters,
                    absl::Span<const float> image) {
  Activations result;
  std::copy(parameters.hidden_bias.begin(), parameters.hidden_bias.end(),
            result.hidden.begin());
  AddProduct<kDigitPixels>(image.data(), parameters.hidden_weights.data(),
                           &result.hidden);
  for (float& value : result.hidden) value = std::max(value, 0.0f);
  std::copy(parameters.output_bias.begin(), parameters.output_bias.end(),
            result.outputs.begin());
  AddProduct<kDigitHidden>(result.hidden.data(),
                           parameters.output_weights.data(), &result.outputs);
  return result;
}

// The cross-entropy; *delta becomes its derivative by the outputs.
double SoftmaxLoss(const Outputs& outputs, int label, Outputs* delta) {
  const double highest = *std::max_element(outputs.begin(), outputs.end());
  std::array<double, kDigitClasses> exponentials;
  double sum = 0;
  for (size_t j = 0; j < outputs.size(); ++j) {
    exponentials[j] = std::exp(outputs[j] - highest);
    sum += exponentials[j];
  }
  for (size_t j = 0; j < outputs.size(); ++j) {
    (*delta)[j] = static_cast<float>(exponentials[j] / sum);
  }
  (*delta)[label] -= 1;
  return highest + std::log(sum) - outputs[label];
}

// *matrix += column * row.
template <size_t kRow>
void AddOuterProduct(absl::Span<const float> column,
                     const std::array<float, kRow>& row,
                     std::vector<float>* matrix) {
  for (size_t i = 0; i < column.size(); ++i) {
    float* to = matrix->data() + i * kRow;
    for (size_t j = 0; j < kRow; ++j) to[j] += column[i] * row[j];
  }
}

void Backward(const DigitsTensors& parameters, absl::Span<const float> image,
              const Activations& activations, const Outputs& delta,
              DigitsTensors* gradient) {
  AddOuterProduct(activations.hidden, delta, &gradient->output_weights);
  for (size_t j = 0; j < delta.size(); ++j)
    gradient->output_bias[j] += delta[j];
  Hidden hidden_delta;
  for (size_t i = 0; i < hidden_delta.size(); ++i) {
    const float* row = &parameters.output_weights[i * kDigitClasses];
    float sum = 0;
    for (size_t j = 0; j < delta.size(); ++j) sum += row[j] * delta[j];
    hidden_delta[i] = activations.hidden[i] > 0 ? sum : 0.0f;
  }
  AddOuterProduct(image, hidden_delta, &gradient->hidden_weights);
  for (size_t i = 0; i < hidden_delta.size(); ++i) {
    gradient->hidden_bias[i] += hidden_delta[i];
  }
}

}  // namespace

DigitsTensors::DigitsTensors()
    : hidden_weights(kDigitPixels * kDigitHidden),
      hidden_bias(kDigitHidden),
      output_weights(kDigitHidden * kDigitClasses),
      output_bias(kDigitClasses) {}

std::vector<TensorView> DigitsTensors::views() const {
  return {TensorView(hidden_weights), TensorView(hidden_bias),
          TensorView(output_weights), TensorView(output_bias)};
}

std::vector<MutableTensorView> DigitsTensors::mutable_views() {
  return {MutableTensorView(absl::MakeSpan(hidden_weights)),
          MutableTensorView(absl::MakeSpan(hidden_bias)),
          MutableTensorView(absl::MakeSpan(output_weights)),
          MutableTensorView(absl::MakeSpan(output_bias))};
}

Manifest DigitsManifest() {
  Manifest manifest;
  manifest.tensors.resize(4);
  manifest.tensors[0].name = "hidden/weights";
  manifest.tensors[0].shape = {kDigitPixels, kDigitHidden};
  manifest.tensors[1].name = "hidden/bias";
  manifest.tensors[1].shape = {kDigitHidden};
  manifest.tensors[2].name = "output/weights";
  manifest.tensors[2].shape = {kDigitHidden, kDigitClasses};
  manifest.tensors[3].name = "output/bias";
  manifest.tensors[3].shape = {kDigitClasses};
  return manifest;
}

DigitsTensors InitialDigitsParameters(uint64_t seed) {
  DigitsTensors parameters;
  SplitMix random(seed, 0);
  const double hidden_deviation = std::sqrt(2.0 / kDigitPixels);
  for (float& weight : parameters.hidden_weights) {
    weight = static_cast<float>(hidden_deviation * random.Normal());
  }
  const double output_deviation = std::sqrt(2.0 / kDigitHidden);
  for (float& weight : parameters.output_weights) {
    weight = static_cast<float>(output_deviation * random.Normal());
  }
  return parameters;
}

double DigitsGradient(const DigitsTensors& parameters, const DigitsData& data,
                      absl::Span<const int> examples, DigitsTensors* gradient) {
  AGG_DCHECK(!examples.empty());
  *gradient = DigitsTensors();
  double loss = 0;
  for (int example : examples) {
    const absl::Span<const float> image = data.image(example);
    const Activations activations = Forward(parameters, image);
    Outputs delta;
    loss += SoftmaxLoss(activations.outputs, data.labels[example], &delta);
    for (float& value : delta) value /= static_cast<float>(examples.size());
    Backward(parameters, image, activations, delta, gradient);
  }
  return loss / static_cast<double>(examples.size());
}

double DigitsAccuracy(const DigitsTensors& parameters, const DigitsData& data) {
  int correct = 0;
  for (int i = 0; i < data.num_examples(); ++i) {
    const Outputs outputs = Forward(parameters, data.image(i)).outputs;
    const auto best = std::max_element(outputs.begin(), outputs.end());
    correct += best - outputs.begin() == data.labels[i] ? 1 : 0;
  }
  return static_cast<double>(correct) / data.num_examples();
}

}  // namespace agg
