#include "tests/sim/job_simulation.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/backend_factory.h"
#include "kernels/optimizer_step.h"
#include "proto/shard_plan.h"
#include "server/base/job_phase.h"
#include "server/base/log.h"
#include "server/checkpoint/checkpoint_folder.h"
#include "server/combine/rule_table.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/peer_group.h"
#include "server/round/shard_options.h"
#include "tests/server/round/row_frames.h"

namespace agg {
namespace {

constexpr uint64_t kSimRounds = 5;
constexpr uint64_t kJoinRound = 1;  // the third worker joins while it is open
constexpr uint64_t kRuleRound = 3;  // another rule is set while it is open
constexpr LogLevel kNothing = static_cast<LogLevel>(4);  // above kError
constexpr int kMaxSteps = 20000;
constexpr absl::Duration kTick = absl::Milliseconds(250);
constexpr absl::Duration kMaxTime = absl::Minutes(5);

OptimizerOptions Adam() {
  OptimizerOptions adam;
  adam.kind = OptimizerKind::kAdam;
  return adam;
}

Manifest MakeSimManifest(int num_shards) {
  // With three shards one has no slices.
  const std::vector<std::vector<int64_t>> shapes =
      num_shards == 3 ? std::vector<std::vector<int64_t>>{{7}, {30}}
                      : std::vector<std::vector<int64_t>>{{7}, {}, {30}, {12}};
  Manifest manifest;
  for (const std::vector<int64_t>& shape : shapes) {
    TensorSpec tensor;
    tensor.name = absl::StrCat("t", manifest.tensors.size());
    tensor.shape = shape;
    manifest.tensors.push_back(tensor);
  }
  return manifest;
}

// Two workers and one that joins later, Adam, AdaCons and a shadow rule.
CoordinatorOptions MakeSimOptions(const SimPlan& plan) {
  CoordinatorOptions options;
  options.workers = 2;
  options.max_workers = 3;
  options.max_rounds = kSimRounds;
  options.replicated = plan.replicated;
  options.optimizer = Adam();
  options.combine.rule.rule = FindRule("adacons");
  options.combine.rule.scope = options.combine.rule.rule->default_scope;
  options.combine.schedule.learning_rate = 0.5;
  options.combine.shadow_rules.emplace_back();
  options.combine.shadow_rules[0].rule = FindRule("adasum");
  options.checkpoint.enabled = plan.checkpoints;
  options.checkpoint.every_rounds = 2;
  return options;
}

ShardOptions MakeSimShardOptions(const SimPlan& plan, int ordinal,
                                 uint64_t life) {
  ShardOptions options;
  options.ordinal = ordinal;
  options.num_shards = plan.num_shards;
  options.life = life;
  options.workers = 2;
  options.max_workers = 3;
  options.optimizer = Adam();
  options.replicated = plan.replicated;
  options.background = false;  // no thread computes in the background
  options.early_gram = false;
  return options;
}

// The order of calls to several shards; seed 0: that of the ordinals.
PeerGroup::Order MakeSimOrder(uint64_t seed) {
  return [random = std::make_shared<std::mt19937_64>(seed), seed](int size) {
    std::vector<int> order(size);
    std::iota(order.begin(), order.end(), 0);
    if (seed != 0) std::shuffle(order.begin(), order.end(), *random);
    return order;
  };
}

}  // namespace

JobSimulation::JobSimulation(const SimPlan& plan)
    : plan_(plan),
      network_(&clock_, plan.faults, plan.record,
               [this](SimHost* host) { return Freeze(host); }),
      options_(MakeSimOptions(plan)),
      revive_at_(plan.num_shards, absl::InfiniteFuture()),
      cut_reported_(plan.num_shards, absl::InfinitePast()) {
  SetLogLevel(plan.log ? LogLevel::kInfo : kNothing);
  disk_.CreateFolder("/checkpoints").IgnoreError();
  for (int k = 0; k < plan.num_shards; ++k) {
    folders_.push_back(std::make_unique<TornFiles>(&disk_));
    disk_.CreateFolder(absl::StrCat("/checkpoints/", k)).IgnoreError();
  }
  operator_.worker = true;
  operator_.number = -1;
  world_.network = &network_;
  world_.clock = &clock_;
  world_.ledger = &ledger_;
  world_.manifest = MakeSimManifest(plan.num_shards);
  world_.num_shards = plan.num_shards;
  world_.coordinator = [this] { return coordinator(); };
  world_.may_push = [this](int32_t, uint64_t round) { return MayPush(round); };
  for (int k = 0; k < plan.num_shards; ++k) StartShard(k);
  StartLeader();
  for (int rank = 0; rank < 2; ++rank) {
    workers_.push_back(
        std::make_unique<SimWorker>(&world_, rank, next_life_++));
  }
}

JobSimulation::~JobSimulation() {
  // What is still asked for gets no answer.
  for (const auto& worker : workers_) worker->host()->dead = true;
  for (const SimHostPtr& host : former_) host->dead = true;
  for (Leader* leader : {frozen_.get(), leader_.get()}) {
    if (leader != nullptr && leader->thread->still()) leader->thread->Run();
  }
  frozen_ = nullptr;
  leader_ = nullptr;
  for (const SimHostPtr& host : former_) host->engine = nullptr;
}

void JobSimulation::StartShard(int ordinal) {
  const auto host = std::make_shared<SimHost>();
  host->number = ordinal;
  // Far apart: a shard that forgets its rows counts its life up.
  host->life = 1000 * next_life_++;
  host->backend = *MakeBackend("cpu", {/*num_threads=*/1});
  host->engine = std::make_unique<ShardEngine>(
      MakeSimShardOptions(plan_, ordinal, host->life), host->backend.get());
  if (plan_.checkpoints) {
    FileSystem* const files = folders_[ordinal].get();
    const auto folder = CheckpointFolder::Make(
        files,
        plan_.torn == Torn::kNone ? "/checkpoints"
                                  : absl::StrCat("/checkpoints/", ordinal),
        options_.job, host->life);
    const absl::Status status =
        host->engine->SetCheckpointFolder(*folder, files);
    if (!status.ok() && !torn_) ledger_.Fail(status.ToString());
  }
  if (plan_.replicated) {
    const int size = plan_.num_shards;
    for (const int other :
         {(ordinal + 1) % size, (ordinal + size - 1) % size}) {
      neighbours_.push_back(
          std::make_unique<SimNeighbour>(&network_, host.get(), other));
    }
    host->engine->SetNeighbours(neighbours_[neighbours_.size() - 2].get(),
                                neighbours_.back().get());
  }
  former_.push_back(host);
  network_.SetShard(host);
}

void JobSimulation::StartLeader() {
  // Epochs are counted by the clock, which goes on while a process starts.
  clock_.Advance(absl::Milliseconds(1));
  leader_ = std::make_unique<Leader>();
  leader_->host = network_.shard(0);
  std::vector<ShardPeer*> peers;
  for (int k = 0; k < plan_.num_shards; ++k) {
    leader_->peers.push_back(
        std::make_unique<SimPeer>(&network_, leader_->host.get(), k));
    peers.push_back(leader_->peers.back().get());
  }
  const SimHost* const self = leader_->host.get();
  leader_->coordinator = std::make_unique<Coordinator>(
      options_, peers, &clock_, [](const RoundReport&) {},
      [this, self]() -> std::string {
        const SimHostPtr there = network_.shard(0);
        return there.get() == self ? "" : "another life answers as shard 0";
      },
      MakeSimOrder(plan_.seed));
  leader_->thread = std::make_unique<CoordinatorThread>(
      [to = leader_->coordinator.get()] { return to->RunOnce(); });
}

Coordinator* JobSimulation::coordinator() const {
  if (leader_ == nullptr || leader_->host->dead || leader_->host->frozen) {
    return nullptr;
  }
  return leader_->coordinator.get();
}

bool JobSimulation::Freeze(SimHost* host) {
  if (leader_ == nullptr || leader_->host.get() != host || frozen_ != nullptr ||
      !leader_->thread->is_current()) {
    return false;
  }
  host->frozen = true;
  leader_->thread->StandStill();
  return true;
}

// --- What happens in one step ------------------------------------------------

bool JobSimulation::RunLeader(Leader* leader) {
  bool did = false;
  for (int i = 0; i < 1000 && !leader->host->dead; ++i) {
    if (!leader->thread->Run()) break;
    did = true;
  }
  return did;
}

bool JobSimulation::StepWorkers() {
  bool did = false;
  for (std::unique_ptr<SimWorker>& worker : workers_) {
    const int32_t rank = worker->host()->number;
    if (worker->host()->dead) {
      worker = std::make_unique<SimWorker>(&world_, rank, next_life_++);
    }
    for (int i = 0; i < 8 && worker->Step(); ++i) did = true;
    Bury();
  }
  return did;
}

bool JobSimulation::MayPush(uint64_t round) const {
  if (coordinator() == nullptr) return false;
  if (round == kJoinRound) return workers_.size() > 2 && workers_[2]->joined();
  if (round == kEvictRound && plan_.evicts) {
    return evicted_in_ == coordinator()->Status().history;
  }
  if (round != kRuleRound) return true;
  return rule_set_in_ == coordinator()->Status().history;
}

void JobSimulation::Bury() {
  for (int k = 0; k < plan_.num_shards; ++k) {
    const SimHostPtr host = network_.shard(k);
    if (!host->dead || host->engine == nullptr) continue;
    int quarters = 0;
    for (const SimNetwork::Loss& loss : network_.losses()) {
      if (loss.ordinal == k) quarters = loss.quarters;
    }
    revive_at_[k] = clock_.Now() + quarters * kTick;
    if (k == 0) leader_ = nullptr;
    host->engine = nullptr;
    if (coordinator() == nullptr) continue;
    const auto lost = leader_->host->on_lost.find(k);
    if (lost == leader_->host->on_lost.end()) continue;
    const auto on_lost = std::move(lost->second);
    leader_->host->on_lost.erase(lost);
    if (on_lost != nullptr) on_lost(absl::UnavailableError("kill -9"));
  }
}

void JobSimulation::Revive() {
  for (int k = 0; k < plan_.num_shards; ++k) {
    if (clock_.Now() < revive_at_[k]) continue;
    revive_at_[k] = absl::InfiniteFuture();
    StartShard(k);
    if (k == 0) StartLeader();
  }
}

// The process stands still in a call. Another one gets its address at once;
// when the time has come it goes on, and has to find that it was replaced.
void JobSimulation::ThawLeader() {
  if (leader_ != nullptr && leader_->host->frozen && frozen_ == nullptr) {
    frozen_ = std::move(leader_);
    const int quarters = network_.losses().back().quarters;
    frozen_->frozen_until = clock_.Now() + quarters * kTick;
    StartShard(0);
    StartLeader();
  }
  if (frozen_ == nullptr || clock_.Now() < frozen_->frozen_until) return;
  frozen_->host->frozen = false;
  // What it was about, and then what it does by itself.
  for (int i = 0; i < 4; ++i) frozen_->thread->Run();
  frozen_->host->dead = true;
  frozen_ = nullptr;
}

void JobSimulation::ReportCuts() {
  if (coordinator() == nullptr) return;
  for (int k = 0; k < plan_.num_shards; ++k) {
    const absl::Time until = network_.shard(k)->cut_until;
    if (until <= cut_reported_[k]) continue;
    cut_reported_[k] = until;
    auto all = leader_->host->on_lost;
    for (auto& [ordinal, on_lost] : all) {
      if (ordinal == 0 || (k != 0 && ordinal != k)) continue;
      leader_->host->on_lost.erase(ordinal);
      if (on_lost != nullptr) on_lost(absl::UnavailableError("cut off"));
    }
  }
}

bool JobSimulation::MayTear() {
  VersionId sealed;
  VersionId newest;  // in the folder, sealed or not
  for (int k = 0; k < plan_.num_shards; ++k) {
    const auto folder = CheckpointFolder::Make(
        &disk_, absl::StrCat("/checkpoints/", k), options_.job, 1);
    const auto states = folder->List();
    for (const CheckpointState& state : *states) {
      if (state.manifest && sealed < state.id) sealed = state.id;
      if (k == plan_.torn_shard) newest = state.id;
    }
  }
  return sealed.made != 0 && (plan_.torn != Torn::kOlder || newest == sealed);
}

void JobSimulation::TearOrMend() {
  if (plan_.torn == Torn::kNone) return;
  bool all_dead = true;
  for (int k = 0; k < plan_.num_shards; ++k) {
    all_dead = all_dead && network_.shard(k)->dead;
  }
  TornFiles* const folder = folders_[plan_.torn_shard].get();
  if (all_dead && mended_at_ == absl::InfiniteFuture() && MayTear()) {
    folder->Tear(plan_.torn);
    torn_ = true;
    mended_at_ = clock_.Now() + absl::Seconds(5);
  }
  if (!torn_) return;
  const bool waits =
      coordinator() != nullptr &&
      absl::StrContains(coordinator()->Status().message, "the job waits");
  waited_ = waited_ || waits;
  if (plan_.anew && waits) BeginAnew();
  if (begun_anew_ != 0) {
    folder->Tear(Torn::kNone);
    torn_ = false;
    for (int k = 0; k < plan_.num_shards; ++k) network_.shard(k)->dead = true;
    return;
  }
  if (anew_asked_) return;
  if (coordinator() != nullptr && coordinator()->Status().epoch != 0) {
    ledger_.Fail(
        absl::StrCat("it does not wait for the torn folder: ", Where()));
  }
  if (clock_.Now() < mended_at_) return;
  folder->Tear(Torn::kNone);
  torn_ = false;
}

void JobSimulation::Observe() {
  TearOrMend();
  if (coordinator() == nullptr) return;
  const JobStatus status = coordinator()->Status();
  if (status.phase != JobPhase::kUnseeded && status.phase != JobPhase::kOpen &&
      status.phase != JobPhase::kFinished) {
    return;
  }
  const uint64_t history = status.seeded ? status.history : 0;
  // The epoch that went back may have ended before this could see it.
  bool lost = network_.NeighboursLost(status.epoch, plan_.num_shards);
  for (const uint64_t epoch : network_.Openings(seen_epoch_, status.epoch)) {
    lost = lost || network_.NeighboursLost(epoch, plan_.num_shards);
  }
  seen_epoch_ = status.epoch;
  neighbours_lost_ = neighbours_lost_ || lost;
  ledger_.EpochBegan(status.epoch, history, status.version,
                     !plan_.replicated || lost);
  CheckEvicted(status);
  CheckBegun(status);
  if (workers_.size() == 2 && status.seeded && status.version >= kJoinRound) {
    workers_.push_back(std::make_unique<SimWorker>(&world_, 2, next_life_++));
  }
}

bool JobSimulation::Finished() const {
  if (workers_.size() < 3 || frozen_ != nullptr || coordinator() == nullptr) {
    return false;
  }
  for (int k = 0; k < plan_.num_shards; ++k) {
    const SimHost& host = *network_.shard(k);
    if (host.dead || clock_.Now() < host.cut_until) return false;
  }
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const auto& worker) {
                       return worker->done() && !worker->host()->dead;
                     }) &&
         coordinator()->Status().phase == JobPhase::kFinished;
}

