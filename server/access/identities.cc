#include "server/access/identities.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/status_macros.h"

namespace agg {

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
