// A phase's lists of numbers grow with tensors times workers, and so do a job's
// record and a checkpoint's text: only they are cut into several messages; the
// rest travels with the first or last one.
#include "server/rpc/phase_conversion.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/wave_plan.h"
#include "server/base/field_error.h"
#include "server/base/local_socket.h"
#include "server/base/status_macros.h"
#include "server/base/utf8.h"
#include "server/coordinator/coordinator_types.h"
#include "server/rpc/phase_limits.h"

namespace agg {

// The first message has all of a phase but the ends of its lists and texts;
// later ones append to those.

namespace {

void AppendLists(const v1::StepPlan& step, StepPlan* out) {
  out->coefficients.insert(out->coefficients.end(), step.coefficients().begin(),
                           step.coefficients().end());
  out->tensors.insert(out->tensors.end(), step.tensors().begin(),
                      step.tensors().end());
  out->trust.insert(out->trust.end(), step.trust().begin(), step.trust().end());
}

StepPlan ToStep(const v1::StepPlan& step) {
  StepPlan result;
  result.per_tensor = step.per_tensor();
  result.excluded_ranks.assign(step.excluded_ranks().begin(),
                               step.excluded_ranks().end());
  result.learning_rate = step.learning_rate();
  result.step = static_cast<int64_t>(step.step());
  AppendLists(step, &result);
  return result;
}

absl::Status CheckStep(absl::string_view name, const StepPlan& step) {
  // A varint of one byte becomes a number of four.
  if (static_cast<int64_t>(step.tensors.size()) <= kMaxPhaseTensors &&
      static_cast<int64_t>(step.trust.size()) <= kMaxPhaseTensors &&
      static_cast<int64_t>(step.excluded_ranks.size()) <= kMaxPhaseWorkers &&
      static_cast<int64_t>(step.coefficients.size()) <=
          kMaxPhaseTensors * kMaxPhaseWorkers) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "a ", name, " has ", step.tensors.size(), " tensors, ", step.trust.size(),
      " trust ratios, ", step.excluded_ranks.size(), " excluded ranks and ",
      step.coefficients.size(), " coefficients; allowed: of ", kMaxPhaseTensors,
      " tensors and ", kMaxPhaseWorkers, " workers at most"));
}

PublishPlan ToPlan(const v1::PhaseRequest::Publish& publish) {
  return {publish.version(), publish.unchanged(), publish.seed(),
          publish.seed_session(), publish.seed_attempt()};
}

// Phases with one field or none.
bool BeginSmall(const v1::PhaseRequest& request, Phase* phase) {
  switch (request.phase_case()) {
    case v1::PhaseRequest::kAbandon:
      phase->kind = PhaseKind::kAbandon;
      return true;
    case v1::PhaseRequest::kFetch:
      phase->kind = PhaseKind::kFetch;
      phase->id = FromProto(request.fetch());
      return true;
    case v1::PhaseRequest::kOpen:
      phase->kind = PhaseKind::kOpen;
      phase->id = FromProto(request.open());
      return true;
    case v1::PhaseRequest::kCapture:
      phase->kind = PhaseKind::kCapture;
      phase->id = FromProto(request.capture());
      return true;
    case v1::PhaseRequest::kCheckpointProgress:
      phase->kind = PhaseKind::kCheckpointProgress;
      return true;
    case v1::PhaseRequest::kReadManifest:
      phase->kind = PhaseKind::kReadManifest;
      phase->id = FromProto(request.read_manifest());
      return true;
    default:
      return false;
  }
}

void BeginUpdate(const v1::PhaseRequest& request, Phase* phase) {
  phase->kind = PhaseKind::kUpdate;
  phase->step = ToStep(request.update());
  phase->publish.unchanged = request.unchanged();
  phase->publish.version = request.publish_version();
  phase->publishes = request.publish_version() != 0;
  phase->replica_step = ToStep(request.replica_step());
}