std::string JobSimulation::Where() const {
  std::vector<std::string> where;
  for (const auto& worker : workers_) where.push_back(worker->Where());
  if (coordinator() != nullptr) {
    const JobStatus status = coordinator()->Status();
    where.push_back(absl::StrCat("coordinator: ", PhaseName(status.phase),
                                 ", version ", status.version, ", ",
                                 status.message, " ", status.recovering));
  }
  return absl::StrJoin(where, "; ");
}

SimOutcome JobSimulation::Run() {
  const absl::Time begin = clock_.Now();
  SimOutcome outcome;
  int steps = 0;
  for (; steps < kMaxSteps && clock_.Now() < begin + kMaxTime; ++steps) {
    Revive();
    bool did = leader_ != nullptr && !leader_->host->frozen &&
               RunLeader(leader_.get());
    ThawLeader();
    Bury();
    Observe();
    did = StepWorkers() || did;
    SetRule();
    Evict();
    Bury();
    ReportCuts();
    Observe();
    if (Finished()) break;
    if (!did) clock_.Advance(kTick);
  }
  if (Finished()) {
    ReadEnd(&outcome);
  } else {
    ledger_.Fail(absl::StrCat("it does not end: ", steps, " steps, ",
                              absl::FormatDuration(clock_.Now() - begin), "; ",
                              Where()));
  }
  outcome.waited = waited_;
  outcome.began_anew = begun_anew_ != 0;
  outcome.num_calls = network_.num_calls();
  outcome.calls = network_.names();
  outcome.errors = ledger_.errors();
  outcome.num_rewinds = ledger_.num_rewinds();
  outcome.neighbours_lost = neighbours_lost_;
  for (const auto& [id, parameters] : ledger_.pulled()) {
    outcome.versions.insert({id.second, parameters});
  }
  return outcome;
}

