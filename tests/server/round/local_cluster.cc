#include "tests/server/round/local_cluster.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/backend_factory.h"
#include "server/base/file_system.h"
#include "server/base/log.h"
#include "server/checkpoint/checkpoint_folder.h"

namespace agg {
namespace {

void Require(const absl::Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
  std::abort();
}

// What a neighbour reaches: whatever process has the shard now.
class CopiesOf : public NeighbourPeer {
 public:
  explicit CopiesOf(const std::unique_ptr<ShardEngine>* engine)
      : engine_(engine) {}
  absl::Status SendCombined(const CopyHeader& header,
                            const CopySlice& slice) override {
    return *engine_ == nullptr ? Gone()
                               : (*engine_)->SendCombined(header, slice);
  }
  absl::Status FinishCombined(const CopyHeader& header) override {
    return *engine_ == nullptr ? Gone() : (*engine_)->FinishCombined(header);
  }
  absl::Status Fetch(const CopyHeader& header, const CopySink& sink) override {
    return *engine_ == nullptr ? Gone() : (*engine_)->Fetch(header, sink);
  }

 private:
  static absl::Status Gone() { return absl::UnavailableError("no process"); }
  const std::unique_ptr<ShardEngine>* const engine_;
};

}  // namespace

ClusterOptions MakeClusterOptions(int num_shards, int workers,
                                  const std::string& rule) {
  ClusterOptions options;
  options.num_shards = num_shards;
  options.coordinator.workers = workers;
  options.coordinator.max_workers = workers + 2;
  options.coordinator.combine.rule.rule = FindRule(rule);
  options.coordinator.combine.rule.scope =
      options.coordinator.combine.rule.rule->default_scope;
  options.coordinator.combine.schedule.learning_rate = 0.5;
  options.shard.workers = workers;
  options.shard.max_workers = workers + 2;
  return options;
}

void SetOptimizer(const OptimizerOptions& optimizer, ClusterOptions* options) {
  options->coordinator.optimizer = optimizer;
  options->shard.optimizer = optimizer;
}

Manifest MakeManifest(const std::vector<std::vector<int64_t>>& shapes) {
  Manifest manifest;
  for (const std::vector<int64_t>& shape : shapes) {
    TensorSpec tensor;
    tensor.name = absl::StrCat("t", manifest.tensors.size());
    tensor.shape = shape;
    manifest.tensors.push_back(tensor);
  }
  return manifest;
}

LocalCluster::LocalCluster(const ClusterOptions& options) : options_(options) {
  SetLogLevel(LogLevel::kError);  // failures are what tests are about
  for (int k = 0; k < options.num_shards; ++k) {
    absl::StatusOr<std::unique_ptr<Backend>> backend =
        options.make_backend != nullptr
            ? options.make_backend()
            : MakeBackend("cpu", {/*num_threads=*/1 + k % 2});
    Require(backend.status(), "MakeBackend");
    backends_.push_back(*std::move(backend));
    engines_.push_back(nullptr);
    peers_.push_back(std::make_unique<FaultyPeer>(nullptr));
    if (options.offers) peers_.back()->ForwardOffers();
  }
  for (int k = 0; k < options.num_shards; ++k) {
    copies_.push_back(std::make_unique<CopiesOf>(&engines_[k]));
  }
  for (int k = 0; k < options.num_shards; ++k) StartShard(k);
  StartCoordinator();
  if (!options.real_clock) {
    Settle();
    return;
  }
  coordinator_->Start();
}

void LocalCluster::StartShard(int ordinal) {
  ShardOptions shard = options_.shard;
  shard.ordinal = ordinal;
  shard.num_shards = options_.num_shards;
  shard.life = next_life_++;
  engines_[ordinal] = std::make_unique<ShardEngine>(
      shard, backends_[ordinal].get(), options_.on_device_lost);
  if (!options_.checkpoint_path.empty()) {
    FileSystem* const files =
        options_.files == nullptr ? files_.get() : options_.files;
    const std::string path =
        options_.own_folders
            ? absl::StrCat(options_.checkpoint_path, "/", ordinal)
            : options_.checkpoint_path;
    absl::StatusOr<CheckpointFolder> folder = CheckpointFolder::Make(
        files, path, options_.coordinator.job, shard.life);
    Require(folder.status(), "CheckpointFolder");
    const std::string& other = options_.coordinator.checkpoint.restore_job;
    absl::optional<CheckpointFolder> lender;
    if (!other.empty()) {
      lender = *CheckpointFolder::Make(files, path, other, shard.life);
    }
    // What cannot be listed is the job's to wait for.
    engines_[ordinal]
        ->SetCheckpointFolder(*folder, files, lender)
        .IgnoreError();
  }
  if (shard.replicated) {
    const int num_shards = options_.num_shards;
    engines_[ordinal]->SetNeighbours(
        copies_[(ordinal + 1) % num_shards].get(),
        copies_[(ordinal + num_shards - 1) % num_shards].get());
  }
  peers_[ordinal]->Connect(engines_[ordinal].get());
}

void LocalCluster::StartCoordinator() {
  std::vector<ShardPeer*> peers;
  for (const auto& peer : peers_) peers.push_back(peer.get());
  const Clock* clock = &clock_;
  if (options_.real_clock) clock = Clock::Real();
  coordinator_ = std::make_unique<Coordinator>(
      options_.coordinator, peers, clock,
      [this](const RoundReport& report) {
        MutexLock lock(&mutex_);
        reports_.push_back(report);
      },
      /*find_other=*/nullptr, options_.order);
}

void LocalCluster::RestartShard(int ordinal) {
  engines_[ordinal] = nullptr;
  StartShard(ordinal);
  LoseConnection(ordinal);
}

void LocalCluster::RestartCoordinator() {
  coordinator_ = nullptr;
  engines_[0] = nullptr;
  StartShard(0);
  StartCoordinator();
  Advance(absl::Seconds(1));
}

void LocalCluster::RestartAll() {
  coordinator_ = nullptr;
  for (int k = 0; k < num_shards(); ++k) {
    engines_[k] = nullptr;
    StartShard(k);
  }
  StartCoordinator();
  Advance(absl::Seconds(1));
}

void LocalCluster::LoseConnection(int ordinal) {
  peers_[ordinal]->ReportLost(absl::UnavailableError(
      absl::StrCat("shard ", ordinal, " is lost: kill -9")));
  // Failed attempts are made again a second later.
  for (int i = 0; i < 4; ++i) Advance(absl::Seconds(1));
}

void LocalCluster::AwaitCheckpoints(uint64_t number) {
  for (;;) {
    Settle();
    const CheckpointStatus status = coordinator_->Status().checkpoint;
    if (status.num_sealed + status.num_failed >= number && !status.writing) {
      return;
    }
    std::this_thread::yield();  // a shard's thread writes
  }
}

LocalCluster::~LocalCluster() = default;

std::vector<RoundReport> LocalCluster::reports() const {
  MutexLock lock(&mutex_);
  return reports_;
}

void LocalCluster::Settle() {
  while (coordinator_->RunOnce()) {
  }
}

void LocalCluster::Advance(absl::Duration duration) {
  clock_.Advance(duration);
  Settle();
}

absl::StatusOr<Tensors> LocalCluster::Pull(uint64_t version, DType dtype) {
  if (!options_.real_clock) Settle();
  Tensors tensors;
  for (auto& engine : engines_) {
    Reply<absl::StatusOr<PublishedVersion>> reply;
    const int64_t id =
        engine->Pull(0, version, /*latest=*/false, reply.callback());
    if (!options_.real_clock && !reply.called()) {
      engine->CancelPull(id);
      return absl::UnavailableError("waiting");
    }
    absl::StatusOr<PublishedVersion> published = reply.Get();
    if (!published.ok()) return published.status();
    ReadVersion(*published, dtype, &tensors);
  }
  return tensors;
}

// --- Workers -----------------------------------------------------------------

LocalWorker::LocalWorker(LocalCluster* cluster, int32_t rank,
                         const Manifest& manifest)
    : cluster_(cluster),
      rank_(rank),
      manifest_(manifest),
      plan_(*MakeShardPlan(manifest, cluster->num_shards())) {}

absl::Status LocalWorker::Join() { return Join(JoinCall()); }

absl::Status LocalWorker::Resume(uint64_t version, uint64_t made) {
  JoinCall call;
  call.resume_session = joined_.session;
  call.resume_version = version;
  call.resume_made = made;
  return Join(call);
}

absl::Status LocalWorker::Join(JoinCall call) {
  call.rank = rank_;
  call.manifest = manifest_;
  call.client = absl::StrCat("test worker ", rank_);
  Reply<absl::StatusOr<JoinResult>> reply;
  cluster_->coordinator()->Join(call, reply.callback());
  if (!cluster_->options().real_clock) cluster_->Settle();
  const absl::StatusOr<JoinResult> result = reply.Get();
  if (result.ok()) joined_ = *result;
  return result.status();
}

FrameHeader LocalWorker::Header(uint64_t round, PushKind kind) {
  FrameHeader header;
  header.epoch = joined_.epoch;
  header.session = joined_.session;
  header.round = round;
  header.kind = kind;
  header.dtype = kind == PushKind::kSeed ? DType::kF32
                                         : cluster_->options().shard.push_dtype;
  return header;
}

absl::Status LocalWorker::Push(uint64_t round, const Tensors& tensors,
                               uint64_t shuffle,
                               const std::set<int32_t>& absent, PushKind kind) {
  const FrameHeader base = Header(round, kind);
  std::vector<std::pair<int, TestFrame>> frames;
  for (int k = 0; k < cluster_->num_shards(); ++k) {
    for (TestFrame& frame : MakeFrames(base, plan_, k, tensors, absent)) {
      frames.emplace_back(k, std::move(frame));
    }
  }
  if (shuffle != 0) {
    std::shuffle(frames.begin(), frames.end(), std::mt19937_64(shuffle));
  }
  std::set<int> acknowledged;
  std::set<int> needed;
  for (const auto& [k, frame] : frames) {
    needed.insert(k);
    absl::StatusOr<FrameResult> result = LandFrame(cluster_->engine(k), frame);
    if (!result.ok()) return result.status();
    if (result->acknowledge) acknowledged.insert(k);
  }
  if (acknowledged == needed) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(acknowledged.size(), " of ",
                                          needed.size(),
                                          " shards acknowledged the push"));
}

