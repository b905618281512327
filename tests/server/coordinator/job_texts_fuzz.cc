// Any text as what a coordinator keeps at the shards and in checkpoints: the
// record, the facts, the changes. Refused, or written as a text that reads
// back.
#include <cstdint>
#include <string>

#include "server/coordinator/job_record.h"

namespace {

void TryRecord(const std::string& text) {
  const auto record = agg::ParseJobRecord(text);
  if (!record.ok()) return;
  const std::string printed = agg::JobRecordText(*record);
  const auto again = agg::ParseJobRecord(printed);
  if (!again.ok() || agg::JobRecordText(*again) != printed) __builtin_trap();
}

void TryChanges(const std::string& text) {
  const auto changes = agg::ParseJobChanges(text);
  if (!changes.ok()) return;
  const std::string printed = agg::JobChangesText(*changes);
  const auto again = agg::ParseJobChanges(printed);
  if (!again.ok() || agg::JobChangesText(*again) != printed) __builtin_trap();
}

void TryFacts(const std::string& text) {
  const auto facts = agg::ParseFacts(text);
  if (!facts.ok()) return;
  const std::string printed = agg::FactsText(*facts);
  const auto again = agg::ParseFacts(printed);
  if (!again.ok() || agg::FactsText(*again) != printed) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  TryRecord(text);
  TryChanges(text);
  TryFacts(text);
  return 0;
}
