// The job's configuration as the plain options that the modules take. Here it
// is validated, once, so that no module below knows the configuration's format.
#ifndef AGG_SERVER_CONFIG_OPTIONS_H_
#define AGG_SERVER_CONFIG_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend_maker.h"
#include "proto/config.pb.h"
#include "server/access/identities.h"
#include "server/base/field_error.h"
#include "server/config/security_config.h"
#include "server/coordinator/coordinator_types.h"
#include "server/round/shard_options.h"
#include "server/round_log/round_log.h"

namespace agg {

struct MetricsSettings {
  std::string bind;  // "": the server's own address
  int32_t port = 0;  // 0: off
  int32_t max_tensors = 32;
  int32_t max_workers = 64;
};

struct ServerOptions {
  std::vector<std::string> shards;  // addresses by ordinal
  CoordinatorOptions coordinator;
  ShardOptions shard;  // ordinal 0; memory_budget 0: by host and device
  std::string backend = "cpu";
  BackendOptions backend_options;
  bool unix_socket = true;    // listen on one besides the port (P38)
  SecuritySettings security;  // who may connect
  MetricsSettings metrics;
  RoundLogOptions round_log;       // path "": no log is written
  std::string checkpoint_path;     // "": no checkpoints
  AccessOptions access;            // who may do what
  std::string config_text;         // the config as text
  std::vector<FieldValue> fields;  // the same, field by field
  std::string fingerprint;         // what all shards must agree on
};

// Fills in what is left out, as the comments of proto/config.proto promise, so
// that --print_config can show a complete configuration. Invalid values stay
// for MakeServerOptions to report; fields that the chosen kind does not use
// stay unset. Idempotent.
v1::JobConfig WithDefaults(v1::JobConfig config);

// INVALID_ARGUMENT with a line for each bad field: "path is value; allowed:
// ...". What follows from another error only is not repeated. Fields that are
// left out have their defaults.
absl::StatusOr<ServerOptions> MakeServerOptions(const v1::JobConfig& config);

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_OPTIONS_H_