// The phases of a round, and of the seed.
bool BeginRound(const v1::PhaseRequest& request, Phase* phase) {
  switch (request.phase_case()) {
    case v1::PhaseRequest::kClose:
      phase->kind = PhaseKind::kClose;
      phase->rows = FromProto(request.close().rows());
      return true;
    case v1::PhaseRequest::kCompensatedGram:
      phase->kind = PhaseKind::kCompensatedGram;
      phase->tensors.assign(request.compensated_gram().tensors().begin(),
                            request.compensated_gram().tensors().end());
      return true;
    case v1::PhaseRequest::kNorms:
      phase->kind = PhaseKind::kNorms;
      phase->step = ToStep(request.norms());
      return true;
    case v1::PhaseRequest::kUpdate:
      BeginUpdate(request, phase);
      return true;
    case v1::PhaseRequest::kPublish:
      phase->kind = PhaseKind::kPublish;
      phase->publish = ToPlan(request.publish());
      return true;
    case v1::PhaseRequest::kLoadSeed:
      phase->kind = PhaseKind::kLoadSeed;
      phase->publish.seed = true;
      phase->publish.seed_session = request.load_seed().seed_session();
      phase->publish.seed_attempt = request.load_seed().seed_attempt();
      return true;
    default:
      return false;
  }
}

absl::Status BeginRecover(const v1::PhaseRequest::Recover& recover,
                          Phase* phase) {
  phase->kind = PhaseKind::kRecover;
  AGG_ASSIGN_OR_RETURN(phase->recover, FromProto(recover));
  phase->checkpoint = recover.checkpoint();
  return absl::OkStatus();
}

absl::Status BeginSeal(const v1::PhaseRequest::Seal& seal, Phase* phase) {
  phase->kind = PhaseKind::kSeal;
  phase->checkpoint = seal.checkpoint();
  phase->keep = seal.keep();
  phase->line = seal.line();
  phase->id = FromProto(seal.discard());
  phase->begins_anew = seal.begins_anew();
  return CheckField(seal.keep() >= 1, "seal.keep", seal.keep(), "at least 1");
}

}  // namespace

absl::Status PhaseAssembly::Add(const v1::PhaseRequest& request) {
  num_bytes_ += static_cast<int64_t>(request.ByteSizeLong());
  if (num_bytes_ > kMaxPhaseBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the phase has more than ", kMaxPhaseBytes, " bytes"));
  }
  const absl::Status status = kind_ == v1::PhaseRequest::PHASE_NOT_SET
                                  ? Begin(request)
                                  : Append(request);
  return status.ok() ? CheckSize() : status;
}

absl::Status PhaseAssembly::Begin(const v1::PhaseRequest& request) {
  kind_ = request.phase_case();
  phase_.epoch = request.epoch();
  phase_.round = request.round();
  if (request.wave() > static_cast<uint32_t>(kMaxWaves)) {
    return FieldError("wave", absl::StrCat(request.wave()),
                      absl::StrCat("0 to ", kMaxWaves));
  }
  phase_.wave = static_cast<int32_t>(request.wave());
  record_ = request.record();
  phase_.rows = FromProto(request.offered_rows());
  if (BeginSmall(request, &phase_)) return absl::OkStatus();
  if (BeginRound(request, &phase_)) return absl::OkStatus();
  if (request.has_recover()) return BeginRecover(request.recover(), &phase_);
  if (request.has_seal()) return BeginSeal(request.seal(), &phase_);
  if (request.has_verify()) {
    phase_.kind = PhaseKind::kVerify;
    phase_.checkpoint = request.verify().checkpoint();
    return absl::OkStatus();
  }
  return FieldError("phase", "none",
                    "close, compensated_gram, norms, update, publish, abandon, "
                    "load_seed, recover, fetch, open, capture, "
                    "checkpoint_progress, seal, read_manifest, verify");
}

absl::Status PhaseAssembly::Append(const v1::PhaseRequest& request) {
  if (request.phase_case() != kind_ || request.epoch() != phase_.epoch ||
      request.round() != phase_.round) {
    return absl::InvalidArgumentError(
        absl::StrCat("a later message of a phase is of another one; allowed: ",
                     PhaseName(phase_.kind), " of epoch ", phase_.epoch,
                     " and round ", phase_.round, ", as the first message"));
  }
  record_.append(request.record());
  AppendLists(request.has_norms() ? request.norms() : request.update(),
              &phase_.step);
  AppendLists(request.replica_step(), &phase_.replica_step);
  phase_.checkpoint.append(request.recover().checkpoint());
  phase_.checkpoint.append(request.seal().checkpoint());
  phase_.checkpoint.append(request.verify().checkpoint());
  return absl::OkStatus();
}

