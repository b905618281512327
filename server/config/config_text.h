// The job's configuration as text: reading, printing, fingerprint. Apart from
// options.h because text says nothing about which values are allowed.
#ifndef AGG_SERVER_CONFIG_CONFIG_TEXT_H_
#define AGG_SERVER_CONFIG_CONFIG_TEXT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/base/field_error.h"

namespace agg {

// Reads protobuf's text format. INVALID_ARGUMENT with a line
// "source:line:column: what" for each error. Unknown fields, which are all
// found, are errors, too; but if `unknown_fields` is given they are added
// there, and the rest of the config is returned, so that its values can be
// checked as well.
absl::StatusOr<v1::JobConfig> ParseJobConfig(
    absl::string_view text, absl::string_view source,
    FieldErrors* unknown_fields = nullptr);

// Text that parses to the same config. Unlike protobuf's own printer it also
// prints fields that hold their type's default, so that people see all values.
std::string PrintJobConfig(const v1::JobConfig& config);

// The config's fields with their values, in the order and the spelling of
// PrintJobConfig. `compared`: the field is in ConfigFingerprint.
std::vector<FieldValue> FieldValues(const v1::JobConfig& config);

// 16 hex digits that all shards of a job must agree on. Fields that may differ
// from host to host, or are the coordinator's alone, do not count: addresses,
// metrics, round log, checkpoints, threads, memory, the Unix socket, `security`
// but the names, sans and roles of its identities.
// REQUIRES: a config that WithDefaults has completed.
std::string ConfigFingerprint(const v1::JobConfig& config);

// The text at `path`; "-" is standard input. INVALID_ARGUMENT "--config is
// ..." for what cannot be read, with the system's reason, and for a file that
// is empty or no configuration by its size.
absl::StatusOr<std::string> ReadConfigFile(const std::string& path);

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_CONFIG_TEXT_H_