void JobSimulation::ReadEnd(SimOutcome* outcome) {
  const JobStatus status = coordinator()->Status();
  // It had finished when its parameters were lost, and stays so (P29).
  outcome->lost_at_end = !status.seeded && ledger_.num_rewinds() > 0;
  if (outcome->lost_at_end) return;
  if (status.version != kSimRounds) {
    ledger_.Fail(absl::StrCat("it ends at version ", status.version));
  }
  std::vector<RoundResult> rounds;
  for (uint64_t round = 0; round < status.version; ++round) {
    coordinator()->WaitRound(0, {PushKind::kGradient, round, 0, 0},
                             [&](const absl::StatusOr<RoundResult>& result) {
                               if (result.ok()) rounds.push_back(*result);
                             });
    if (rounds.size() == round + 1) {
      outcome->rows.push_back(rounds.back().ranks);
      continue;
    }
    ledger_.Fail(absl::StrCat("round ", round, " has no outcome"));
    return;
  }
  ledger_.Ended(status.history, rounds);
  for (int k = 0; k < plan_.num_shards; ++k) {
    network_.shard(k)->engine->Pull(
        0, status.version, /*latest=*/false,
        [&](const absl::StatusOr<PublishedVersion>& version) {
          if (version.ok()) {
            ReadVersion(*version, DType::kF32, &outcome->parameters);
          } else {
            ledger_.Fail(version.status().ToString());
          }
        });
  }
}