absl::Status PhaseAssembly::CheckSize() const {
  if (phase_.rows.size() > kMaxPhaseWorkers) {
    return absl::ResourceExhaustedError(
        absl::StrCat(PhaseName(phase_.kind), " has ", phase_.rows.size(),
                     " rows; allowed: ", kMaxPhaseWorkers, " at most"));
  }
  if (static_cast<int64_t>(phase_.tensors.size()) > kMaxPhaseTensors) {
    return absl::ResourceExhaustedError(
        absl::StrCat("compensated_gram has ", phase_.tensors.size(),
                     " tensors; allowed: ", kMaxPhaseTensors, " at most"));
  }
  const absl::Status status = CheckStep("step", phase_.step);
  return status.ok() ? CheckStep("replica_step", phase_.replica_step) : status;
}

Phase PhaseAssembly::Take() {
  if (!record_.empty()) {
    phase_.record = std::make_shared<const std::string>(std::move(record_));
  }
  return std::move(phase_);
}

// Plain copies; what a message may hold is bounded by its size.

void AddRows(const std::vector<RoundRow>& rows, RoundRowField* out) {
  for (const RoundRow& row : rows) {
    v1::RoundRow* const added = out->Add();
    added->set_rank(row.rank);
    added->set_session(row.session);
    added->set_attempt(row.attempt);
  }
}

std::vector<RoundRow> FromProto(const RoundRowField& rows) {
  std::vector<RoundRow> result;
  for (const v1::RoundRow& row : rows) {
    result.push_back({row.rank(), row.session(), row.attempt()});
  }
  return result;
}

v1::CloseOffer ToProto(const CloseOffer& offer) {
  v1::CloseOffer message;
  message.set_round(offer.round);
  AddRows(offer.rows, message.mutable_rows());
  for (size_t i = 0; i < offer.result.grams.size(); ++i) {
    const SliceGram& gram = offer.result.grams[i];
    v1::SliceGram* const out = message.add_grams();
    out->set_slice(static_cast<uint32_t>(gram.slice));
    out->mutable_hi()->Add(gram.hi.begin(), gram.hi.end());
  }
  message.mutable_row_crc32c()->Add(offer.result.row_crc32c.begin(),
                                    offer.result.row_crc32c.end());
  message.set_seconds(offer.result.seconds);
  return message;
}

std::shared_ptr<const CloseOffer> FromProto(const v1::CloseOffer& message) {
  if (static_cast<int64_t>(message.rows_size()) > kMaxPhaseWorkers ||
      message.row_crc32c_size() != message.rows_size()) {
    return nullptr;
  }
  auto offer = std::make_shared<CloseOffer>();
  offer->round = message.round();
  offer->rows = FromProto(message.rows());
  for (const v1::SliceGram& gram : message.grams()) {
    offer->result.grams.push_back({static_cast<int32_t>(gram.slice()),
                                   {gram.hi().begin(), gram.hi().end()},
                                   {}});
  }
  offer->result.row_crc32c.assign(message.row_crc32c().begin(),
                                  message.row_crc32c().end());
  offer->result.seconds = message.seconds();
  return offer;
}

// Enums are spelled out both ways: a number from the network that nobody here
// knows must not become an action.

namespace {

using Recover = v1::PhaseRequest::Recover;
using WireProgress = v1::CheckpointProgress;

Recover::Action ToProto(CopyAction action) {
  switch (action) {
    case CopyAction::kVoid:
      return Recover::VOID;
    case CopyAction::kKeep:
      return Recover::KEEP;
    case CopyAction::kStep:
      return Recover::STEP;
    case CopyAction::kLoad:
      return Recover::LOAD;
  }
  return Recover::VOID;
}

// `may_load`: a replica is fetched instead.
absl::StatusOr<CopyAction> FromProto(Recover::Action action,
                                     absl::string_view field, bool may_load) {
  switch (action) {
    case Recover::VOID:
      return CopyAction::kVoid;
    case Recover::KEEP:
      return CopyAction::kKeep;
    case Recover::STEP:
      return CopyAction::kStep;
    case Recover::LOAD:
      if (may_load) return CopyAction::kLoad;
      break;
    default:
      break;
  }
  return FieldError(field, absl::StrCat(static_cast<int>(action)),
                    absl::StrCat("VOID (0), KEEP (1), STEP (2)",
                                 may_load ? ", LOAD (3)" : ""));
}

WireProgress::Stage ToProto(CheckpointProgress::Stage stage) {
  switch (stage) {
    case CheckpointProgress::Stage::kNone:
      return WireProgress::NONE;
    case CheckpointProgress::Stage::kWriting:
      return WireProgress::WRITING;
    case CheckpointProgress::Stage::kWritten:
      return WireProgress::WRITTEN;
    case CheckpointProgress::Stage::kFailed:
      return WireProgress::FAILED;
  }
  return WireProgress::NONE;
}

void Fail(const absl::Status& error, CheckpointProgress* progress) {
  progress->stage = CheckpointProgress::Stage::kFailed;
  progress->error = error;
}

}  // namespace

