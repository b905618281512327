// Field by field. Kinds that this version does not know are not errors: an
// older client lives on with a newer server.
#include "worker_client/job_messages.h"

#include "server/base/utf8.h"

namespace agg {

RoundOutcome OutcomeOf(const v1::RoundOutcome& message) {
  RoundOutcome outcome;
  outcome.round = message.round();
  outcome.version = message.version();
  outcome.made = message.epoch();
  switch (message.kind()) {
    case v1::RoundOutcome::SKIPPED:
      outcome.kind = RoundOutcome::Kind::kSkipped;
      break;
    case v1::RoundOutcome::SEEDED:
      outcome.kind = RoundOutcome::Kind::kSeeded;
      break;
    default:
      outcome.kind = RoundOutcome::Kind::kApplied;
  }
  outcome.included = message.included();
  outcome.ranks.assign(message.ranks().begin(), message.ranks().end());
  outcome.excluded_ranks.assign(message.excluded_ranks().begin(),
                                message.excluded_ranks().end());
  outcome.absent_tensors.assign(message.absent_tensors().begin(),
                                message.absent_tensors().end());
  outcome.differing_ranks.assign(message.differing_ranks().begin(),
                                 message.differing_ranks().end());
  outcome.learning_rate = message.learning_rate();
  outcome.gain = message.gain();
  outcome.tau = message.tau();
  outcome.orthogonality = message.orthogonality();
  outcome.loss = message.loss();
  outcome.combined_norm = message.combined_norm();
  outcome.rule = message.combination().rule();
  outcome.scope = message.combination().scope();
  outcome.step_scale = message.combination().step_scale();
  outcome.finished = message.finished();
  outcome.message = Shown(message.message());  // it names tensors
  return outcome;
}

std::optional<ClientEvent::Kind> KindOf(const v1::JobEvent& event) {
  switch (event.kind()) {
    case v1::JobEvent::SHARD_LOST:
      return ClientEvent::Kind::kShardLost;
    case v1::JobEvent::SUPERSEDED:
      return ClientEvent::Kind::kSuperseded;
    case v1::JobEvent::EXPIRED:
      return ClientEvent::Kind::kExpired;
    case v1::JobEvent::EVICTED:
      return ClientEvent::Kind::kEvicted;
    case v1::JobEvent::FINISHED:
      return ClientEvent::Kind::kFinished;
    case v1::JobEvent::WAITING:
      return ClientEvent::Kind::kWaiting;
    case v1::JobEvent::WORKER_LOST:
      return ClientEvent::Kind::kWorkerLost;
    case v1::JobEvent::SEED_ROLE:
      return ClientEvent::Kind::kSeedRole;
    case v1::JobEvent::DRAINING:
      return ClientEvent::Kind::kDraining;
    default:
      return std::nullopt;
  }
}

}  // namespace agg
