#include "server/access/deny_file.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/base/log.h"

namespace agg {
namespace {

constexpr size_t kFingerprintDigits = 64;

absl::Status LineError(int number) {
  return absl::InvalidArgumentError(absl::StrCat(
      "line ", number,
      " is none of these; allowed: \"identity NAME\", \"san NAME\" or \"san "
      "BEGINNING*\", \"certificate SHA256\" with 64 hexadecimal digits"));
}

// "AB:CD.." as "abcd.."; "" if it is no fingerprint.
std::string Fingerprint(absl::string_view text) {
  std::string digits =
      absl::AsciiStrToLower(absl::StrReplaceAll(text, {{":", ""}}));
  const bool good =
      digits.size() == kFingerprintDigits &&
      std::all_of(digits.begin(), digits.end(), [](char c) {
        return absl::ascii_isxdigit(static_cast<unsigned char>(c));
      });
  return good ? digits : "";
}

bool TakeLine(absl::string_view line, DenyRules* rules) {
  const std::pair<absl::string_view, absl::string_view> words =
      absl::StrSplit(line, absl::MaxSplits(absl::ByAnyChar(" \t"), 1));
  const std::string value(absl::StripAsciiWhitespace(words.second));
  if (value.empty()) return false;
  if (words.first == "identity") {
    rules->identities.insert(value);
    return true;
  }
  if (words.first == "san") {
    const size_t star = value.find('*');
    if (star != std::string::npos && star + 1 != value.size()) return false;
    rules->sans.push_back(value);
    return true;
  }
  const std::string digits = Fingerprint(value);
  if (words.first != "certificate" || digits.empty()) return false;
  rules->certificates.insert(digits);
  return true;
}

// Of a file that was read, or could not be.
absl::StatusOr<DenyRules> RulesOf(const absl::StatusOr<std::string>& text) {
  if (!text.ok()) return text.status();
  return ParseDenyRules(*text);
}

}  // namespace

absl::StatusOr<DenyRules> ParseDenyRules(absl::string_view text) {
  DenyRules rules;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    if (!TakeLine(line, &rules)) return LineError(number);
  }
  return rules;
}

DenyFile::DenyFile(std::string path, const Clock* clock, TokenFile::Reader read,
                   std::shared_ptr<LimitedCalls> calls)
    : path_(std::move(path)),
      clock_(clock),
      read_(std::move(read)),
      calls_(std::move(calls)) {}

absl::StatusOr<std::unique_ptr<DenyFile>> DenyFile::Open(
    const std::string& path, const Clock* clock, const TokenFile::Reader& read,
    std::shared_ptr<LimitedCalls> calls) {
  if (calls == nullptr) calls = std::make_shared<LimitedCalls>(LookLimits());
  auto file = absl::WrapUnique(new DenyFile(
      path, clock, read == nullptr ? TokenFile::SystemReader() : read,
      std::move(calls)));
  absl::StatusOr<std::string> text = file->Read(kAtStart);
  absl::StatusOr<DenyRules> rules = RulesOf(text);
  if (!rules.ok()) {
    return absl::Status(
        rules.status().code(),
        absl::StrCat("\"", path, "\": ", rules.status().message()));
  }
  MutexLock lock(&file->mutex_);
  file->text_ = *std::move(text);
  file->rules_ = std::make_shared<const DenyRules>(*std::move(rules));
  file->looked_at_ = clock->Now();
  return file;
}

absl::StatusOr<std::string> DenyFile::Read(LookKind kind) {
  using Text = absl::StatusOr<std::string>;
  return calls_->Get<Text>(kind, "read it",
                           [read = read_, path = path_] { return read(path); });
}

DenyFile::Rules DenyFile::rules() {
  const absl::Time now = clock_->Now();
  {
    MutexLock lock(&mutex_);
    if (looking_ || now - looked_at_ < TokenFile::kLook) return rules_;
    looking_ = true;
  }
  // Without the lock: a disk that hangs holds up one call, for a while, and not
  // all.
  absl::StatusOr<std::string> text = Read(kAgain);
  MutexLock lock(&mutex_);
  Take(std::move(text));
  looked_at_ = now;
  looking_ = false;
  return rules_;
}

void DenyFile::Take(absl::StatusOr<std::string> text) {
  const bool same = text.ok() && *text == text_;
  absl::StatusOr<DenyRules> rules =
      same ? absl::StatusOr<DenyRules>(DenyRules()) : RulesOf(text);
  const std::string error(rules.status().message());
  if (std::exchange(logged_, error) != error && !rules.ok()) {
    LogError("the deny list of before stays: \"", path_, "\": ", error);
  }
  if (same || !rules.ok()) return;
  text_ = *std::move(text);
  rules_ = std::make_shared<const DenyRules>(*std::move(rules));
  LogInfo("the deny list has changed: ", rules_->identities.size(),
          " identities, ", rules_->sans.size(), " names, ",
          rules_->certificates.size(), " certificates");
}

}  // namespace agg
