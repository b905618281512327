// A version is published when its narrowed bytes are there: what readers of
// float32, checkpoints, the next round and errors do meanwhile.
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/narrow_float.h"
#include "tests/server/round/recovery_fixture.h"
#include "tests/server/shard/deferring_backend.h"

namespace agg {
namespace {

using testing::HasSubstr;

class NarrowedFirstTest : public RecoveryTest {
 protected:
  // A gate that is closed would hold up its end.
  class Job : public RunningJob {
   public:
    Job(DeferralGate* gate, const ClusterOptions& options)
        : RunningJob(options, SmallManifest(), 2), gate_(gate) {}
    ~Job() { gate_->Open(); }

   private:
    DeferralGate* const gate_;
  };

  ClusterOptions Narrowed(ClusterOptions options) {
    options.shard.pull_dtype = DType::kBF16;
    options.make_backend = [this] {
      return std::make_unique<DeferringBackend>(&gate_);
    };
    return options;
  }
  static PublishedVersion Version(RunningJob* job, int shard,
                                  uint64_t version) {
    Reply<absl::StatusOr<PublishedVersion>> reply;
    job->cluster.engine(shard)->Pull(0, version, /*latest=*/false,
                                     reply.callback());
    EXPECT_TRUE(reply.called());
    return *reply.Get();
  }
  // Waits for it.
  static absl::Status Readable(const PublishedVersion& version) {
    Reply<absl::Status> reply;
    version.snapshot->WhenReadable(DType::kF32, reply.callback());
    return reply.Get();
  }
  static Tensors Float32(RunningJob* job, uint64_t number) {
    Tensors tensors;
    for (int shard = 0; shard < job->cluster.num_shards(); ++shard) {
      const PublishedVersion version = Version(job, shard, number);
      EXPECT_EQ(Readable(version), absl::OkStatus());
      ReadVersion(version, DType::kF32, &tensors);
    }
    return tensors;
  }
  static Tensors Rounded(Tensors tensors) {
    for (auto& tensor : tensors) {
      for (float& value : tensor) value = FloatOfBf16(Bf16OfFloat(value));
    }
    return tensors;
  }

  DeferralGate gate_;
};

TEST_F(NarrowedFirstTest, AVersionIsPublishedBeforeItsFloat32BytesAreThere) {
  for (const bool replicated : {false, true}) {
    gate_.Close();
    ClusterOptions options = Narrowed(Options(2));
    options.shard.replicated = options.coordinator.replicated = replicated;
    Job job(&gate_, options);
    RunTo(&job, 1);
    const Tensors expected = Undisturbed(2, 1);
    const absl::StatusOr<Tensors> narrowed = job.cluster.Pull(1, DType::kBF16);
    ASSERT_TRUE(narrowed.ok()) << narrowed.status();
    EXPECT_TRUE(SameBits(*narrowed, Rounded(expected)));
    const PublishedVersion version = Version(&job, 0, 1);
    EXPECT_TRUE(version.snapshot->readable(DType::kBF16));
    EXPECT_FALSE(version.snapshot->readable(DType::kF32));
    Reply<absl::Status> reply;
    version.snapshot->WhenReadable(DType::kF32, reply.callback());
    EXPECT_FALSE(reply.called());
    gate_.Open();
    EXPECT_EQ(reply.Get(), absl::OkStatus());
    EXPECT_TRUE(SameBits(Float32(&job, 1), expected));
    EXPECT_TRUE(version.snapshot->readable(DType::kF32));
  }
}

TEST_F(NarrowedFirstTest, TheNextRoundDoesNotWaitForThem) {
  gate_.Close();
  Job job(&gate_, Narrowed(Options(1)));
  RunTo(&job, 2);
  gate_.Open();
  EXPECT_TRUE(SameBits(Float32(&job, 1), Undisturbed(1, 1)));
  EXPECT_TRUE(SameBits(Float32(&job, 2), Undisturbed(1, 2)));
  RunTo(&job, 6);
  EXPECT_TRUE(SameBits(Float32(&job, 6), Undisturbed(1, 6)));
}

TEST_F(NarrowedFirstTest, ACheckpointTakesNoBytesThatAreNotThere) {
  const ClusterOptions options = Narrowed(WithCheckpoints(2, 1));
  {
    gate_.Close();
    Job job(&gate_, options);
    RunTo(&job, 1);
    job.cluster.AwaitCheckpoints(1);
    gate_.Open();
  }
  LocalCluster again(options);
  for (int i = 0; i < 3; ++i) again.Advance(absl::Seconds(1));
  ASSERT_EQ(again.Status().version, 1u);
  const absl::StatusOr<Tensors> restored = again.Pull(1);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_TRUE(SameBits(*restored, Undisturbed(2, 1)));
}

TEST_F(NarrowedFirstTest, ACopyThatFailsIsTriedAgain) {
  gate_.Fail(1);
  Job job(&gate_, Narrowed(Options(1)));
  RunTo(&job, 1);
  EXPECT_TRUE(SameBits(Float32(&job, 1), Undisturbed(1, 1)));
  EXPECT_EQ(job.cluster.engine(0)->Status().backend_errors, 1);
}

// Each of the others that comes later has it tried again.
TEST_F(NarrowedFirstTest, WithoutACopyReadersOfFloat32AloneGetAnError) {
  gate_.Close();
  Job job(&gate_, Narrowed(Options(1)));
  RunTo(&job, 1);
  const PublishedVersion version = Version(&job, 0, 1);
  Reply<absl::Status> waiting;
  version.snapshot->WhenReadable(DType::kF32, waiting.callback());
  gate_.Fail(4);  // twice for each reader
  for (const absl::Status& status : {waiting.Get(), Readable(version)}) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("no copy"));
    EXPECT_FALSE(version.snapshot->readable(DType::kF32));
  }
  EXPECT_TRUE(
      SameBits(*job.cluster.Pull(1, DType::kBF16), Rounded(Undisturbed(1, 1))));
  EXPECT_TRUE(SameBits(Float32(&job, 1), Undisturbed(1, 1)));
  EXPECT_EQ(gate_.num_passed(), 5);
  RunTo(&job, 2);
  EXPECT_TRUE(SameBits(Float32(&job, 2), Undisturbed(1, 2)));
}

