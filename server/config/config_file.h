// The configuration's file as text. Apart from config_text.h because the
// mistakes here are about files: a folder, no permission, nothing in it.
#ifndef AGG_SERVER_CONFIG_CONFIG_FILE_H_
#define AGG_SERVER_CONFIG_CONFIG_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace agg {

// The text at `path`; "-" is standard input. INVALID_ARGUMENT "--config is
// ..." for what cannot be read, with the system's reason, and for a file that
// is empty or no configuration by its size.
absl::StatusOr<std::string> ReadConfigFile(const std::string& path);

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_CONFIG_FILE_H_
