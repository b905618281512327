#include "server/round/shard_peer.h"

#include <memory>
#include <utility>

#include "absl/strings/cord.h"
#include "server/base/status_macros.h"

namespace agg {

namespace {

// A payload of the status goes wherever the status goes, and no text can be
// taken for it. It leaves no process: on the wire it is AttachReply.stopping.
constexpr char kMark[] = "agg/orderly_stop";

}  // namespace

absl::Status ShardPeer::SetManifest(uint64_t epoch, const Manifest& manifest) {
  Phase phase = PhaseOf(PhaseKind::kSetManifest, epoch);
  // Not owned: it outlives the call, and may be large.
  phase.manifest = std::shared_ptr<const Manifest>(&manifest, [](auto*) {});
  return RunPhase(phase).status();
}

absl::StatusOr<Manifest> ShardPeer::GetManifest(uint64_t epoch) {
  AGG_ASSIGN_OR_RETURN(const PhaseResult result,
                       RunPhase(PhaseOf(PhaseKind::kGetManifest, epoch)));
  if (result.job_manifest == nullptr) {
    return absl::FailedPreconditionError("no manifest is known here");
  }
  return *result.job_manifest;
}

absl::Status ShardPeer::ForgetManifest(uint64_t epoch) {
  return RunPhase(PhaseOf(PhaseKind::kForgetManifest, epoch)).status();
}

absl::Status ShardPeer::ReserveRow(uint64_t epoch, int32_t rank,
                                   uint64_t session) {
  Phase phase = PhaseOf(PhaseKind::kReserveRow, epoch);
  phase.session.rank = rank;
  phase.session.session = session;
  return RunPhase(phase).status();
}

absl::Status ShardPeer::SetSession(uint64_t epoch,
                                   const SessionChange& change) {
  Phase phase = PhaseOf(PhaseKind::kSetSession, epoch);
  phase.session = change;
  return RunPhase(phase).status();
}

absl::Status ShardPeer::SetFacts(uint64_t epoch, const JobFacts& facts) {
  Phase phase = PhaseOf(PhaseKind::kSetFacts, epoch);
  phase.facts = facts;
  return RunPhase(phase).status();
}

absl::Status OrderlyStop(absl::string_view message) {
  absl::Status status = absl::UnavailableError(message);
  status.SetPayload(kMark, absl::Cord());
  return status;
}

bool IsOrderlyStop(const absl::Status& reason) {
  return reason.GetPayload(kMark).has_value();
}

}  // namespace agg
