// A tensor is never cut, since its coefficients need all of it: a wave ends
// behind the tensor with which it is large enough.
#include "proto/wave_plan.h"

#include <algorithm>
#include <cassert>

namespace agg {

std::vector<Wave> MakeWaves(const Manifest& manifest) {
  assert(ValidateManifest(manifest).ok());
  // All waves but the last one reach `enough`, so that there are kMaxWaves at
  // most.
  const int64_t enough =
      std::max(kMinWaveElements,
               (NumElements(manifest) + kMaxWaves - 2) / (kMaxWaves - 1));
  std::vector<Wave> waves;
  Wave wave;
  int64_t num_elements = 0;
  for (const TensorSpec& tensor : manifest.tensors) {
    num_elements += NumElements(tensor);
    ++wave.end;
    if (num_elements < enough) continue;
    waves.push_back(wave);
    wave.begin = wave.end;
    num_elements = 0;
  }
  // What is left holds no element, or too few for a wave of its own.
  if (wave.begin == wave.end) return waves;
  if (num_elements == 0 && !waves.empty()) {
    waves.back().end = wave.end;
  } else {
    waves.push_back(wave);
  }
  return waves;
}

}  // namespace agg
