// Any text: refused with a message, or options that print and parse again.
#include <cstdint>
#include <string>

#include "server/config/config_text.h"
#include "server/config/options.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto parsed = agg::ParseJobConfig(text, "fuzz");
  if (!parsed.ok()) return 0;
  const agg::v1::JobConfig config = agg::WithDefaults(*parsed);
  if (!agg::MakeServerOptions(config).ok()) return 0;
  const std::string printed = agg::PrintJobConfig(config);
  const auto again = agg::ParseJobConfig(printed, "printed");
  if (!again.ok() || agg::PrintJobConfig(*again) != printed) __builtin_trap();
  return 0;
}
