// Learning-rate schedules.
#ifndef AGG_SERVER_COMBINE_SCHEDULE_H_
#define AGG_SERVER_COMBINE_SCHEDULE_H_

#include "server/combine/options.h"

namespace agg {

// rate * warm(t) * decay(t), t >= 0 in rounds or scale-invariant iterations.
//
// warm(t) goes linearly from warmup_start_factor at t = 0 to 1 at warmup_steps.
// decay(t), with u = max(t - warmup_steps, 0) and x = min(u / decay_steps, 1):
//   constant      1
//   multistep     gamma^(number of boundaries <= t): boundaries are absolute,
//                 so that warm-up plus multistep is LSW
//                 (server/combine/README.md 6)
//   exponential   gamma^(u / decay_steps), continuous, no end
//   polynomial    final_factor + (1 - final_factor) (1 - x)^power
//   cosine        final_factor + (1 - final_factor) (1 + cos(pi x)) / 2
//   inverse_sqrt  sqrt(w / max(t, w)), w = max(warmup_steps, 1)
// Pure. REQUIRES: validated options.
double ScheduledLearningRate(const ScheduleOptions& options, double t);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_SCHEDULE_H_
