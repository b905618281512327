// The promises of the compute backends, seen through the public door: every
// optimizer, stepped by real servers over three shards, against the oracle of
// tests/conformance, which knows neither slices nor Gram matrices.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/optimizer_step.h"
#include "tests/conformance/oracle.h"
#include "tests/e2e/loopback_job.h"

namespace agg {
namespace {

constexpr int kWorkers = 3;
constexpr int kRounds = 5;
constexpr double kRate = 0.05;
constexpr double kFloatUnit = 0x1p-24;

struct OptimizerCase {
  const char* name;
  const char* config;  // of `optimizer`, besides weight_decay
  OptimizerOptions options;
};

OptimizerOptions Options(OptimizerKind kind, float momentum = 0.0f,
                         bool nesterov = false) {
  OptimizerOptions options;
  options.kind = kind;
  options.momentum = momentum;
  options.nesterov = nesterov;
  if (kind == OptimizerKind::kAdagrad) options.epsilon = 1e-10f;
  return options;
}

class LoopbackConformance : public testing::TestWithParam<OptimizerCase> {};

// Refused where it would do nothing.
double Decay(const OptimizerOptions& options) {
  const bool unused = options.kind == OptimizerKind::kNone ||
                      options.kind == OptimizerKind::kAdd;
  return unused ? 0.0 : 0.01;
}

double TrustOf(const OptimizerOptions& options, double parameter_norm,
               double update_norm) {
  if (parameter_norm == 0.0 || update_norm == 0.0) return 1.0;
  if (options.kind == OptimizerKind::kLamb) return parameter_norm / update_norm;
  if (options.kind != OptimizerKind::kLars) return 1.0;
  return options.trust_coefficient * parameter_norm /
         (update_norm + Decay(options) * parameter_norm + options.epsilon);
}

// One tensor's mean gradient over the workers of `round`, as a float each.
std::vector<double> MeanGradient(const Manifest& manifest, int round,
                                 size_t tensor) {
  std::vector<std::vector<double>> rows;
  for (int rank = 0; rank < kWorkers; ++rank) {
    const HostTensors gradient =
        MakeTensors(manifest, 1000 + static_cast<uint64_t>(round) * 64 + rank);
    rows.emplace_back(gradient[tensor].begin(), gradient[tensor].end());
  }
  std::vector<double> mean =
      oracle::Combine(rows, std::vector<double>(kWorkers, 1.0 / kWorkers)).sum;
  for (double& value : mean) value = static_cast<float>(value);
  return mean;
}

TEST_P(LoopbackConformance, StepsAsTheOracle) {
  const OptimizerCase& c = GetParam();
  const double decay = Decay(c.options);
  const Manifest manifest = ShapedManifest({{70, 11}, {}, {257}, {0, 3}});
  LoopbackJob job(
      3, absl::StrCat("workers: ", kWorkers, " learning_rate { rate: ", kRate,
                      " } optimizer { ", c.config, " weight_decay: ", decay,
                      " }"));
  Train(job, manifest, kWorkers, kRounds);
  const HostTensors parameters = job.Parameters(manifest);
  const HostTensors seed = MakeTensors(manifest, 7);
  for (size_t t = 0; t < seed.size(); ++t) {
    oracle::Optimizer oracle(
        c.options, std::vector<double>(seed[t].begin(), seed[t].end()));
    double tolerance = 0.0;
    for (int round = 0; round < kRounds; ++round) {
      const std::vector<double> mean = MeanGradient(manifest, round, t);
      const double trust =
          TrustOf(c.options, std::sqrt(oracle.ParameterNormSquared()),
                  std::sqrt(oracle.UpdateNormSquared(mean, decay)));
      oracle.Step(mean, static_cast<float>(kRate), decay, trust);
      // As in the backends' suite: a few float roundings per step, of values
      // up to 4, and of the step itself.
      tolerance += 16 * kFloatUnit * (4.0 + oracle.largest_change());
    }
    ASSERT_EQ(parameters[t].size(), oracle.parameters().size());
    for (size_t k = 0; k < parameters[t].size(); ++k) {
      ASSERT_NEAR(parameters[t][k], oracle.parameters()[k], tolerance)
          << "tensor " << t << ", element " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, LoopbackConformance,
    testing::Values(
        OptimizerCase{"sgd", "kind: \"sgd\"", Options(OptimizerKind::kSgd)},
        OptimizerCase{"nesterov", "kind: \"sgd\" momentum: 0.9 nesterov: true",
                      Options(OptimizerKind::kSgd, 0.9f, true)},
        OptimizerCase{"add_diloco",
                      "kind: \"add\" momentum: 0.9 nesterov: true",
                      Options(OptimizerKind::kAdd, 0.9f, true)},
        OptimizerCase{"none", "kind: \"none\"", Options(OptimizerKind::kNone)},
        OptimizerCase{"adam", "kind: \"adam\"", Options(OptimizerKind::kAdam)},
        OptimizerCase{"adamw", "kind: \"adamw\"",
                      Options(OptimizerKind::kAdamW)},
        OptimizerCase{"adagrad", "kind: \"adagrad\"",
                      Options(OptimizerKind::kAdagrad)},
        OptimizerCase{"lars", "kind: \"lars\" momentum: 0.9",
                      Options(OptimizerKind::kLars, 0.9f)},
        OptimizerCase{"lamb", "kind: \"lamb\"", Options(OptimizerKind::kLamb)}),
    [](const testing::TestParamInfo<OptimizerCase>& info) {
      return info.param.name;
    });

}  // namespace
}  // namespace agg
