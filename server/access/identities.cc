#include "server/access/identities.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"

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

std::optional<std::string> BearerToken(absl::string_view authorization) {
  constexpr absl::string_view kScheme = "bearer ";
  if (!absl::StartsWithIgnoreCase(authorization, kScheme)) return std::nullopt;
  return std::string(
      absl::StripAsciiWhitespace(authorization.substr(kScheme.size())));
}

std::optional<std::string> HttpToken(absl::string_view authorization) {
  constexpr absl::string_view kScheme = "basic ";
  if (!absl::StartsWithIgnoreCase(authorization, kScheme)) {
    return BearerToken(authorization);
  }
  std::string pair;
  if (!absl::Base64Unescape(
          absl::StripAsciiWhitespace(authorization.substr(kScheme.size())),
          &pair)) {
    return std::nullopt;
  }
  const size_t colon = pair.find(':');
  if (colon == std::string::npos) return std::nullopt;
  return pair.substr(colon + 1);
}

bool SanMatches(absl::string_view pattern, absl::string_view san) {
  if (absl::ConsumeSuffix(&pattern, "*")) {
    return absl::StartsWith(san, pattern);
  }
  return pattern == san;
}

absl::StatusOr<std::unique_ptr<Identities>> Identities::Make(
    const AccessOptions& options, const Clock* clock,
    const TokenFile::Reader& read) {
  auto identities = absl::WrapUnique(new Identities());
  if (!options.denied_file.empty()) {
    absl::StatusOr<std::unique_ptr<DenyFile>> denied =
        DenyFile::Open(options.denied_file, clock, read, identities->calls_);
    if (!denied.ok()) {
      return absl::Status(
          denied.status().code(),
          absl::StrCat("security.denied_file is ", denied.status().message()));
    }
    identities->denied_ = *std::move(denied);
  }
  for (size_t i = 0; i < options.identities.size(); ++i) {
    AGG_RETURN_IF_ERROR(
        identities->Add(absl::StrCat("security.identities[", i, "].token_file"),
                        options.identities[i], clock, read));
  }
  if (options.shard_token_file.empty()) return identities;
  AGG_RETURN_IF_ERROR(identities->Add(
      "security.shard_token_file",
      {kShardIdentity, {}, options.shard_token_file, {Role::kShard}}, clock,
      read));
  identities->own_token_ = identities->entries_.back().tokens.get();
  return identities;
}

absl::Status Identities::Add(const std::string& field, IdentityOptions options,
                             const Clock* clock,
                             const TokenFile::Reader& read) {
  Entry entry;
  entry.field = field;
  if (options.token_file.empty()) {
    needs_certificates_ |=
        options.roles.Meets({Role::kWorker, Role::kObserver});
  } else {
    absl::StatusOr<std::unique_ptr<TokenFile>> tokens =
        TokenFile::Open(options.token_file, clock, read, calls_);
    if (!tokens.ok()) {
      return absl::Status(
          tokens.status().code(),
          absl::StrCat(field, " is ", tokens.status().message(),
                       "; allowed: a file with a token a line"));
    }
    entry.tokens = *std::move(tokens);
    AGG_RETURN_IF_ERROR(CheckShared(entry));
  }
  entry.options = std::move(options);
  entries_.push_back(std::move(entry));
  return absl::OkStatus();
}

// Who would its holder be?
absl::Status Identities::CheckShared(const Entry& entry) const {
  const TokenFile::Tokens tokens = entry.tokens->tokens();
  for (const std::string& token : *tokens) {
    const Entry* const other = FindToken(token);
    if (other == nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        entry.field, " is \"", entry.tokens->path(),
        "\", which has a token of ", other->field, " \"", other->tokens->path(),
        "\"; allowed: tokens of one identity alone"));
  }
  return absl::OkStatus();
}

// All tokens of all identities are compared, whichever is the one.
const Identities::Entry* Identities::FindToken(absl::string_view token) const {
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    if (entry.tokens == nullptr) continue;
    const TokenFile::Tokens tokens = entry.tokens->tokens();
    for (const std::string& valid : *tokens) {
      if (SameToken(token, valid) && found == nullptr) found = &entry;
    }
  }
  return found;
}

const Identities::Entry* Identities::FindSan(
    const std::vector<std::string>& sans) const {
  for (const Entry& entry : entries_) {
    for (const std::string& pattern : entry.options.sans) {
      for (const std::string& san : sans) {
        if (SanMatches(pattern, san)) return &entry;
      }
    }
  }
  return nullptr;
}

// Also of a list that names no certificate yet: a call that goes on is asked
// once more when it does, by what was kept when it began.
bool Identities::wants_fingerprints() const { return denied_ != nullptr; }

bool Identities::Denied(const Entry& entry,
                        const Credentials& credentials) const {
  if (denied_ == nullptr) return false;
  const DenyFile::Rules rules = denied_->rules();
  if (rules->identities.count(entry.options.name) != 0) return true;
  // Also where a token says who it is: the certificate is a stolen one.
  if (rules->certificates.count(credentials.fingerprint) != 0) return true;
  for (const std::string& pattern : rules->sans) {
    for (const std::string& san : credentials.sans) {
      if (SanMatches(pattern, san)) return true;
    }
  }
  return false;
}

uint64_t Identities::Look() {
  std::vector<std::shared_ptr<const void>> now;
  for (const Entry& entry : entries_) {
    if (entry.tokens != nullptr) now.push_back(entry.tokens->tokens());
  }
  if (denied_ != nullptr) now.push_back(denied_->rules());
  MutexLock lock(&mutex_);
  if (now != seen_) {
    seen_ = std::move(now);
    ++number_;
  }
  return number_;
}

absl::StatusOr<Caller> Identities::Resolve(const Credentials& credentials,
                                           DenialReason* reason) {
  const Entry* found = nullptr;
  if (credentials.token.has_value()) {
    if (credentials.token->size() <= kMaxTokenBytes) {
      found = FindToken(*credentials.token);
    }
    if (found == nullptr) {
      *reason = DenialReason::kBadToken;
      return absl::UnauthenticatedError("the token is not valid here");
    }
  } else if (credentials.sans.empty()) {
    *reason = DenialReason::kNoCredential;
    return absl::UnauthenticatedError(
        "this job wants to know who calls: a token (token_file, "
        "AGG_TOKEN_FILE) or a client certificate");
  } else {
    found = FindSan(credentials.sans);
    if (found == nullptr) {
      *reason = DenialReason::kUnknownPeer;
      return absl::UnauthenticatedError(
          "the certificate's names are those of no identity of this job");
    }
  }
  if (Denied(*found, credentials)) {
    *reason = DenialReason::kDenied;
    return absl::UnauthenticatedError(
        "who calls is on this job's deny list (security.denied_file)");
  }
  Caller caller;
  caller.identity = found->options.name;
  caller.roles = found->options.roles;
  caller.known = true;
  return caller;
}

bool Identities::has_reader() const {
  return std::any_of(entries_.begin(), entries_.end(), [](const Entry& entry) {
    return entry.tokens != nullptr &&
           entry.options.roles.Meets(*RolesOf(kHttpMetrics));
  });
}

}  // namespace agg
