// Lists are bounded on both sides: what is sent too much would make a shard
// that nobody can attach, what is received too much is refused.
#include "server/rpc/inventory_conversion.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/wave_plan.h"
#include "server/base/field_error.h"
#include "server/base/local_socket.h"
#include "server/base/utf8.h"
#include "server/coordinator/call_validation.h"
#include "server/rpc/offer_conversion.h"
#include "server/rpc/phase_limits.h"

namespace agg {
namespace {

// A shard holds at most two copies: of its own part and of its neighbour's.
constexpr int kMaxCopies = 2;
// Limit of a path, and of an error that names it.
constexpr size_t kMaxFolderBytes = 1024;

absl::Status CheckCount(absl::string_view field, int count, int most) {
  return CheckField(count <= most, absl::StrCat("attach_reply.", field), count,
                    absl::StrCat("at most ", most, " entries"));
}

absl::Status CheckPart(absl::string_view field, uint32_t part,
                       int64_t num_shards) {
  if (part < num_shards) return absl::OkStatus();
  return FieldError(absl::StrCat("attach_reply.", field), absl::StrCat(part),
                    absl::StrCat("0 to ", num_shards - 1));
}

absl::Status AddCopies(const v1::AttachReply& reply, int num_shards,
                       ShardInventory* inventory) {
  absl::Status status = CheckCount("copies", reply.copies_size(), kMaxCopies);
  if (!status.ok()) return status;
  for (const v1::CopyState& copy : reply.copies()) {
    status = CheckPart("copies.part", copy.part(), num_shards);
    if (!status.ok()) return status;
    CopyState state;
    state.part = static_cast<int32_t>(copy.part());
    state.id = {copy.made(), copy.version()};
    state.prepared_by = copy.prepared_by();
    state.whole = copy.whole();
    inventory->copies.push_back(state);
  }
  return absl::OkStatus();
}

absl::Status AddMembers(const v1::AttachReply& reply,
                        ShardInventory* inventory) {
  absl::Status status =
      CheckCount("members", reply.members_size(), kMaxPhaseWorkers);
  if (!status.ok()) return status;
  for (const v1::MemberState& member : reply.members()) {
    if (member.rank() < 0 || member.rank() >= kMaxPhaseWorkers) {
      return FieldError("attach_reply.members.rank",
                        absl::StrCat(member.rank()),
                        absl::StrCat("0 to ", kMaxPhaseWorkers - 1));
    }
    if (member.session() == 0) {
      return FieldError("attach_reply.members.session", "0", "at least 1");
    }
    status = ValidateText("attach_reply.members.client", member.client());
    status.Update(
        ValidateText("attach_reply.members.identity", member.identity()));
    if (!status.ok()) return status;
    inventory->members.push_back({member.rank(), member.session(),
                                  member.first_round(), member.client(),
                                  member.identity()});
  }
  return absl::OkStatus();
}

// The checkpoints may be of another number of shards than the job has now.
absl::Status AddCheckpoints(
    const google::protobuf::RepeatedPtrField<v1::CheckpointState>& checkpoints,
    const std::string& folder, const std::string& error,
    CheckpointListing* listing) {
  absl::Status status =
      CheckCount("checkpoints", checkpoints.size(), kMaxReportedCheckpoints);
  if (!status.ok()) return status;
  // They are for people, and a path may be long.
  // A character that is cut would make the status of the job no message.
  listing->folder = ValidUtf8(folder.substr(0, kMaxFolderBytes));
  listing->error = ValidUtf8(error.substr(0, kMaxFolderBytes));
  for (const v1::CheckpointState& checkpoint : checkpoints) {
    if (checkpoint.num_shards() > kMaxPhaseShards) {
      return FieldError("attach_reply.checkpoints.num_shards",
                        absl::StrCat(checkpoint.num_shards()),
                        absl::StrCat("0 to ", kMaxPhaseShards));
    }
    CheckpointState state;
    state.id = {checkpoint.made(), checkpoint.version()};
    state.num_shards = static_cast<int>(checkpoint.num_shards());
    state.manifest = checkpoint.manifest();
    for (const uint32_t part : checkpoint.parts()) {
      status = CheckPart("checkpoints.parts", part, state.num_shards);
      if (!status.ok()) return status;
      if (!state.parts.empty() &&
          static_cast<int>(part) <= state.parts.back()) {
        return FieldError(
            "attach_reply.checkpoints.parts", absl::StrCat(part),
            absl::StrCat("above ", state.parts.back(), ", the one before"));
      }
      state.parts.push_back(static_cast<int>(part));
    }
    listing->states.push_back(std::move(state));
  }
  return absl::OkStatus();
}

// The newest of them.
void ReportCheckpoints(
    std::vector<CheckpointState> checkpoints,
    google::protobuf::RepeatedPtrField<v1::CheckpointState>* reported) {
  std::sort(checkpoints.begin(), checkpoints.end(),
            [](const CheckpointState& a, const CheckpointState& b) {
              return b.id < a.id;
            });
  if (checkpoints.size() > kMaxReportedCheckpoints) {
    checkpoints.resize(kMaxReportedCheckpoints);
  }
  for (const CheckpointState& checkpoint : checkpoints) {
    v1::CheckpointState* out = reported->Add();
    out->set_made(checkpoint.id.made);
    out->set_version(checkpoint.id.version);
    out->set_num_shards(static_cast<uint32_t>(checkpoint.num_shards));
    out->mutable_parts()->Add(checkpoint.parts.begin(), checkpoint.parts.end());
    out->set_manifest(checkpoint.manifest);
  }
}

// A report that is held back is told within a second.
constexpr uint64_t kMaxMicrosecondsAgo = 60'000'000;

}  // namespace

v1::JobFacts ToProto(const JobFacts& facts) {
  v1::JobFacts result;
  result.set_epoch(facts.epoch);
  result.set_number(facts.number);
  result.set_text(facts.text);
  return result;
}

absl::StatusOr<JobFacts> FromProto(const v1::JobFacts& facts) {
  const absl::Status status =
      ValidateText("facts.text", facts.text(), kMaxFactsBytes);
  if (!status.ok()) return status;
  JobFacts result;
  result.epoch = facts.epoch();
  result.number = facts.number();
  result.text = facts.text();
  return result;
}

void AddInventory(const ShardInventory& inventory, v1::AttachReply* reply) {
  reply->set_member_epoch(inventory.member_epoch);
  reply->set_has_manifest(inventory.has_manifest);
  for (const CopyState& copy : inventory.copies) {
    v1::CopyState* out = reply->add_copies();
    out->set_part(static_cast<uint32_t>(copy.part));
    out->set_version(copy.id.version);
    out->set_made(copy.id.made);
    out->set_prepared_by(copy.prepared_by);
    out->set_whole(copy.whole);
  }
  for (const MemberState& member : inventory.members) {
    v1::MemberState* out = reply->add_members();
    out->set_rank(member.rank);
    out->set_session(member.session);
    out->set_first_round(member.first_round);
    out->set_client(member.client);
    out->set_identity(member.identity);
  }
  reply->mutable_ended_sessions()->Add(inventory.ended_sessions.begin(),
                                       inventory.ended_sessions.end());
  reply->set_highest_session(inventory.highest_session);
  *reply->mutable_facts() = ToProto(inventory.facts);

  ReportCheckpoints(inventory.checkpoints.states, reply->mutable_checkpoints());
  reply->set_checkpoint_folder(inventory.checkpoints.folder);
  reply->set_checkpoint_error(inventory.checkpoints.error);
  reply->set_begun_anew(inventory.checkpoints.begun_anew);
  ReportCheckpoints(inventory.other_checkpoints.states,
                    reply->mutable_other_checkpoints());
  reply->set_other_checkpoint_folder(inventory.other_checkpoints.folder);
  reply->set_other_checkpoint_error(inventory.other_checkpoints.error);
}

absl::StatusOr<ShardInventory> FromProto(const v1::AttachReply& reply,
                                         int num_shards) {
  ShardInventory inventory;
  inventory.life = reply.life();
  // It goes to the workers as it is.
  if (IsLocalSocketName(reply.local_socket())) {
    inventory.local_socket = reply.local_socket();
  }
  if (IsLocalSocketName(reply.region_socket())) {
    inventory.region_socket = reply.region_socket();
  }
  inventory.member_epoch = reply.member_epoch();
  inventory.has_manifest = reply.has_manifest();
  inventory.highest_session = reply.highest_session();
  absl::Status status = AddCopies(reply, num_shards, &inventory);
  status.Update(AddMembers(reply, &inventory));
  status.Update(AddCheckpoints(reply.checkpoints(), reply.checkpoint_folder(),
                               reply.checkpoint_error(),
                               &inventory.checkpoints));
  inventory.checkpoints.begun_anew = reply.begun_anew();
  status.Update(AddCheckpoints(
      reply.other_checkpoints(), reply.other_checkpoint_folder(),
      reply.other_checkpoint_error(), &inventory.other_checkpoints));
  status.Update(CheckCount("ended_sessions", reply.ended_sessions_size(),
                           kMaxEndedSessions));
  absl::StatusOr<JobFacts> facts = FromProto(reply.facts());
  status.Update(facts.status());
  if (!status.ok()) return status;
  inventory.ended_sessions.assign(reply.ended_sessions().begin(),
                                  reply.ended_sessions().end());
  inventory.facts = *std::move(facts);
  return inventory;
}

v1::AttachReply ReportOf(const std::vector<CompleteRow>& rows,
                         const CloseOffer* offer) {
  v1::AttachReply reply;
  if (offer != nullptr) *reply.mutable_offer() = ToProto(*offer);
  for (const CompleteRow& row : rows) {
    v1::CompleteRow* out = reply.add_complete_rows();
    out->set_waves(static_cast<uint32_t>(row.waves));
    out->set_session(row.session);
    out->set_round(row.round);
    out->set_attempt(row.attempt);
    out->set_microseconds_ago(static_cast<uint64_t>(
        std::max<int64_t>(absl::ToInt64Microseconds(row.ago), 0)));
  }
  return reply;
}

std::vector<CompleteRow> CompleteRowsOf(const v1::AttachReply& reply) {
  std::vector<CompleteRow> rows;
  for (const v1::CompleteRow& row : reply.complete_rows()) {
    // What is no number of waves is none of them.
    const uint32_t waves = row.waves() <= kMaxWaves ? row.waves() : 0;
    rows.push_back({row.session(), row.round(), row.attempt(),
                    static_cast<int32_t>(waves),
                    absl::Microseconds(std::min<uint64_t>(
                        row.microseconds_ago(), kMaxMicrosecondsAgo))});
  }
  return rows;
}

}  // namespace agg