std::string Describe(const SimPlan& plan) {
  std::vector<std::string> faults;
  for (const Fault& fault : plan.faults) faults.push_back(Describe(fault));
  return absl::StrCat(
      "seed ", plan.seed, ", K = ", plan.num_shards,
      plan.replicated ? ", replicated" : "",
      plan.checkpoints ? ", checkpoints" : "",
      plan.torn == Torn::kNone
          ? ""
          : absl::StrCat(", folder ", plan.torn_shard, " torn (",
                         static_cast<int>(plan.torn), ")"),
      plan.anew ? ", begins anew" : "", plan.evicts ? ", evicts" : "", ": ",
      absl::StrJoin(faults, "; "));
}

void CompareRuns(const SimPlan& plan, const SimOutcome& undisturbed,
                 SimOutcome* run) {
  if (!run->errors.empty() || run->lost_at_end) return;
  if (run->rows != undisturbed.rows) {
    // Whoever was in at the checkpoint's time is in from there on (P26).
    if (run->num_rewinds > 0) return;
    // Copies can outlive the sessions, which are given out after them (P19).
    if (run->neighbours_lost) return;
    // The row of a worker that is gone is not pushed again, and its next
    // process joins a job that does not know of the former one.
    const auto worker = [](const Fault& fault) {
      return fault.kind == FaultKind::kKillWorker;
    };
    const auto& faults = plan.faults;
    if (std::any_of(faults.begin(), faults.end(), worker) &&
        !std::all_of(faults.begin(), faults.end(), worker)) {
      return;
    }
    run->errors.push_back("the rounds have other rows than undisturbed");
    return;
  }
  if (!SameBits(run->parameters, undisturbed.parameters)) {
    run->errors.push_back("the final parameters have other bits");
  }
  for (const auto& [version, parameters] : run->versions) {
    const auto expected = undisturbed.versions.find(version);
    if (expected != undisturbed.versions.end() &&
        !SameBits(expected->second, parameters)) {
      run->errors.push_back(
          absl::StrCat("version ", version, " was pulled with other bits"));
    }
  }
}

}  // namespace agg