absl::Status LocalWorker::PushTo(const std::set<int>& shards,
                                 const FrameHeader& header,
                                 const Tensors& tensors) {
  for (const int shard : shards) {
    for (const TestFrame& frame : MakeFrames(header, plan_, shard, tensors)) {
      const absl::Status landed =
          LandFrame(cluster_->engine(shard), frame).status();
      if (!landed.ok()) return landed;
    }
  }
  return absl::OkStatus();
}

OutcomeReply LocalWorker::Commit(uint64_t round, RowInfo row, PushKind kind) {
  CommitCall call;
  call.epoch = joined_.epoch;
  call.session = joined_.session;
  call.round = round;
  call.kind = kind;
  call.info.row = row;
  OutcomeReply reply;
  cluster_->coordinator()->Commit(call, reply.callback());
  return reply;
}

absl::Status LocalWorker::Seed(const Tensors& tensors) {
  absl::Status status = Push(0, tensors, 0, {}, PushKind::kSeed);
  if (!status.ok()) return status;
  const OutcomeReply reply = Commit(0, RowInfo(), PushKind::kSeed);
  if (!cluster_->options().real_clock) {
    cluster_->Settle();
    if (!reply.called()) return absl::InternalError("no outcome of the seed");
  }
  const absl::StatusOr<RoundResult> outcome = reply.Get();
  if (!outcome.ok()) return outcome.status();
  if (outcome->kind != OutcomeKind::kSeeded) {
    return absl::InternalError("the seed's outcome is of another kind");
  }
  return absl::OkStatus();
}