TEST_F(NarrowedFirstTest, AVersionWithoutACopyIsGoneWithTheNextOne) {
  gate_.Close();
  Job job(&gate_, Narrowed(Options(1)));
  RunTo(&job, 1);
  const PublishedVersion version = Version(&job, 0, 1);
  Reply<absl::Status> waiting;
  version.snapshot->WhenReadable(DType::kF32, waiting.callback());
  gate_.Fail(2);
  EXPECT_TRUE(absl::IsUnavailable(waiting.Get()));
  RunTo(&job, 2);
  const absl::Status status = Readable(version);
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("version 1 is gone as float32; current version 2"));
  EXPECT_TRUE(SameBits(Float32(&job, 2), Undisturbed(1, 2)));
}

// From the second version on: only the first one has no version before it.
TEST_F(NarrowedFirstTest, Float32BytesAreCopiedForAReaderAlone) {
  Job job(&gate_, Narrowed(Options(1)));
  RunTo(&job, 5);
  EXPECT_LE(gate_.num_passed(), 1);
  EXPECT_TRUE(SameBits(Float32(&job, 5), Undisturbed(1, 5)));
  EXPECT_EQ(gate_.num_passed(), 2);
  EXPECT_TRUE(SameBits(Float32(&job, 5), Undisturbed(1, 5)));
  EXPECT_EQ(gate_.num_passed(), 2);
  // It may be one that reads each version: the next one is not waited for.
  RunTo(&job, 6);
  EXPECT_TRUE(SameBits(Float32(&job, 6), Undisturbed(1, 6)));
  EXPECT_EQ(gate_.num_passed(), 3);
}

TEST_F(NarrowedFirstTest, Float32ThatNobodyWantedIsGoneWithTheNextVersion) {
  Job job(&gate_, Narrowed(Options(1)));
  RunTo(&job, 5);
  const absl::Status status = Readable(Version(&job, 0, 4));
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("version 4 is gone as float32; current version 5"));
  EXPECT_TRUE(
      SameBits(*job.cluster.Pull(4, DType::kBF16), Rounded(Undisturbed(1, 4))));
  EXPECT_TRUE(SameBits(Float32(&job, 5), Undisturbed(1, 5)));
}

// Nobody reads anything else: the bytes are always on their way.
TEST_F(NarrowedFirstTest, AJobOfFloat32HasItsBytes) {
  ClusterOptions options = Narrowed(Options(1));
  options.shard.pull_dtype = DType::kF32;
  Job job(&gate_, options);
  RunTo(&job, 5);
  EXPECT_TRUE(SameBits(Float32(&job, 4), Undisturbed(1, 4)));
  EXPECT_TRUE(SameBits(Float32(&job, 5), Undisturbed(1, 5)));
}

// Which slice it is, the float32 bytes say.
TEST_F(NarrowedFirstTest, WhatIsNotFiniteIsFound) {
  RunningJob job(Narrowed(MakeClusterOptions(1, 1)), MakeManifest({{40}, {1}}),
                 1);
  Tensors huge = RandomTensors(job.manifest, 1);
  huge[1][0] = 3e38f;  // three times half of it does not fit
  for (uint64_t round = 0; round < 3; ++round) {
    const auto reply = job.workers[0].Contribute(round, huge);
    ASSERT_TRUE(reply.ok()) << reply.status();
    job.cluster.Settle();
  }
  const auto reports = job.cluster.reports();
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_THAT(reports[2].message, HasSubstr("not finite: tensor \"t1\""));
}

}  // namespace
}  // namespace agg
