// Who may do what in this process, and what is kept of what they did: the parts
// of server/access, wired together.
#ifndef AGG_SERVER_ACCESS_PARTS_H_
#define AGG_SERVER_ACCESS_PARTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/access/audit_trail.h"
#include "server/access/call_limits.h"
#include "server/access/caller_gate.h"
#include "server/access/identities.h"
#include "server/base/call_counts.h"
#include "server/coordinator/coordinator_types.h"
#include "server/round/recovery.h"
#include "server/shard/region_grant.h"
#include "server/shard/shard_engine.h"

namespace agg {

// Thread-safe.
class AccessParts {
 public:
  // Opens the files of tokens and of the audit; INVALID_ARGUMENT or UNAVAILABLE
  // names the field.
  static absl::StatusOr<std::unique_ptr<AccessParts>> Make(
      const AccessOptions& options);

  const CallerGate* gate() const { return gate_.get(); }
  AuditTrail* audit() const { return audit_.get(); }
  const DenialCounts* denials() const { return &denials_; }
  // Number of lines that are missing from the audit's file; 0 without one.
  uint64_t audit_errors() const {
    return file_ == nullptr ? 0 : file_->num_errors();
  }
  // What this process presents to other shards; null: nothing.
  std::function<std::string()> own_token() const;
  // Whether callers on the socket of shared memory, which has no TLS, can say
  // who they are.
  bool offers_regions() const;
  // ShardEngine::GrantRegions for one that may have them (P45).
  absl::StatusOr<RegionGrant> GrantRegions(ShardEngine* engine,
                                           const RegionQuery& query) const;
  // Whether who sends that Authorization header may read `what` of the HTTP
  // port (kHttpPages, kHttpMetrics): UNAUTHENTICATED or PERMISSION_DENIED,
  // counted and audited.
  absl::Status AdmitReader(const std::string& authorization,
                           const std::string& from,
                           absl::string_view what) const;
  // The port was asked for by a name that it does not have.
  // Ends what goes on of those who may not any more. To be called each second.
  void Recheck() const { gate_->Recheck(); }
  void NoteHost(const absl::Status& status, const std::string& from) const;
  // Whether that can be anybody.
  bool has_reader() const {
    return identities_ == nullptr || identities_->has_reader();
  }
  // A worker is lost; what happened, in words.
  void NoteLost(const Departure& departure, const std::string& what) const;
  // This process was told to end by somebody who made no call.
  void NoteStop(const std::string& reason) const;
  // The job goes on from that version of a checkpoint.
  void NoteRestored(const VersionId& id) const;

 private:
  AccessParts() = default;
  void LogAccess() const;

  AccessOptions options_;
  DenialCounts denials_;
  std::unique_ptr<AuditFile> file_;         // null: none
  std::unique_ptr<AuditTrail> audit_;       // writes to it
  std::unique_ptr<Identities> identities_;  // null: nobody is asked
  std::unique_ptr<CallLimiter> limiter_;
  OpenCalls open_;
  std::unique_ptr<CallerGate> gate_;
};

}  // namespace agg

#endif  // AGG_SERVER_ACCESS_PARTS_H_
