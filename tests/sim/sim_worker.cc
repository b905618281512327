#include "tests/sim/sim_worker.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace agg {
namespace {

constexpr absl::Duration kRetry = absl::Milliseconds(250);
constexpr absl::Duration kRenew = absl::Seconds(3);
constexpr uint64_t kSkippedRound = 2;  // all rows have a NaN

std::vector<bool> HoldsSlices(const ShardPlan& plan) {
  std::vector<bool> holds;
  for (const auto& slices : plan.slices_of_shard) {
    holds.push_back(!slices.empty());
  }
  return holds;
}

}  // namespace

Tensors SimGradient(const Manifest& manifest, int32_t rank, uint64_t version,
                    const Tensors& parameters) {
  Tensors gradient = RandomTensors(
      manifest, 1000 * (version + 1) + static_cast<uint64_t>(rank));
  for (size_t t = 0; t < gradient.size(); ++t) {
    for (size_t i = 0; i < gradient[t].size(); ++i) {
      gradient[t][i] = 0.5f * gradient[t][i] + 0.25f * parameters[t][i];
    }
  }
  if (version == kSkippedRound) {
    gradient[0][0] = std::numeric_limits<float>::quiet_NaN();
  }
  return gradient;
}

SimWorker::SimWorker(SimWorld* world, int32_t rank, uint64_t life)
    : world_(world),
      rank_(rank),
      host_(std::make_shared<SimHost>()),
      plan_(*MakeShardPlan(world->manifest, world->num_shards)),
      row_ledger_(HoldsSlices(plan_)) {
  host_->worker = true;
  host_->number = rank;
  host_->life = life;
  world->network->SetWorker(host_);
  pulls_.resize(world->num_shards);
}

std::string SimWorker::Where() const {
  static constexpr const char* kNames[] = {"joining", "pulling", "pushing",
                                           "committing", "done"};
  return absl::StrCat("worker ", rank_, " is ",
                      kNames[static_cast<int>(state_)], " at version ",
                      version_, ", session ", session_,
                      "; last error: ", last_error_.ToString());
}

// --- Calls -------------------------------------------------------------------

template <typename T>
std::function<void(absl::StatusOr<T>)> SimWorker::Expect(
    const char* what, const SimHostPtr& server,
    std::shared_ptr<Answer<T>>* answer) {
  *answer = std::make_shared<Answer<T>>();
  (*answer)->server = server;
  return [network = world_->network, what, server, me = host_,
          answer = *answer](absl::StatusOr<T> value) {
    if (!network->Deliver(what, server.get(), me.get())) {
      value = absl::UnavailableError("the answer is lost");
    }
    answer->value = std::move(value);
  };
}

template <typename T>
std::optional<absl::StatusOr<T>> SimWorker::Take(
    std::shared_ptr<Answer<T>>* answer) {
  std::optional<absl::StatusOr<T>> value = std::move((*answer)->value);
  if (!value.has_value()) {
    const absl::Status reach =
        world_->network->CheckReach(host_.get(), (*answer)->server.get());
    if (reach.ok()) return std::nullopt;
    value = absl::StatusOr<T>(reach);
  }
  *answer = nullptr;
  return value;
}

template <typename F>
absl::Status SimWorker::CallShard(const char* what, int ordinal, F call) {
  const SimHostPtr server = world_->network->shard(ordinal);
  return world_->network->Call(what, host_.get(), server.get(),
                               [&] { return call(server); });
}

bool SimWorker::Step() {
  bool did = Renew();
  switch (state_) {
    case State::kJoining:
      return Join() || did;
    case State::kPulling:
      return Pull() || did;
    case State::kPushing:
      return Push() || did;
    case State::kCommitting:
      return Commit() || did;
    case State::kDone:
      return did;
  }
  return did;
}

void SimWorker::Rejoin(const absl::Status& why) {
  last_error_ = why;
  join_ = nullptr;
  commit_ = nullptr;
  pulls_.assign(pulls_.size(), nullptr);
  state_ = State::kJoining;
  retry_at_ = world_->clock->Now() + kRetry;
}

// As the lease thread of a client: it resumes by itself.
bool SimWorker::Renew() {
  if (state_ == State::kJoining || world_->clock->Now() < renew_at_) {
    return false;
  }
  renew_at_ = world_->clock->Now() + kRenew;
  const absl::Status status = CallShard("Renew", 0, [&](const SimHostPtr&) {
    return world_->coordinator()->Renew(epoch_, session_).status();
  });
  if (!status.ok()) Rejoin(status);
  return false;
}

