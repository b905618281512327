#include "tests/server/shard/shard_ring.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "kernels/dtype.h"
#include "kernels/optimizer_step.h"
#include "server/base/log.h"
#include "server/checkpoint/checkpoint_folder.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/round/neighbour_peer.h"
#include "server/round/shard_peer.h"
#include "tests/server/round/reply.h"

namespace agg {

Manifest RingTensors() {
  Manifest manifest;
  for (const int64_t size : {40, 0, 7, 3, 64}) {
    TensorSpec tensor;
    tensor.name = absl::StrCat("t", manifest.tensors.size());
    tensor.shape = {size};
    if (size == 7) tensor.group = "slow";
    manifest.tensors.push_back(tensor);
  }
  return manifest;
}

// One shard, as its neighbours reach it.
class ShardRing::Link : public NeighbourPeer {
 public:
  Link(ShardRing* ring, int ordinal) : ring_(ring), ordinal_(ordinal) {}
  absl::Status SendCombined(const CopyHeader& header,
                            const CopySlice& slice) override {
    if (ring_->cut_[ordinal_]) return Gone();
    return ring_->engine(ordinal_)->SendCombined(header, slice);
  }
  absl::Status FinishCombined(const CopyHeader& header) override {
    if (ring_->cut_[ordinal_]) return Gone();
    return ring_->engine(ordinal_)->FinishCombined(header);
  }
  absl::Status Fetch(const CopyHeader& header, const CopySink& sink) override {
    if (ring_->cut_[ordinal_]) return Gone();
    return ring_->engine(ordinal_)->Fetch(header, sink);
  }

