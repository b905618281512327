// The factor alone: it goes into the coefficients, so that clipping costs no
// pass over the elements.
#include "server/combine/clipping.h"

#include <cmath>

#include "server/base/dcheck.h"

namespace agg {

double ClipFactor(double norm, double clip_norm) {
  AGG_DCHECK(std::isfinite(norm) && norm >= 0.0);
  AGG_DCHECK(std::isfinite(clip_norm) && clip_norm >= 0.0);
  if (clip_norm == 0.0 || norm <= clip_norm) return 1.0;
  return clip_norm / norm;
}

}  // namespace agg
