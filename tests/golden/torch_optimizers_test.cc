// The CPU backend's optimizers against PyTorch's own results (README.md).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/backend_factory.h"
#include "kernels/optimizer_table.h"
#include "nlohmann/json.hpp"
#include "tests/golden/golden_json.h"

namespace agg {
namespace {

constexpr double kUlp = 0x1p-23;
constexpr double kSubnormal = 0x1p-149;

struct Case {
  OptimizerOptions options;
  float learning_rate = 0.0f;
  float weight_decay = 0.0f;
};

float Number(const Json& options, const char* name, float otherwise) {
  return options.contains(name)
             ? static_cast<float>(options.at(name).get<double>())
             : otherwise;
}

Case CaseOf(const Json& golden) {
  const Json& options = golden.at("options");
  const std::string& name = golden.at("optimizer").get<std::string>();
  Case c;
  bool is_known = false;
  for (const OptimizerLine& line : kOptimizers) {
    if (name != line.name) continue;
    c.options.kind = line.kind;
    is_known = true;
  }
  EXPECT_TRUE(is_known) << name;
  c.learning_rate = Number(options, "lr", 0.0f);
  c.weight_decay = Number(options, "weight_decay", 0.0f);
  c.options.momentum = Number(options, "momentum", 0.0f);
  c.options.nesterov = options.contains("nesterov");
  c.options.epsilon = Number(options, "eps", 0.0f);
  c.options.initial_accumulator =
      Number(options, "initial_accumulator_value", 0.0f);
  if (options.contains("betas")) {
    c.options.beta1 =
        static_cast<float>(options.at("betas").at(0).get<double>());
    c.options.beta2 =
        static_cast<float>(options.at("betas").at(1).get<double>());
  }
  return c;
}

std::vector<float> Floats(const Json& json) {
  const std::vector<double> numbers = json.get<std::vector<double>>();
  return std::vector<float>(numbers.begin(), numbers.end());
}

// One tensor on a backend.
class Tensor {
 public:
  Tensor(const Case& c, const std::vector<float>& parameters)
      : case_(c),
        range_{0, static_cast<int64_t>(parameters.size())},
        backend_(*MakeBackend("cpu", {/*num_threads=*/1})),
        row_(Allocate(BufferUse::kRow)),
        master_(Allocate(BufferUse::kState)),
        state0_(Allocate(BufferUse::kState)),
        state1_(Allocate(BufferUse::kState)),
        snapshot_(Allocate(BufferUse::kSnapshot)) {
    std::memcpy(snapshot_->host(), parameters.data(), parameters.size() * 4);
    EXPECT_EQ(backend_->Load(c.options, *snapshot_, master_.get(), state0(),
                             state1(), nullptr, DType::kF32),
              absl::OkStatus());
  }

  std::vector<float> Step(const std::vector<float>& gradient, int64_t step) {
    std::memcpy(row_->host(), gradient.data(), gradient.size() * 4);
    backend_->RowLanded(*row_, DType::kF32, range_);
    const Buffer* const rows[] = {row_.get()};
    const double one[] = {1.0};
    UpdateRange range;
    range.range = range_;
    range.coefficients = one;
    range.learning_rate = case_.learning_rate;
    range.weight_decay = case_.weight_decay;
    UpdateRequest request;
    request.rows = rows;
    request.optimizer = case_.options;
    request.step = step;
    request.ranges = absl::MakeConstSpan(&range, 1);
    request.master = master_.get();
    request.state0 = state0();
    request.state1 = state1();
    request.snapshot = snapshot_.get();
    EXPECT_EQ(backend_->Update(request), absl::OkStatus());
    std::vector<float> result(gradient.size());
    std::memcpy(result.data(), snapshot_->host(), result.size() * 4);
    return result;
  }

 private:
  std::unique_ptr<Buffer> Allocate(BufferUse use) {
    return *backend_->Allocate(use, range_.num_elements * 4);
  }
  Buffer* state0() {
    return OptimizerStateArrays(case_.options) > 0 ? state0_.get() : nullptr;
  }
  Buffer* state1() {
    return OptimizerStateArrays(case_.options) > 1 ? state1_.get() : nullptr;
  }

  const Case case_;
  const ElementRange range_;
  const std::unique_ptr<Backend> backend_;
  const std::unique_ptr<Buffer> row_, master_, state0_, state1_, snapshot_;
};

// How large the terms of one element's parameter have been so far: what its
// rounding errors are relative to. Terms may cancel; their sizes add up. In
// double, from PyTorch's parameters.
class TermSizes {
 public:
  TermSizes(const Case& c, double parameter)
      : case_(c), size_(std::abs(parameter)) {
    sum_ = sum_size_ = c.options.initial_accumulator;
  }