v1::PhaseRequest::Version ToProto(const VersionId& id) {
  v1::PhaseRequest::Version result;
  result.set_made(id.made);
  result.set_version(id.version);
  return result;
}

VersionId FromProto(const v1::PhaseRequest::Version& id) {
  return {id.made(), id.version()};
}

v1::PhaseRequest::Recover ToProto(const RecoverPlan& plan) {
  v1::PhaseRequest::Recover recover;
  *recover.mutable_target() = ToProto(plan.target);
  recover.set_unseeded(plan.unseeded);
  recover.set_home(ToProto(plan.home));
  recover.set_replica(ToProto(plan.replica));
  *recover.mutable_facts() = ToProto(plan.facts);
  return recover;
}

absl::StatusOr<RecoverPlan> FromProto(
    const v1::PhaseRequest::Recover& recover) {
  RecoverPlan plan;
  plan.target = FromProto(recover.target());
  plan.unseeded = recover.unseeded();
  FieldErrors errors;
  errors.Take(FromProto(recover.home(), "recover.home", /*may_load=*/true),
              &plan.home);
  errors.Take(
      FromProto(recover.replica(), "recover.replica", /*may_load=*/false),
      &plan.replica);
  errors.Take(FromProto(recover.facts()), &plan.facts);
  if (!errors.empty()) return errors.status();
  return plan;
}

v1::CheckpointProgress ToProto(const CheckpointProgress& progress) {
  v1::CheckpointProgress result;
  result.set_stage(ToProto(progress.stage));
  result.set_made(progress.id.made);
  result.set_version(progress.id.version);
  result.set_file(progress.part.file);
  result.set_bytes(progress.part.num_bytes);
  result.set_crc32c(progress.part.crc32c);
  result.set_code(static_cast<int>(progress.error.code()));
  result.set_message(std::string(progress.error.message()));
  result.set_num_skipped(progress.num_skipped);
  return result;
}

CheckpointProgress FromProto(const v1::CheckpointProgress& progress) {
  CheckpointProgress result;
  result.id = {progress.made(), progress.version()};
  result.num_skipped = progress.num_skipped();
  switch (progress.stage()) {
    case WireProgress::NONE:
      return result;
    case WireProgress::WRITING:
      result.stage = CheckpointProgress::Stage::kWriting;
      return result;
    case WireProgress::WRITTEN:
      result.stage = CheckpointProgress::Stage::kWritten;
      result.part = {progress.file(), progress.bytes(), progress.crc32c()};
      return result;
    case WireProgress::FAILED:
      // A failure without a code is a failure all the same.
      Fail(progress.code() > 0 && progress.code() <= 16
               ? absl::Status(static_cast<absl::StatusCode>(progress.code()),
                              progress.message())
               : absl::UnknownError(progress.message()),
           &result);
      return result;
    default:
      break;
  }
  Fail(FieldError("checkpoint.stage",
                  absl::StrCat(static_cast<int>(progress.stage())),
                  "NONE (0), WRITING (1), WRITTEN (2), FAILED (3)"),
       &result);
  return result;
}

// Lists are bounded on both sides: what is sent too much would make a shard
// that nobody can attach, what is received too much is refused.

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
  AGG_RETURN_IF_ERROR(ValidateText("facts.text", facts.text(), kMaxFactsBytes));
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

// Field by field, and nothing else: the service checks the texts.

v1::SetSessionRequest ToProto(uint64_t epoch, const SessionChange& change) {
  v1::SetSessionRequest request;
  request.set_epoch(epoch);
  request.set_session(change.session);
  request.set_rank(change.rank);
  request.set_replaces(change.replaces);
  request.set_keep_row(change.keep_row);
  request.set_remove(change.remove);
  request.set_seed_role(change.seed_role);
  request.set_evicted(change.evicted);
  request.set_reason(change.reason);
  request.set_finished(change.finished);
  request.set_first_round(change.first_round);
  request.set_client(change.client);
  request.set_identity(change.identity);
  return request;
}

