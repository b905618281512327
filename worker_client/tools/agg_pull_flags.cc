#include "worker_client/tools/agg_pull_flags.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace agg {

const char kAggPullUsage[] =
    "usage: agg_pull --output=params.npz [--coordinator=host:port] "
    "[--version=N]\n"
    "  --coordinator  address of shard 0; default 127.0.0.1:50051\n"
    "  --output       the .npz file to write\n"
    "  --version      which published version; default: the newest\n";

absl::StatusOr<AggPullFlags> ParseAggPullFlags(
    const std::vector<std::string>& arguments) {
  AggPullFlags flags;
  for (const std::string& argument : arguments) {
    const std::pair<absl::string_view, absl::string_view> flag =
        absl::StrSplit(argument, absl::MaxSplits('=', 1));
    const absl::string_view value = flag.second;
    if (flag.first == "--help") {
      flags.help = true;
      return flags;
    }
    if (flag.first == "--coordinator" && !value.empty()) {
      flags.coordinator = std::string(value);
    } else if (flag.first == "--output" && !value.empty()) {
      flags.output = std::string(value);
    } else if (flag.first == "--version") {
      uint64_t version;
      if (!absl::SimpleAtoi(value, &version)) {
        return absl::InvalidArgumentError(
            absl::StrCat("--version is \"", value, "\"; allowed: 0 or more"));
      }
      flags.version = version;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("bad argument \"", argument, "\"; allowed: --output=F",
                       ", --coordinator=HOST:PORT, --version=N, --help"));
    }
  }
  if (flags.output.empty()) {
    return absl::InvalidArgumentError(
        "--output is missing; allowed: the path of the .npz file to write");
  }
  return flags;
}

}  // namespace agg
