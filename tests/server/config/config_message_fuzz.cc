// Any configuration: refused with a message, or options that print and parse
// again. config_fuzz tries texts, most of which are none.
#include <string>

#include "proto/config.pb.h"
#include "server/config/config_text.h"
#include "server/config/options.h"
#include "tests/fuzz/fuzz_message.h"

namespace agg {
namespace {

void Run(const v1::JobConfig& input) {
  const v1::JobConfig config = WithDefaults(input);
  const std::string printed = PrintJobConfig(config);
  const auto again = ParseJobConfig(printed, "printed");
  if (!again.ok() || PrintJobConfig(*again) != printed) __builtin_trap();
  const auto options = MakeServerOptions(config);
  if (!options.ok() && options.status().message().empty()) __builtin_trap();
  if (!options.ok()) return;
  if (options->fingerprint != ConfigFingerprint(*again)) __builtin_trap();
  if (options->shards.empty() || options->coordinator.workers < 1) {
    __builtin_trap();
  }
}

}  // namespace
}  // namespace agg

AGG_FUZZ_MESSAGE(agg::v1::JobConfig, agg::Run)
