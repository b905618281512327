// A worker of the digits' training that is wrong on purpose: it takes part as
// digits_worker does, and pushes something else than its gradient.
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "worker_client/examples/digits_data.h"
#include "worker_client/examples/digits_run.h"

ABSL_FLAG(std::string, garbage, "noise",
          "what is pushed: noise (normal, 100 times as long as the gradient), "
          "matched (normal, as long as it), flip (the gradient times -10), "
          "turn (times -1)");

namespace agg {
namespace {

double Norm(DigitsTensors* tensors) {
  double sum = 0.0;
  for (const MutableTensorView& view : tensors->mutable_views()) {
    const auto* values = static_cast<const float*>(view.data);
    for (int64_t i = 0; i < view.num_elements; ++i) {
      sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
  }
  return std::sqrt(sum);
}

void Scale(double factor, DigitsTensors* tensors) {
  for (const MutableTensorView& view : tensors->mutable_views()) {
    auto* values = static_cast<float*>(view.data);
    for (int64_t i = 0; i < view.num_elements; ++i) {
      values[i] = static_cast<float>(factor * static_cast<double>(values[i]));
    }
  }
}

// Normally distributed, of `length` times the gradient's norm.
void BecomeNoise(uint64_t version, double length, DigitsTensors* gradient) {
  const double norm = Norm(gradient);
  SplitMix random(/*seed=*/1234, version);
  for (const MutableTensorView& view : gradient->mutable_views()) {
    auto* values = static_cast<float*>(view.data);
    for (int64_t i = 0; i < view.num_elements; ++i) {
      values[i] = static_cast<float>(random.Normal());
    }
  }
  Scale(length * norm / Norm(gradient), gradient);
}

absl::StatusOr<SpoilGradient> SpoilOf(const std::string& garbage) {
  if (garbage == "noise" || garbage == "matched") {
    const double length = garbage == "noise" ? 100.0 : 1.0;
    return [length](uint64_t version, DigitsTensors* gradient) {
      BecomeNoise(version, length, gradient);
    };
  }
  if (garbage == "flip" || garbage == "turn") {
    const double factor = garbage == "flip" ? -10.0 : -1.0;
    return [factor](uint64_t, DigitsTensors* gradient) {
      Scale(factor, gradient);
    };
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--garbage is ", garbage, "; allowed: noise, matched, flip, turn"));
}

absl::Status Run() {
  absl::StatusOr<SpoilGradient> spoil = SpoilOf(absl::GetFlag(FLAGS_garbage));
  return spoil.ok() ? RunDigitsWorker(*std::move(spoil)) : spoil.status();
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = agg::Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "garbage_worker: %s\n", status.ToString().c_str());
  return 1;
}
