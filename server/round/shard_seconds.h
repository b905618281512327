// How long a round's phases took on one shard.
#ifndef AGG_SERVER_ROUND_SHARD_SECONDS_H_
#define AGG_SERVER_ROUND_SHARD_SECONDS_H_

#include "server/round/phase.h"

namespace agg {

// Compute time inside the shard, in seconds: without the transport, with
// repeats.
struct ShardSeconds {
  double gram = 0.0;  // of kClose
  double compensated = 0.0;
  double norms = 0.0;
  double update = 0.0;
  double publish = 0.0;

  void Add(PhaseKind kind, double seconds) {
    switch (kind) {
      case PhaseKind::kClose:
        gram += seconds;
        break;
      case PhaseKind::kCompensatedGram:
        compensated += seconds;
        break;
      case PhaseKind::kNorms:
        norms += seconds;
        break;
      case PhaseKind::kUpdate:
        update += seconds;
        break;
      case PhaseKind::kPublish:
        publish += seconds;
        break;
      default:  // not a part of a round that is timed
        break;
    }
  }
};

}  // namespace agg

#endif  // AGG_SERVER_ROUND_SHARD_SECONDS_H_