  // One step from `parameter`; the size of what it makes of it.
  double Step(double gradient, double parameter, int step) {
    const OptimizerOptions& o = case_.options;
    const bool decoupled = o.kind == OptimizerKind::kAdamW;
    const double decay = decoupled ? 0.0 : case_.weight_decay;
    const double g = gradient + decay * parameter;
    const double g_size = std::abs(gradient) + decay * size_;
    const double rate = case_.learning_rate;
    switch (o.kind) {
      case OptimizerKind::kSgd:
        moment_ = o.momentum * moment_ + g_size;
        size_ += rate * (o.nesterov ? g_size + o.momentum * moment_ : moment_);
        return size_;
      case OptimizerKind::kAdagrad:
        moment_ = g_size;
        Accumulate(1.0, 1.0, g, g_size);
        size_ += rate * Direction(1.0);
        return size_;
      default:
        moment_ += (1.0 - o.beta1) * (g_size - moment_);
        Accumulate(o.beta2, 1.0 - o.beta2, g, g_size);
        size_ += rate / (1.0 - std::pow(o.beta1, step)) *
                 Direction(1.0 - std::pow(o.beta2, step));
        return size_;
    }
  }

 private:
  void Accumulate(double keep, double add, double g, double g_size) {
    sum_ = keep * sum_ + add * g * g;
    sum_size_ = keep * sum_size_ + add * g_size * g_size;
  }
  // Relative errors of the sum are halved by the root.
  double Direction(double bias) const {
    const double spread = sum_ > 0.0 ? sum_size_ / sum_ : 1.0;
    return moment_ / (std::sqrt(sum_ / bias) + case_.options.epsilon) *
           (0.5 + 0.5 * spread);
  }

  const Case case_;
  double size_;
  double moment_ = 0.0;
  double sum_, sum_size_;
};

// Both sides round in float32, PyTorch at more places (it fuses no multiply-add
// of the moments, and divides where a reciprocal multiplies here). A step has
// at most 6 roundings here and 8 there, each of half a unit in the last place
// (2^-23) of the terms' size at most: 35 units after 5 steps if all pointed the
// same way, 2 or 3 if they are independent. Measured: 2.91.
constexpr double kToleranceUlps = 4.0;

// The smallest float32 limits subnormal terms. PyTorch multiplies the first
// moment by the rate before it divides by a denominator that may be epsilon.
double SmallestDifference(const OptimizerOptions& options) {
  return options.epsilon > 0.0f ? kSubnormal / options.epsilon : kSubnormal;
}

TEST(TorchOptimizersTest, AgreeWithinRounding) {
  const Json golden = ReadGolden("tests/golden/torch_optimizers.json");
  const std::vector<float> parameters = Floats(golden.at("parameters"));
  ASSERT_EQ(golden.at("cases").size(), 13u);
  for (const Json& golden_case : golden.at("cases")) {
    SCOPED_TRACE(golden_case.at("optimizer").get<std::string>());
    const Case c = CaseOf(golden_case);
    Tensor tensor(c, parameters);
    std::vector<TermSizes> sizes;
    for (const float parameter : parameters) sizes.emplace_back(c, parameter);
    std::vector<float> before = parameters;
    double largest = 0.0;
    for (int step = 1; step <= 5; ++step) {
      const std::vector<float> gradient =
          Floats(golden.at("gradients").at(step - 1));
      const std::vector<float> expected =
          Floats(golden_case.at("results").at(step - 1));
      const std::vector<float> actual = tensor.Step(gradient, step);
      for (size_t i = 0; i < actual.size(); ++i) {
        const double unit = kUlp * sizes[i].Step(gradient[i], before[i], step) +
                            SmallestDifference(c.options);
        const double ulps =
            std::abs(static_cast<double>(actual[i]) - expected[i]) / unit;
        EXPECT_LE(ulps, kToleranceUlps)
            << "step " << step << ", element " << i << ": " << actual[i]
            << ", PyTorch " << expected[i] << ", from " << before[i]
            << " along " << gradient[i];
        largest = std::max(largest, ulps);
      }
      before = expected;
    }
    std::printf("%s: at most %.2f units in the last place\n",
                golden_case.at("optimizer").get<std::string>().c_str(),
                largest);
  }
}

// Both sides do the same operations in the same order: nothing may differ.
TEST(TorchOptimizersTest, PlainSgdHasTheSameBits) {
  const Json golden = ReadGolden("tests/golden/torch_optimizers.json");
  int num_cases = 0;
  for (const Json& golden_case : golden.at("cases")) {
    const Case c = CaseOf(golden_case);
    if (c.options.kind != OptimizerKind::kSgd || c.options.momentum != 0.0f) {
      continue;
    }
    ++num_cases;
    Tensor tensor(c, Floats(golden.at("parameters")));
    for (int step = 1; step <= 5; ++step) {
      EXPECT_EQ(tensor.Step(Floats(golden.at("gradients").at(step - 1)), step),
                Floats(golden_case.at("results").at(step - 1)));
    }
  }
  EXPECT_EQ(num_cases, 2);
}

}  // namespace
}  // namespace agg
