#include "server/access_parts.h"

#include <cstdint>
#include <map>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "server/access/access_rules.h"
#include "server/access/audit_event.h"
#include "server/base/clock.h"
#include "server/base/log.h"
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
    absl::StatusOr<std::unique_ptr<Identities>> identities =
        Identities::Make(options, Clock::Real());
    if (!identities.ok()) return identities.status();
    parts->identities_ = *std::move(identities);
    parts->denials_.set_num_identities(options.identities.size());
  }
  std::map<std::string, CallLimits> limits;
  for (const IdentityOptions& identity : options.identities) {
    limits.emplace(identity.name, identity.limits);
  }
  parts->limiter_ =
      std::make_unique<CallLimiter>(options.limits, limits, Clock::Real());
  parts->gate_ = std::make_unique<CallerGate>(
      CallerGate::Parts{parts->identities_.get(), parts->audit_.get(),
                        &parts->denials_, parts->limiter_.get()});
  parts->LogAccess();
  return parts;
}

void AccessParts::LogAccess() const {
  if (options_.on()) {
    LogInfo("identities: ", options_.identities.size(),
            "; a caller that is none of them may do nothing");
  } else {
    LogInfo(
        "no security.identities: whoever reaches this port may do everything");
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
    constexpr char kPull[] = "agg.v1.Shard/Pull";
    Credentials credentials;
    if (!query.token.empty()) credentials.token = query.token;
    const absl::StatusOr<Caller> caller =
        gate_->Admit(credentials, "unix:shared memory", kPull);
    if (!caller.ok()) return caller.status();
    if (query.session != 0) {
      const uint64_t epoch =
          query.epoch == 0 ? engine->Status().epoch : query.epoch;
      const absl::Status status = gate_->CheckSession(
          *caller, engine->OwnerOf(epoch, query.session), kPull, query.session);
      if (!status.ok()) return status;
    }
  }
  return engine->GrantRegions(query);
}

void AccessParts::NoteRestored(const VersionId& id) const {
  AuditEvent event;
  event.action = "restore";
  event.detail = absl::StrCat(id.made, "-", id.version);
  gate_->NoteDone(Caller(), std::move(event), absl::OkStatus());
}

}  // namespace agg