// --- Join --------------------------------------------------------------------

bool SimWorker::Join() {
  if (join_ == nullptr) {
    if (world_->clock->Now() < retry_at_) return false;
    JoinCall call;
    call.rank = rank_;
    call.manifest = world_->manifest;
    call.client = absl::StrCat("life ", host_->life);
    call.resume_session = session_;
    call.resume_version = has_parameters_ ? version_ : 0;
    call.resume_made = has_parameters_ ? made_ : 0;
    const absl::Status status =
        CallShard("Join", 0, [&](const SimHostPtr& server) {
          world_->coordinator()->Join(call,
                                      Expect("JoinReply", server, &join_));
          return absl::OkStatus();
        });
    if (!status.ok()) Rejoin(status);
    return true;
  }
  const auto answer = Take(&join_);
  if (!answer.has_value()) return false;
  if (answer->ok()) {
    TakeJoined(**answer);
    return true;
  }
  const absl::Status& status = answer->status();
  if (absl::IsFailedPrecondition(status)) {
    // The job has finished without it: the rows of the rounds say so.
    last_error_ = status;
    state_ = State::kDone;
    return true;
  }
  if (absl::StrContains(status.message(), "evicted: ")) {
    // As a client does: it ends. Its rank gets another process.
    last_error_ = status;
    host_->dead = true;
    return true;
  }
  if (absl::IsAborted(status) || absl::IsNotFound(status)) {
    world_->ledger->Fail(
        absl::StrCat("a join of rank ", rank_, ": ", status.ToString()));
  }
  Rejoin(status);
  return true;
}

void SimWorker::TakeJoined(const JoinResult& joined) {
  const bool other_session = joined.session != session_;
  session_ = joined.session;
  epoch_ = joined.epoch;
  history_ = joined.seeded ? HistoryNow() : 0;
  lives_ = {joined.epoch, joined.shard_lives};
  renew_at_ = world_->clock->Now() + kRenew;
  // Nothing is owed to a past that was given up, or is lost.
  if (other_session || joined.rewound || !joined.seeded) row_ledger_.Forget();
  if (joined.rewound || !joined.seeded) has_parameters_ = false;
  if (!joined.seeded) {
    if (!joined.seed_role) return GoOnAt(0, joined.epoch);
    return Begin(/*seed=*/true, 0);
  }
  const RowName row = row_ledger_.row();
  const bool owes = row_ledger_.state() != RowLedger::State::kNone &&
                    row_ledger_.state() != RowLedger::State::kKnown;
  if (owes && !row.seed && row.round <= joined.version && !joined.finished) {
    row_ledger_.NewEpoch(lives_);
    // A round that has ended tells its outcome to a Commit.
    state_ = row.round < joined.version ? State::kCommitting : State::kPushing;
    return;
  }
  if (owes && !row.seed && joined.finished) {
    state_ = State::kCommitting;
    return;
  }
  if (owes) row_ledger_.Know();
  if (joined.finished) {
    state_ = State::kDone;
    return;
  }
  // What comes after the Join is made in the Join's epoch.
  if (joined.first_round > joined.version) {
    return GoOnAt(joined.first_round, joined.epoch);
  }
  GoOnAt(joined.version, joined.made);
}

uint64_t SimWorker::HistoryNow() const {
  Coordinator* const coordinator = world_->coordinator();
  return coordinator == nullptr ? 0 : coordinator->Status().history;
}

// --- Pull --------------------------------------------------------------------

void SimWorker::GoOnAt(uint64_t version, uint64_t made) {
  if (!has_parameters_ || version_ != version || made_ != made || made == 0) {
    has_parameters_ = false;
    parameters_ = Tensors();
  }
  version_ = version;
  made_ = made;
  state_ = State::kPulling;
}