 private:
  absl::Status Gone() const {
    return absl::UnavailableError(absl::StrCat("shard ", ordinal_, " is gone"));
  }
  ShardRing* const ring_;
  const int ordinal_;
};

ShardRing::~ShardRing() = default;

ShardRing::ShardRing(int num_shards, const ShardOptions& options,
                     const Manifest& manifest)
    : options_(options), manifest_(manifest) {
  SetLogLevel(LogLevel::kError);  // failures are what tests are about
  options_.num_shards = num_shards;
  cut_.assign(num_shards, false);
  for (int i = 0; i < num_shards; ++i) {
    links_.push_back(std::make_unique<Link>(this, i));
  }
  for (int i = 0; i < num_shards; ++i) {
    backends_.push_back(*MakeBackend("cpu", {1}));
    engines_.push_back(NewEngine(i));
  }
}

std::unique_ptr<ShardEngine> ShardRing::NewEngine(int ordinal) {
  ShardOptions options = options_;
  options.ordinal = ordinal;
  ++options_.life;
  auto engine =
      std::make_unique<ShardEngine>(options, backends_[ordinal].get());
  const int num_shards = options.num_shards;
  engine->SetNeighbours(links_[(ordinal + 1) % num_shards].get(),
                        links_[(ordinal + num_shards - 1) % num_shards].get());
  if (files_ != nullptr) {
    EXPECT_EQ(engine->SetCheckpointFolder(
                  *CheckpointFolder::Open(files_, "/disk", "job", options.life),
                  files_),
              absl::OkStatus());
  }
  return engine;
}

void ShardRing::UseCheckpoints(FileSystem* files) {
  files_ = files;
  for (int i = 0; i < num_shards(); ++i) Restart(i);
}

void ShardRing::Restart(int ordinal) {
  engines_[ordinal] = nullptr;
  engines_[ordinal] = NewEngine(ordinal);
}

void ShardRing::Cut(int ordinal, bool cut) { cut_[ordinal] = cut; }

std::vector<ShardInventory> ShardRing::Attach() {
  inventories_.clear();
  for (auto& engine : engines_) {
    epoch_ = std::max(epoch_, *engine->Promise());
  }
  ++epoch_;
  for (auto& engine : engines_) {
    absl::StatusOr<ShardInventory> inventory = engine->Attach(epoch_, nullptr);
    EXPECT_EQ(inventory.status(), absl::OkStatus());
    inventories_.push_back(*std::move(inventory));
  }
  return inventories_;
}

void ShardRing::SetManifest() {
  for (auto& engine : engines_) {
    ASSERT_EQ(engine->SetManifest(epoch_, manifest_), absl::OkStatus());
  }
}

void ShardRing::Join(int num_workers) {
  SetManifest();
  num_workers_ = num_workers;
  for (int32_t rank = 0; rank < num_workers; ++rank) {
    SessionChange joins;
    joins.session = kFirstSession + static_cast<uint64_t>(rank);
    joins.rank = rank;
    joins.seed_role = rank == 0;
    joins.client = absl::StrCat("worker ", rank);
    for (auto& engine : engines_) {
      ASSERT_EQ(engine->SetSession(epoch_, joins), absl::OkStatus());
    }
  }
}

void ShardRing::LandSeed() {
  FrameHeader header;
  header.epoch = epoch_;
  header.session = kFirstSession;
  header.kind = PushKind::kSeed;
  const ShardPlan plan = *MakeShardPlan(manifest_, num_shards());
  for (int i = 0; i < num_shards(); ++i) {
    for (const TestFrame& frame :
         MakeFrames(header, plan, i, RandomTensors(manifest_, 7))) {
      ASSERT_EQ(LandFrame(engine(i), frame).status(), absl::OkStatus());
    }
  }
}

void ShardRing::Seed() {
  LandSeed();
  Phase publish = MakePhase(PhaseKind::kPublish);
  publish.publish.version = 0;
  publish.publish.seed = true;
  publish.publish.seed_session = kFirstSession;
  if (options_.replicated) {
    Phase load = publish;
    load.kind = PhaseKind::kLoadSeed;
    load.record = std::make_shared<const std::string>("of 0");
    RunAll(load);
    Phase fetch = MakePhase(PhaseKind::kFetch);
    fetch.id = {epoch_, 0};
    RunAll(fetch);
  }
  RunAll(publish);
}

absl::StatusOr<FrameResult> ShardRing::PushTo(int ordinal, uint64_t round,
                                              int32_t rank) {
  FrameHeader header;
  header.epoch = epoch_;
  header.session = kFirstSession + static_cast<uint64_t>(rank);
  header.round = round;
  const Tensors row = RandomTensors(
      manifest_, 1000 * (round + 1) + static_cast<uint64_t>(rank));
  const ShardPlan plan = *MakeShardPlan(manifest_, num_shards());
  absl::StatusOr<FrameResult> result = FrameResult{true, false};
  for (const TestFrame& frame : MakeFrames(header, plan, ordinal, row)) {
    result = LandFrame(engine(ordinal), frame);
    if (!result.ok()) break;
  }
  return result;
}

void ShardRing::Push(uint64_t round, int32_t rank) {
  for (int i = 0; i < num_shards(); ++i) {
    const absl::StatusOr<FrameResult> result = PushTo(i, round, rank);
    ASSERT_EQ(result.status(), absl::OkStatus());
    ASSERT_TRUE(result->acknowledge);
  }
}

Phase ShardRing::MakePhase(PhaseKind kind, uint64_t round) const {
  Phase phase;
  phase.kind = kind;
  phase.epoch = epoch_;
  phase.round = round;
  for (int32_t rank = 0; rank < num_workers_; ++rank) {
    phase.rows.push_back(
        {rank, kFirstSession + static_cast<uint64_t>(rank), 0});
    phase.step.coefficients.push_back(0.25 + 0.5 * rank);
  }
  phase.step.learning_rate = 0.125;
  phase.step.step = static_cast<int64_t>(round) + 1;
  if (options_.optimizer.kind == OptimizerKind::kLamb) {
    phase.step.trust = {0.5f, 1.0f, 2.0f, 0.25f, 1.5f};  // one for each tensor
  }
  phase.publish.version = round + 1;
  return phase;
}

void ShardRing::RunAll(const Phase& phase) {
  for (auto& engine : engines_) {
    ASSERT_EQ(engine->RunPhase(phase).status(), absl::OkStatus())
        << engine->name() << ", " << PhaseName(phase.kind);
  }
}

void ShardRing::RunRound(uint64_t round) {
  for (int32_t rank = 0; rank < num_workers_; ++rank) Push(round, rank);
  for (const PhaseKind kind :
       {PhaseKind::kClose, PhaseKind::kUpdate, PhaseKind::kPublish}) {
    for (int i = 0; i < num_shards(); ++i) {
      ASSERT_EQ(RunOn(i, kind, round).status(), absl::OkStatus())
          << PhaseName(kind) << " of round " << round << " on shard " << i;
    }
  }
}

absl::StatusOr<PhaseResult> ShardRing::RunOn(int ordinal, PhaseKind kind,
                                             uint64_t round) {
  Phase phase = MakePhase(kind, round);
  if (options_.replicated && kind == PhaseKind::kUpdate) {
    phase.replica_step = phase.step;
    phase.replica_step.coefficients.clear();
    phase.record =
        std::make_shared<const std::string>(absl::StrCat("of ", round + 1));
  }
  return Run(ordinal, phase);
}

absl::StatusOr<Tensors> ShardRing::Pull(uint64_t version) {
  Tensors tensors;
  for (auto& engine : engines_) {
    Reply<absl::StatusOr<PublishedVersion>> reply;
    const int64_t id =
        engine->Pull(0, version, /*latest=*/false, reply.callback());
    if (!reply.called()) {
      engine->CancelPull(id);
      return absl::UnavailableError("waiting");
    }
    const absl::StatusOr<PublishedVersion> published = reply.Get();
    if (!published.ok()) return published.status();
    ReadVersion(*published, DType::kF32, &tensors);
  }
  return tensors;
}

CheckpointProgress ShardRing::WaitForPart(int ordinal) {
  for (;;) {
    const absl::StatusOr<PhaseResult> result =
        Run(ordinal, MakePhase(PhaseKind::kCheckpointProgress));
    EXPECT_EQ(result.status(), absl::OkStatus());
    if (!result.ok()) return CheckpointProgress();
    if (result->checkpoint.stage != CheckpointProgress::Stage::kWriting) {
      return result->checkpoint;
    }
    std::this_thread::yield();
  }
}

std::string ShardRing::TakeCheckpoint(const VersionId& id) {
  Phase capture = MakePhase(PhaseKind::kCapture);
  capture.id = id;
  CheckpointManifest manifest;
  manifest.job = "job";
  manifest.id = id;
  manifest.num_shards = num_shards();
  manifest.tensors = manifest_;
  manifest.optimizer = "adam";
  manifest.num_state_arrays = OptimizerStateArrays(options_.optimizer);
  manifest.record = "the record";
  // One after the other, since a SimDisk is for one thread.
  for (int i = 0; i < num_shards(); ++i) {
    EXPECT_EQ(Run(i, capture).status(), absl::OkStatus());
    const CheckpointProgress progress = WaitForPart(i);
    EXPECT_EQ(progress.error, absl::OkStatus());
    EXPECT_TRUE(progress.id == id);
    manifest.parts.push_back(progress.part);
  }
  Phase seal = MakePhase(PhaseKind::kSeal);
  seal.checkpoint = CheckpointManifestJson(manifest);
  seal.keep = 2;
  RunAll(seal);
  return seal.checkpoint;
}

}  // namespace agg
