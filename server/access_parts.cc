#include "server/access_parts.h"

#include <cstdint>
#include <map>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "server/access/access_rules.h"
#include "server/access/audit_trail.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/base/token_file.h"

namespace agg {

absl::StatusOr<std::unique_ptr<AccessParts>> AccessParts::Make(
    const AccessOptions& options) {
  auto parts = absl::WrapUnique(new AccessParts());
  parts->options_ = options;
  AuditTrail::Write write;
  if (!options.audit.path.empty()) {
    absl::StatusOr<std::unique_ptr<AuditFile>> file =
        AuditFile::Open(options.audit);
    if (!file.ok()) return file.status();
    parts->file_ = *std::move(file);
    write = [file = parts->file_.get()](const std::string& line) {
      file->Write(line);
    };
  }
  parts->audit_ = std::make_unique<AuditTrail>(Clock::Real(), write);
  if (options.on()) {
    AGG_ASSIGN_OR_RETURN(std::unique_ptr<Identities> identities,
                         Identities::Make(options, Clock::Real()));
    parts->identities_ = std::move(identities);
    parts->denials_.set_num_identities(options.identities.size());
  }
  std::map<std::string, CallLimits> limits;
  for (const IdentityOptions& identity : options.identities) {
    limits.emplace(identity.name, identity.limits);
  }
  parts->limiter_ =
      std::make_unique<CallLimiter>(options.limits, limits, Clock::Real());
  parts->gate_ = std::make_unique<CallerGate>(CallerGate::Parts{
      parts->identities_.get(), parts->audit_.get(), &parts->denials_,
      parts->limiter_.get(), &parts->open_});
  parts->LogAccess();
  return parts;
}

void AccessParts::LogAccess() const {
  if (options_.on()) {
    LogInfo("identities: ", options_.identities.size(),
            "; a caller that is none of them may do nothing");
  } else {
    LogInfo(
        "no security.identities: whoever may connect to this port may do "
        "everything");
  }
}

std::function<std::string()> AccessParts::own_token() const {
  TokenFile* const file =
      identities_ == nullptr ? nullptr : identities_->own_token();
  if (file == nullptr) return nullptr;
  return [file] { return file->first(); };
}

bool AccessParts::offers_regions() const {
  return identities_ == nullptr || !identities_->needs_certificates();
}

absl::StatusOr<RegionGrant> AccessParts::GrantRegions(
    ShardEngine* engine, const RegionQuery& query) const {
  if (gate_->asks()) {
    // A session's row can be written.
    const char* const method =
        query.session == 0 ? "agg.v1.Shard/Pull" : "agg.v1.Shard/Push";
    Credentials credentials;
    if (!query.token.empty()) credentials.token = query.token;
    AGG_ASSIGN_OR_RETURN(
        const Caller caller,
        gate_->Admit(credentials, "unix:shared memory", method));
    if (query.session != 0) {
      const uint64_t epoch =
          query.epoch == 0 ? engine->Status().epoch : query.epoch;
      AGG_RETURN_IF_ERROR(
          gate_->CheckSession(caller, engine->OwnerOf(epoch, query.session),
                              method, query.session));
    }
  }
  absl::StatusOr<RegionGrant> grant = engine->GrantRegions(query);
  // Unlike a version in shared memory, they can be written by who maps them.
  if (grant.ok() && gate_->asks()) grant->parameters_device.clear();
  return grant;
}

absl::Status AccessParts::AdmitReader(const std::string& authorization,
                                      const std::string& from,
                                      absl::string_view what) const {
  Credentials credentials;
  credentials.token = HttpToken(authorization);
  return gate_->Admit(credentials, from, what).status();
}

void AccessParts::NoteHost(const absl::Status& status,
                           const std::string& from) const {
  Caller nobody;
  nobody.from = from;
  gate_->NoteDenial(nobody, DenialReason::kHost, kHttpPages, status);
}

void AccessParts::NoteLost(const Departure& departure,
                           const std::string& what) const {
  AuditEvent event;
  event.action = "lost";
  event.rank = departure.rank;
  event.session = departure.session;
  event.detail = absl::StrCat(departure.client, ": ", what);
  Caller whose;
  whose.identity = departure.identity;
  gate_->NoteDone(whose, std::move(event), absl::OkStatus());
}

void AccessParts::NoteStop(const std::string& reason) const {
  AuditEvent event;
  event.action = "drain";
  event.detail = reason;
  gate_->NoteDone(Caller(), std::move(event), absl::OkStatus());
}

void AccessParts::NoteRestored(const VersionId& id) const {
  AuditEvent event;
  event.action = "restore";
  event.detail = absl::StrCat(id.made, "-", id.version);
  gate_->NoteDone(Caller(), std::move(event), absl::OkStatus());
}

}  // namespace agg
