// The first message has all of a phase but the ends of its lists and texts;
// later ones append to those.
#include "server/rpc/phase_assembly.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/wave_plan.h"
#include "server/base/field_error.h"
#include "server/rpc/offer_conversion.h"
#include "server/rpc/phase_limits.h"
#include "server/rpc/recovery_conversion.h"

namespace agg {
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
  absl::StatusOr<RecoverPlan> plan = FromProto(recover);
  if (!plan.ok()) return plan.status();
  phase->recover = *std::move(plan);
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

}  // namespace agg
