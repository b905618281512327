// Makes CombineOptions of the configuration's `combination`, `shadow_rules`,
// `outliers`, `step_scale` and `learning_rate`. Apart from options.h, since
// these fields alone are about combining.
#ifndef AGG_SERVER_CONFIG_COMBINE_CONFIG_H_
#define AGG_SERVER_CONFIG_COMBINE_CONFIG_H_

#include "proto/config.pb.h"
#include "server/base/field_error.h"
#include "server/combine/options.h"

namespace agg {

// Reads these fields, and sets what *config leaves out of them. Adds a line for
// each bad field, "field is value; allowed: ...": one that the chosen rule or
// schedule does not use must not be set.
void ReadCombination(v1::JobConfig* config, CombineOptions* options,
                     FieldErrors* errors);

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_COMBINE_CONFIG_H_