SessionChange FromProto(const v1::SetSessionRequest& request) {
  SessionChange change;
  change.session = request.session();
  change.rank = request.rank();
  change.replaces = request.replaces();
  change.keep_row = request.keep_row();
  change.remove = request.remove();
  change.seed_role = request.seed_role();
  change.evicted = request.evicted();
  change.reason = request.reason();
  change.finished = request.finished();
  change.first_round = request.first_round();
  change.client = request.client();
  change.identity = request.identity();
  return change;
}

namespace {

// All but the lists that may be cut.
void SetScalars(const StepPlan& step, v1::StepPlan* out) {
  out->set_per_tensor(step.per_tensor);
  out->mutable_excluded_ranks()->Add(step.excluded_ranks.begin(),
                                     step.excluded_ranks.end());
  out->set_learning_rate(step.learning_rate);
  out->set_step(static_cast<uint64_t>(step.step));
}

// The next part of `values`, with at most *room numbers; *sent counts them, and
// *room what is left.
template <typename Value, typename Field>
void AppendPart(const std::vector<Value>& values, size_t* sent, size_t* room,
                Field* field) {
  const size_t count = std::min(values.size() - *sent, *room);
  field->Add(values.begin() + *sent, values.begin() + *sent + count);
  *sent += count;
  *room -= count;
}

// The next piece of a text, likewise; 8 bytes count as a number. Whether that
// is all of it.
bool AppendPiece(const std::string& text, size_t* sent, size_t* room,
                 std::string* field) {
  const size_t count = std::min(text.size() - *sent, 8 * *room);
  field->append(text, *sent, count);
  *sent += count;
  *room -= (count + 7) / 8;
  return *sent == text.size();
}

// At least the encoded size of one entry.
int64_t EncodedBytes(const SliceGram& gram) {
  return static_cast<int64_t>(gram.hi.size() + gram.lo.size()) * 8 + 32;
}
constexpr int64_t kNormsBytes = 32;

v1::PhaseRequest::Publish ToProto(const PublishPlan& plan) {
  v1::PhaseRequest::Publish result;
  result.set_version(plan.version);
  result.set_unchanged(plan.unchanged);
  result.set_seed(plan.seed);
  result.set_seed_session(plan.seed_session);
  result.set_seed_attempt(plan.seed_attempt);
  return result;
}

void SetUpdate(const Phase& phase, v1::PhaseRequest* request) {
  SetScalars(phase.step, request->mutable_update());
  SetScalars(phase.replica_step, request->mutable_replica_step());
  request->set_unchanged(phase.publish.unchanged);
  if (phase.publishes) request->set_publish_version(phase.publish.version);
}

v1::PhaseRequest::Seal SealOf(const Phase& phase) {
  v1::PhaseRequest::Seal seal;
  seal.set_keep(phase.keep);
  seal.set_line(phase.line);
  seal.set_begins_anew(phase.begins_anew);
  if (phase.checkpoint.empty() && !phase.begins_anew) {
    *seal.mutable_discard() = ToProto(phase.id);
  }
  return seal;
}

// The phases of a round, and of the seed.
void SetRound(const Phase& phase, v1::PhaseRequest* request) {
  switch (phase.kind) {
    case PhaseKind::kClose:
      AddRows(phase.rows, request->mutable_close()->mutable_rows());
      break;
    case PhaseKind::kCompensatedGram:
      request->mutable_compensated_gram()->mutable_tensors()->Add(
          phase.tensors.begin(), phase.tensors.end());
      break;
    case PhaseKind::kNorms:
      SetScalars(phase.step, request->mutable_norms());
      break;
    case PhaseKind::kUpdate:
      SetUpdate(phase, request);
      break;
    case PhaseKind::kPublish:
      *request->mutable_publish() = ToProto(phase.publish);
      break;
    case PhaseKind::kAbandon:
      request->mutable_abandon();
      break;
    case PhaseKind::kLoadSeed:
      request->mutable_load_seed()->set_seed_session(
          phase.publish.seed_session);
      request->mutable_load_seed()->set_seed_attempt(
          phase.publish.seed_attempt);
      break;
    default:
      break;
  }
}

// All of a phase but its lists and texts that may be cut.
v1::PhaseRequest ToProto(const Phase& phase) {
  v1::PhaseRequest request;
  request.set_epoch(phase.epoch);
  request.set_round(phase.round);
  request.set_wave(static_cast<uint32_t>(phase.wave));
  if (phase.kind != PhaseKind::kClose) {
    AddRows(phase.rows, request.mutable_offered_rows());
  }
  switch (phase.kind) {
    case PhaseKind::kRecover:
      *request.mutable_recover() = ToProto(phase.recover);
      break;
    case PhaseKind::kFetch:
      *request.mutable_fetch() = ToProto(phase.id);
      break;
    case PhaseKind::kOpen:
      *request.mutable_open() = ToProto(phase.id);
      break;
    case PhaseKind::kCapture:
      *request.mutable_capture() = ToProto(phase.id);
      break;
    case PhaseKind::kCheckpointProgress:
      request.mutable_checkpoint_progress();
      break;
    case PhaseKind::kReadManifest:
      *request.mutable_read_manifest() = ToProto(phase.id);
      break;
    case PhaseKind::kVerify:
      request.mutable_verify();
      break;
    case PhaseKind::kSeal:
      *request.mutable_seal() = SealOf(phase);
      break;
    default:
      SetRound(phase, &request);
      break;
  }
  return request;
}

// The step of a message that goes with `kind`; null for a kind without one.
v1::StepPlan* MutableStep(PhaseKind kind, v1::PhaseRequest* request) {
  if (kind == PhaseKind::kNorms) return request->mutable_norms();
  return kind == PhaseKind::kUpdate ? request->mutable_update() : nullptr;
}

// Where a message of `kind` has the text of a checkpoint; null for a kind
// without one.
std::string* MutableCheckpoint(PhaseKind kind, v1::PhaseRequest* request) {
  if (kind == PhaseKind::kRecover) {
    return request->mutable_recover()->mutable_checkpoint();
  }
  if (kind == PhaseKind::kVerify) {
    return request->mutable_verify()->mutable_checkpoint();
  }
  return kind == PhaseKind::kSeal
             ? request->mutable_seal()->mutable_checkpoint()
             : nullptr;
}

}  // namespace

