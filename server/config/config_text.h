// The job's configuration as text: reading, printing, fingerprint.
#ifndef AGG_SERVER_CONFIG_CONFIG_TEXT_H_
#define AGG_SERVER_CONFIG_CONFIG_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"

namespace agg {

// Protobuf text format. INVALID_ARGUMENT with "source:line:column: what" for
// each error; an unknown field is one.
absl::StatusOr<v1::JobConfig> ParseJobConfig(absl::string_view text,
                                             absl::string_view source);

// Text that parses to the same config. Every field without presence is
// printed, also one that holds its type's default.
std::string PrintJobConfig(const v1::JobConfig& config);

// 16 hex digits that shards of one job must agree on. What may differ from
// host to host is left out: addresses, metrics, threads, memory.
// REQUIRES: a config that WithDefaults has completed.
std::string ConfigFingerprint(const v1::JobConfig& config);

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_CONFIG_TEXT_H_
