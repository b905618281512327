#include "tests/bench/report/host_facts.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

namespace agg {
namespace {

// The values of all lines "NAME : VALUE".
std::vector<std::string> ValuesOf(absl::string_view text,
                                  absl::string_view name) {
  std::vector<std::string> values;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, name)) continue;
    line = absl::StripAsciiWhitespace(line);
    if (!absl::ConsumePrefix(&line, ":")) continue;
    values.emplace_back(absl::StripAsciiWhitespace(line));
  }
  return values;
}

std::vector<std::string> FieldsOf(absl::string_view line) {
  std::vector<std::string> fields;
  for (const absl::string_view field : absl::StrSplit(line, ',')) {
    fields.emplace_back(absl::StripAsciiWhitespace(field));
  }
  return fields;
}

// Objects of a table whose first line has the names: "memory.total [MiB]" is
// "memory.total", and the values keep their units. A line of another length is
// what nvidia-smi says instead of one.
std::vector<Json> CardsOf(absl::string_view smi) {
  std::vector<Json> cards;
  std::vector<std::string> names;
  for (const absl::string_view line :
       absl::StrSplit(smi, '\n', absl::SkipWhitespace())) {
    const std::vector<std::string> fields = FieldsOf(line);
    if (names.empty()) {
      names = fields;
      continue;
    }
    if (names.size() < 2 || fields.size() != names.size()) continue;
    Json card;
    for (size_t i = 0; i < fields.size(); ++i) {
      const std::string name = names[i].substr(0, names[i].find(" ["));
      const bool known = !fields[i].empty() && fields[i][0] != '[';
      card[name] = known ? Json(fields[i]) : Json();
    }
    cards.push_back(card);
  }
  return cards;
}

// A member of an object that may lack it or be none.
Json Member(const Json& object, const std::string& name) {
  return object.is_object() && object.contains(name) ? object[name] : Json();
}

// "00000000:41:00.0" and "0000:41:00.0" are one bus.
bool IsSameBus(const Json& one, const Json& other) {
  if (!one.is_string() || !other.is_string()) return false;
  const auto behind_domain = [](const Json& bus) {
    const std::string text = absl::AsciiStrToLower(bus.get<std::string>());
    return text.substr(text.find(':') + 1);
  };
  return behind_domain(one) == behind_domain(other);
}

Json SmiCardOf(const Json& facts, const std::vector<Json>& cards) {
  for (const Json& card : cards) {
    if (IsSameBus(Member(card, "pci.bus_id"), Member(facts, "pci_bus_id"))) {
      return card;
    }
  }
  return cards.empty() ? Json() : cards.front();
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul .."
Json DriverOf(absl::string_view driver_version) {
  for (const std::string& line : ValuesOf(driver_version, "NVRM version")) {
    for (const absl::string_view word :
         absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      const bool is_version =
          absl::ascii_isdigit(static_cast<unsigned char>(word[0])) &&
          absl::StrContains(word, '.');
      if (is_version) return std::string(word);
    }
  }
  return nullptr;
}

}  // namespace

Json HostFacts(absl::string_view cpuinfo, absl::string_view meminfo) {
  Json facts = {
      {"cpu", nullptr}, {"cores", nullptr}, {"memory_bytes", nullptr}};
  const std::vector<std::string> models = ValuesOf(cpuinfo, "model name");
  if (!models.empty()) facts["cpu"] = models[0];
  const size_t cores = ValuesOf(cpuinfo, "processor").size();
  if (cores > 0) facts["cores"] = cores;
  int64_t kibibytes = 0;
  for (const absl::string_view total : ValuesOf(meminfo, "MemTotal")) {
    if (absl::SimpleAtoi(absl::StripSuffix(total, " kB"), &kibibytes)) {
      facts["memory_bytes"] = kibibytes * 1024;
    }
  }
  return facts;
}

Json SystemFacts() {
  utsname system;
  const bool known = uname(&system) == 0;
  char library[64] = "";  // "glibc 2.36"
  confstr(_CS_GNU_LIBC_VERSION, library, sizeof(library));
  return {
      {"kernel", known ? Json(absl::StrCat(system.sysname, " ", system.release))
                       : Json()},
      {"glibc", std::string(absl::StripPrefix(library, "glibc "))}};
}

Json CardOf(const Json& facts, absl::string_view smi,
            absl::string_view driver_version) {
  const std::vector<Json> cards = CardsOf(smi);
  const Json from_smi = SmiCardOf(facts, cards);
  Json driver = Member(from_smi, "driver_version");
  if (driver.is_null()) driver = DriverOf(driver_version);
  if (facts.is_null() && from_smi.is_null() && driver.is_null()) return nullptr;
  Json card = {{"name", Member(facts, "name")}, {"driver", driver}};
  if (card["name"].is_null()) card["name"] = Member(from_smi, "name");
  if (facts.is_object()) {
    for (const auto& [name, value] : facts.items()) {
      if (name != "name") card[name] = value;
    }
  }
  card["cards"] = cards.empty() ? Json() : Json(cards.size());
  card["nvidia_smi"] = from_smi;
  return card;
}

}  // namespace agg