bool SimWorker::Pull() {
  if (has_parameters_) {
    if (!world_->may_push(rank_, version_)) return false;
    Begin(/*seed=*/false, version_);
    return true;
  }
  bool did = false;
  bool complete = true;
  for (int k = 0; k < world_->num_shards; ++k) {
    if (pulls_[k] == nullptr) {
      did = true;
      const absl::Status status =
          CallShard("Pull", k, [&](const SimHostPtr& server) {
            server->engine->Pull(epoch_, version_, /*latest=*/false,
                                 Expect("PullReply", server, &pulls_[k]));
            return absl::OkStatus();
          });
      if (!status.ok()) {
        Rejoin(status);
        return true;
      }
    }
    if (pulls_[k]->value.has_value() && pulls_[k]->value->ok()) continue;
    complete = false;
    const bool lost =
        !world_->network->CheckReach(host_.get(), pulls_[k]->server.get()).ok();
    if (!pulls_[k]->value.has_value() && !lost) continue;
    const absl::Status why = lost ? absl::UnavailableError("a pull is lost")
                                  : pulls_[k]->value->status();
    Rejoin(why);
    return true;
  }
  if (!complete) return did;
  for (auto& pull : pulls_) {
    ReadVersion(**pull->value, DType::kF32, &parameters_);
    pull = nullptr;
  }
  has_parameters_ = true;
  if (history_ == 0) history_ = HistoryNow();
  if (history_ != 0) world_->ledger->Pulled(history_, version_, parameters_);
  return true;
}

// --- Push and commit ---------------------------------------------------------

void SimWorker::Begin(bool seed, uint64_t round) {
  if (seed) {
    row_ = RandomTensors(world_->manifest, 1);
  } else {
    row_ = SimGradient(world_->manifest, rank_, round, parameters_);
  }
  row_ledger_.Begin(seed, round, session_);
  state_ = State::kPushing;
}

absl::Status SimWorker::PushTo(int shard) {
  const RowName name = row_ledger_.row();
  FrameHeader base;
  base.epoch = epoch_;
  base.session = session_;
  base.round = name.round;
  base.attempt = name.attempt;
  base.kind = name.seed ? PushKind::kSeed : PushKind::kGradient;
  for (const TestFrame& frame : MakeFrames(base, plan_, shard, row_)) {
    FrameResult result;
    const absl::Status status =
        CallShard("Push", shard, [&](const SimHostPtr& server) {
          const auto landed = LandFrame(server->engine.get(), frame);
          if (landed.ok()) result = *landed;
          return landed.status();
        });
    if (!status.ok()) return status;
    if (result.acknowledge) {
      row_ledger_.Acknowledge(shard, lives_, !result.closed, {});
    }
  }
  return absl::OkStatus();
}

bool SimWorker::Push() {
  for (const int shard : row_ledger_.Owed(lives_)) {
    const absl::Status status = PushTo(shard);
    if (absl::IsAlreadyExists(status)) {  // somebody else has seeded
      row_ledger_.Know();
      GoOnAt(0, epoch_);
      return true;
    }
    if (!status.ok()) {
      Rejoin(status);
      return true;
    }
  }
  state_ = State::kCommitting;
  return true;
}

bool SimWorker::Commit() {
  if (commit_ == nullptr) {
    const RowName row = row_ledger_.row();
    CommitCall call;
    call.epoch = epoch_;
    call.session = session_;
    call.round = row.round;
    call.kind = row.seed ? PushKind::kSeed : PushKind::kGradient;
    call.attempt = row.attempt;
    const absl::Status status =
        CallShard("Commit", 0, [&](const SimHostPtr& server) {
          world_->coordinator()->Commit(
              call, Expect("CommitReply", server, &commit_));
          return absl::OkStatus();
        });
    if (!status.ok()) Rejoin(status);
    return true;
  }
  const auto answer = Take(&commit_);
  if (!answer.has_value()) return false;
  if (answer->ok()) {
    TakeOutcome(**answer);
    return true;
  }
  if (absl::StrContains(answer->status().message(), "has finished")) {
    // It has taken part from a round on that there is not (P13).
    row_ledger_.Know();
    last_error_ = answer->status();
    state_ = State::kDone;
    return true;
  }
  if (absl::IsFailedPrecondition(answer->status()) ||
      absl::IsAlreadyExists(answer->status())) {
    world_->ledger->Fail(absl::StrCat("a commit of rank ", rank_, ", round ",
                                      row_ledger_.row().round, ": ",
                                      answer->status().ToString()));
  }
  Rejoin(answer->status());
  return true;
}

void SimWorker::TakeOutcome(const RoundResult& outcome) {
  row_ledger_.Know();
  if (outcome.kind == OutcomeKind::kSeeded) {
    history_ = outcome.epoch;
    return GoOnAt(0, outcome.epoch);
  }
  world_->ledger->Told(rank_, history_, outcome);
  if (outcome.finished) {
    state_ = State::kDone;
    return;
  }
  GoOnAt(outcome.version, outcome.epoch);
}

}  // namespace agg