bool StepParts::Append(const StepPlan& step, size_t* room, v1::StepPlan* out) {
  AppendPart(step.coefficients, &coefficients_, room,
             out->mutable_coefficients());
  AppendPart(step.tensors, &tensors_, room, out->mutable_tensors());
  AppendPart(step.trust, &trust_, room, out->mutable_trust());
  return coefficients_ == step.coefficients.size() &&
         tensors_ == step.tensors.size() && trust_ == step.trust.size();
}

bool PhaseRequests::Next(v1::PhaseRequest* request) {
  if (done_) return false;
  request->Clear();
  if (std::exchange(first_, false)) {
    *request = ToProto(phase_);
  } else {
    request->set_epoch(phase_.epoch);
    request->set_round(phase_.round);
  }
  done_ = true;
  // No number takes more than 8 bytes on the wire.
  size_t room = static_cast<size_t>(std::max<int64_t>(1, max_bytes_ / 8));
  if (v1::StepPlan* const step = MutableStep(phase_.kind, request)) {
    done_ &= step_.Append(phase_.step, &room, step);
  }
  if (phase_.kind == PhaseKind::kUpdate) {
    done_ &= replica_step_.Append(phase_.replica_step, &room,
                                  request->mutable_replica_step());
  }
  if (std::string* const text = MutableCheckpoint(phase_.kind, request)) {
    done_ &= AppendPiece(phase_.checkpoint, &checkpoint_, &room, text);
  }
  if (phase_.record != nullptr && !phase_.record->empty()) {
    done_ &=
        AppendPiece(*phase_.record, &record_, &room, request->mutable_record());
  }
  request->set_more(!done_);
  return true;
}

PhaseReplies::PhaseReplies(PhaseResult result, int64_t max_bytes)
    : result_(std::move(result)), max_bytes_(max_bytes) {}

