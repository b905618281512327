// What a job may choose about the rule AdaCons. Apart from adacons.h, since the
// interface of all rules hands it on.
#ifndef AGG_SERVER_COMBINE_ADACONS_OPTIONS_H_
#define AGG_SERVER_COMBINE_ADACONS_OPTIONS_H_

#include <cstdint>

namespace agg {

// What the combined unit gradients are multiplied by
// (server/combine/README.md 4.3).
enum class AdaconsRescale : uint8_t { kNone, kMeanNorm, kMatchMean };

struct AdaconsOptions {
  double beta = 0.99;     // of the sorted momentum, in [0, 1)
  double epsilon = 1e-8;  // absolute, added to norms; > 0
  AdaconsRescale rescale = AdaconsRescale::kNone;
};

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_ADACONS_OPTIONS_H_
