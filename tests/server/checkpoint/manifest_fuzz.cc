// Any text as manifest.json: refused with a message, or a manifest that is
// written as a text that reads back. Once more with the right checksum, which
// random bytes would never have.
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/crc32c.h"
#include "server/checkpoint/checkpoint_manifest.h"

namespace {

void Try(const std::string& text) {
  const auto manifest = agg::ParseCheckpointManifest(text);
  if (!manifest.ok()) return;
  const std::string printed = agg::CheckpointManifestJson(*manifest);
  const auto again = agg::ParseCheckpointManifest(printed);
  if (!again.ok() || agg::CheckpointManifestJson(*again) != printed) {
    __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  Try(text);
  const std::string checked = text.substr(0, text.rfind(", \"crc32c\": "));
  Try(absl::StrCat(checked, ", \"crc32c\": ", agg::Crc32c(checked), "}\n"));
  return 0;
}
