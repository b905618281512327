// Enums are spelled out both ways: a number from the network that nobody here
// knows must not become an action.
#include "server/rpc/recovery_conversion.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/field_error.h"
#include "server/rpc/inventory_conversion.h"

namespace agg {
namespace {

using Recover = v1::PhaseRequest::Recover;
using Progress = v1::CheckpointProgress;

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

Progress::Stage ToProto(CheckpointProgress::Stage stage) {
  switch (stage) {
    case CheckpointProgress::Stage::kNone:
      return Progress::NONE;
    case CheckpointProgress::Stage::kWriting:
      return Progress::WRITING;
    case CheckpointProgress::Stage::kWritten:
      return Progress::WRITTEN;
    case CheckpointProgress::Stage::kFailed:
      return Progress::FAILED;
  }
  return Progress::NONE;
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
    case Progress::NONE:
      return result;
    case Progress::WRITING:
      result.stage = CheckpointProgress::Stage::kWriting;
      return result;
    case Progress::WRITTEN:
      result.stage = CheckpointProgress::Stage::kWritten;
      result.part = {progress.file(), progress.bytes(), progress.crc32c()};
      return result;
    case Progress::FAILED:
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

}  // namespace agg