bool PhaseReplies::AddSlices(v1::PhaseReply* reply, int64_t* bytes) {
  // Whether an entry of that many bytes goes into this message, too.
  const auto fits = [&](int64_t entry_bytes) {
    if (*bytes > 0 && *bytes + entry_bytes > max_bytes_) return false;
    *bytes += entry_bytes;
    return true;
  };
  for (; grams_ < result_.grams.size(); ++grams_) {
    const SliceGram& gram = result_.grams[grams_];
    if (!fits(EncodedBytes(gram))) return false;
    v1::SliceGram* out = reply->add_grams();
    out->set_slice(static_cast<uint32_t>(gram.slice));
    out->mutable_hi()->Add(gram.hi.begin(), gram.hi.end());
    out->mutable_lo()->Add(gram.lo.begin(), gram.lo.end());
  }
  for (; norms_ < result_.norms.size(); ++norms_) {
    if (!fits(kNormsBytes)) return false;
    const SliceNorms& norms = result_.norms[norms_];
    v1::SliceNorms* out = reply->add_norms();
    out->set_slice(static_cast<uint32_t>(norms.slice));
    out->set_parameter_norm_squared(norms.parameter_norm_squared);
    out->set_update_norm_squared(norms.update_norm_squared);
  }
  return true;
}

void PhaseReplies::AddRest(v1::PhaseReply* reply) const {
  reply->set_seconds(result_.seconds);
  reply->mutable_incomplete_ranks()->Add(result_.incomplete_ranks.begin(),
                                         result_.incomplete_ranks.end());
  reply->mutable_row_crc32c()->Add(result_.row_crc32c.begin(),
                                   result_.row_crc32c.end());
  if (result_.not_finite_slice >= 0) {
    reply->set_not_finite_slice(
        static_cast<uint32_t>(result_.not_finite_slice));
  }
  const NarrowingLoss& loss = result_.narrowing;
  if (loss.slice >= 0 || loss.num_compared > 0) {
    v1::NarrowingLoss* const narrowing = reply->mutable_narrowing();
    if (loss.slice >= 0) {
      narrowing->set_slice(static_cast<uint32_t>(loss.slice));
    }
    narrowing->set_num_infinite(loss.num_infinite);
    narrowing->set_num_compared(loss.num_compared);
    narrowing->set_num_vanished(loss.num_vanished);
  }
  reply->set_published(result_.published);
  if (result_.checkpoint.stage != CheckpointProgress::Stage::kNone ||
      result_.checkpoint.num_skipped > 0) {
    *reply->mutable_checkpoint() = ToProto(result_.checkpoint);
  }
}

bool PhaseReplies::Next(v1::PhaseReply* reply) {
  if (done_) return false;
  reply->Clear();
  int64_t bytes = 0;
  if (!AddSlices(reply, &bytes)) return true;
  size_t room =
      static_cast<size_t>(std::max<int64_t>(1, (max_bytes_ - bytes) / 8));
  if (!result_.manifest.empty() &&
      !AppendPiece(result_.manifest, &manifest_, &room,
                   reply->mutable_manifest())) {
    return true;
  }
  AddRest(reply);
  done_ = true;
  return true;
}

void AppendReply(const v1::PhaseReply& reply, const GramSink& sink,
                 PhaseResult* result) {
  for (const v1::SliceGram& gram : reply.grams()) {
    sink({static_cast<int32_t>(gram.slice()),
          {gram.hi().begin(), gram.hi().end()},
          {gram.lo().begin(), gram.lo().end()}});
  }
  for (const v1::SliceNorms& norms : reply.norms()) {
    result->norms.push_back({static_cast<int32_t>(norms.slice()),
                             norms.parameter_norm_squared(),
                             norms.update_norm_squared()});
  }
  result->seconds += reply.seconds();
  result->manifest.append(reply.manifest());
  result->incomplete_ranks.insert(result->incomplete_ranks.end(),
                                  reply.incomplete_ranks().begin(),
                                  reply.incomplete_ranks().end());
  result->row_crc32c.insert(result->row_crc32c.end(),
                            reply.row_crc32c().begin(),
                            reply.row_crc32c().end());
  if (reply.has_not_finite_slice()) {
    result->not_finite_slice = static_cast<int32_t>(reply.not_finite_slice());
  }
  if (reply.has_narrowing()) {
    const v1::NarrowingLoss& loss = reply.narrowing();
    result->narrowing = {
        loss.has_slice() ? static_cast<int32_t>(loss.slice()) : -1,
        loss.num_infinite(), loss.num_compared(), loss.num_vanished()};
  }
  result->published |= reply.published();
  if (reply.has_checkpoint()) {
    result->checkpoint = FromProto(reply.checkpoint());
  }
}

}  // namespace agg