absl::StatusOr<OutcomeReply> LocalWorker::Contribute(uint64_t round,
                                                     const Tensors& tensors) {
  absl::Status status = Push(round, tensors);
  if (!status.ok()) return status;
  return Commit(round);
}

absl::Status LocalWorker::Leave() {
  Reply<absl::Status> reply;
  cluster_->coordinator()->Leave(joined_.epoch, joined_.session,
                                 reply.callback());
  if (!cluster_->options().real_clock) cluster_->Settle();
  return reply.Get();
}

LocalWorker Joined(LocalCluster* cluster, int32_t rank,
                   const Manifest& manifest) {
  LocalWorker worker(cluster, rank, manifest);
  Require(worker.Join(), "Join");
  return worker;
}

RunningJob::RunningJob(const ClusterOptions& options, const Manifest& manifest,
                       int num_workers, const std::optional<Tensors>& seed)
    : manifest(manifest), cluster(options) {
  for (int rank = 0; rank < num_workers; ++rank) {
    workers.push_back(Joined(&cluster, rank, manifest));
  }
  Require(workers[0].Seed(seed.value_or(RandomTensors(manifest, 1))), "Seed");
}

void RunningJob::RunRound(uint64_t round) {
  for (LocalWorker& worker : workers) {
    const uint64_t seed =
        1000 * (round + 1) + static_cast<uint64_t>(worker.rank());
    Require(worker.Contribute(round, RandomTensors(manifest, seed)).status(),
            "Contribute");
  }
  cluster.Settle();
}

}  // namespace agg
