// Warm-up and decay are two factors of the rate, each a formula of
// server/combine/README.md 6.
#include "server/combine/schedule.h"

#include <algorithm>
#include <cmath>

namespace agg {
namespace {

constexpr double kPi = 3.14159265358979323846;

double WarmupFactor(const ScheduleOptions& options, double t) {
  if (t >= options.warmup_steps) return 1.0;
  const double start = options.warmup_start_factor;
  return start + (1.0 - start) * (t / options.warmup_steps);
}

double DecayFactor(const ScheduleOptions& options, double t) {
  const double since_warmup = std::max(t - options.warmup_steps, 0.0);
  const double progress = std::min(since_warmup / options.decay_steps, 1.0);
  const double final_factor = options.final_factor;
  switch (options.kind) {
    case ScheduleKind::kConstant:
      return 1.0;
    case ScheduleKind::kMultistep: {
      const auto passed = std::upper_bound(options.boundaries.begin(),
                                           options.boundaries.end(), t) -
                          options.boundaries.begin();
      return std::pow(options.gamma, static_cast<double>(passed));
    }
    case ScheduleKind::kExponential:
      return std::pow(options.gamma, since_warmup / options.decay_steps);
    case ScheduleKind::kPolynomial:
      return final_factor +
             (1.0 - final_factor) * std::pow(1.0 - progress, options.power);
    case ScheduleKind::kCosine:
      return final_factor +
             (1.0 - final_factor) * 0.5 * (1.0 + std::cos(kPi * progress));
    case ScheduleKind::kInverseSqrt: {
      const double warm = std::max(options.warmup_steps, 1.0);
      return std::sqrt(warm / std::max(t, warm));
    }
  }
  return 1.0;
}

}  // namespace

double ScheduledLearningRate(const ScheduleOptions& options, double t) {
  return options.learning_rate * WarmupFactor(options, t) *
         DecayFactor(options, t);
}

}  // namespace agg
