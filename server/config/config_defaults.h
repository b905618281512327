// The defaults that the comments of proto/config.proto promise. Apart from the
// parsing, so that --print_config can show a complete configuration.
#ifndef AGG_SERVER_CONFIG_CONFIG_DEFAULTS_H_
#define AGG_SERVER_CONFIG_CONFIG_DEFAULTS_H_

#include "proto/config.pb.h"

namespace agg {

// Fills in what is left out. Invalid values stay for MakeServerOptions to
// report; fields that the chosen kind does not use stay unset. Idempotent.
v1::JobConfig WithDefaults(v1::JobConfig config);

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_CONFIG_DEFAULTS_H_
