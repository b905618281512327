// A shard's memory in the hands of workers: P39, and what P40 needs of a shard.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/file_descriptor.h"
#include "server/base/shared_memory.h"
#include "server/ingest/frame.h"
#include "server/params/shared_buffer.h"
#include "server/shard/region_grant.h"
#include "tests/server/round/local_cluster.h"
#include "tests/server/shard/two_sided_backend.h"

namespace agg {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ClusterOptions Sharing(bool shared = true) {
  ClusterOptions options = MakeClusterOptions(1, 2);
  options.shard.shared_memory = shared;
  return options;
}

Manifest TestManifest() {
  Manifest manifest = MakeManifest({{40}, {}, {5}});
  manifest.tensors[2].optional = true;
  return manifest;
}

// Two workers on one shard, in round 0.
class ShardRegionsTest : public testing::Test {
 protected:
  explicit ShardRegionsTest(const ClusterOptions& options = Sharing())
      : job_(options, TestManifest(), 2),
        plan_(*MakeShardPlan(job_.manifest, 1)) {}

  ShardEngine* engine() { return job_.cluster.engine(0); }
  LocalWorker& worker(int rank) { return job_.workers[rank]; }
  Tensors Row(uint64_t seed) { return RandomTensors(job_.manifest, seed); }

  RegionGrant Grant(uint64_t session, bool takes_device = false) {
    RegionQuery query{session, 0, engine()->life()};
    query.takes_device = takes_device;
    const absl::StatusOr<RegionGrant> grant = engine()->GrantRegions(query);
    EXPECT_TRUE(grant.ok()) << grant.status();
    return grant.ok() ? *grant : RegionGrant();
  }

  // As the worker's process does it.
  static void Write(const RegionGrant& grant, const Tensors& tensors) {
    for (size_t t = 0; t < tensors.size(); ++t) {
      std::memcpy(grant.row[0].region->data() + grant.row_offsets[t],
                  tensors[t].data(), tensors[t].size() * sizeof(float));
    }
  }

  // Names all slices in one frame, without payload.
  FrameHeader InPlace(LocalWorker& worker, uint64_t round) {
    FrameHeader header = worker.Header(round);
    header.slices = {0, 1, 2};
    header.in_place = true;
    return header;
  }
  absl::StatusOr<FrameResult> Land(const FrameHeader& header) {
    absl::StatusOr<FrameLanding> landing = engine()->BeginFrame(header);
    if (!landing.ok()) return landing.status();
    for (SliceLanding& slice : landing->slices) slice.landed = true;
    return engine()->EndFrame(*landing);
  }
  // That `row` was each worker's part of round 0.
  void ExpectStep(const Tensors& row) {
    const Tensors start = *job_.cluster.Pull(0);
    const Tensors end = *job_.cluster.Pull(1);
    for (size_t t = 0; t < start.size(); ++t) {
      for (size_t e = 0; e < start[t].size(); ++e) {
        EXPECT_EQ(end[t][e], start[t][e] - 0.5f * row[t][e]);
      }
    }
  }
  std::string Refusal(const FrameHeader& header) {
    const absl::Status status = Land(header).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  RunningJob job_;
  const ShardPlan plan_;
};

TEST_F(ShardRegionsTest, ARowThatItsWorkerWroteCounts) {
  const RegionGrant grant = Grant(worker(0).session());
  ASSERT_THAT(grant.row, SizeIs(1));
  ASSERT_THAT(grant.row_offsets, SizeIs(3));
  Write(grant, Row(5));
  const auto landed = Land(InPlace(worker(0), 0));
  ASSERT_TRUE(landed.ok()) << landed.status();
  EXPECT_TRUE(landed->acknowledge);
  EXPECT_EQ(engine()->Status().push_bytes_in_place, 46 * 4);
  worker(0).Commit(0);
  // The other one sends its own.
  ASSERT_TRUE(worker(1).Contribute(0, Row(5)).ok());
  ExpectStep(Row(5));
}

TEST_F(ShardRegionsTest, VersionsAreInRegionsWhoseGenerationEndsWithThem) {
  const RegionGrant grant = Grant(0);
  EXPECT_TRUE(grant.row.empty());
  EXPECT_THAT(grant.versions, SizeIs(3));
  std::shared_ptr<Region> region;
  uint64_t generation = 0;
  const auto read = [&](absl::StatusOr<PublishedVersion> version) {
    ASSERT_TRUE(version.ok());
    region = version->snapshot->region(DType::kF32);
    generation = region->generation();
    EXPECT_EQ(region->data(), version->snapshot->data(DType::kF32));
  };
  engine()->Pull(0, 0, /*latest=*/false, read);
  ASSERT_NE(region, nullptr);
  // Two rounds later version 0 is gone, after the third its memory is.
  for (uint64_t round = 0; round < 2; ++round) job_.RunRound(round);
  EXPECT_EQ(region->generation(), generation);
  for (uint64_t round = 2; round < 5; ++round) job_.RunRound(round);
  EXPECT_NE(region->generation(), generation);
}

TEST_F(ShardRegionsTest, LiesAreRefused) {
  // Without a region.
  EXPECT_THAT(
      Refusal(InPlace(worker(0), 0)),
      HasSubstr("meta.in_place is set, and this session has no region"));
  Grant(worker(0).session());
  FrameHeader header = InPlace(worker(0), 0);
  header.payload_bytes = 4;
  EXPECT_THAT(Refusal(header), HasSubstr("payload has 4 bytes"));
  header = InPlace(worker(0), 0);
  header.crc32c = {1, 2, 3};
  EXPECT_THAT(Refusal(header), HasSubstr("meta.crc32c has 3 entries"));
  header = InPlace(worker(0), 0);
  header.slices = {0, 3};
  EXPECT_THAT(Refusal(header), HasSubstr("meta.slices names slice 3"));
  // Another one's session does not make it the owner of the region.
  EXPECT_THAT(Refusal(InPlace(worker(1), 0)), HasSubstr("has no region here"));
}

TEST_F(ShardRegionsTest, ASeedIsSent) {
  FrameHeader header = InPlace(worker(0), 0);
  header.kind = PushKind::kSeed;
  Grant(worker(0).session());
  EXPECT_THAT(Refusal(header), HasSubstr("meta.in_place is set in a seed"));
}

TEST_F(ShardRegionsTest, WhoAsksIsKnown) {
  const uint64_t life = engine()->life();
  EXPECT_TRUE(absl::IsNotFound(engine()->GrantRegions({9, 0, life}).status()));
  EXPECT_TRUE(
      absl::IsUnavailable(engine()->GrantRegions({0, 0, life + 1}).status()));
  EXPECT_TRUE(absl::IsAborted(
      engine()->GrantRegions({worker(0).session(), 1, life}).status()));
}

// A process that was frozen thaws in the midst of its copy.
TEST_F(ShardRegionsTest, ARowIsNoOtherSessions) {
  const RegionGrant former = Grant(worker(0).session());
  Write(former, Row(4));
  LocalWorker next = Joined(&job_.cluster, 0, job_.manifest);
  const RegionGrant grant = Grant(next.session());
  ASSERT_THAT(grant.row, SizeIs(1));
  EXPECT_NE(grant.row[0].region->number(), former.row[0].region->number());
  Write(grant, Row(5));
  ASSERT_TRUE(Land(InPlace(next, 0)).ok());
  Write(former, Row(6));
  EXPECT_TRUE(absl::IsAborted(Land(InPlace(worker(0), 0)).status()));
  next.Commit(0);
  ASSERT_TRUE(worker(1).Contribute(0, Row(5)).ok());
  ExpectStep(Row(5));
}

// What a worker has committed counts, also when another one has its rank.
TEST_F(ShardRegionsTest, ACommittedRowStaysUntilItsRoundEnds) {
  const RegionGrant former = Grant(worker(0).session());
  Write(former, Row(5));
  ASSERT_TRUE(Land(InPlace(worker(0), 0)).ok());
  worker(0).Commit(0);
  LocalWorker next = Joined(&job_.cluster, 0, job_.manifest);
  Write(Grant(next.session()), Row(6));
  ASSERT_TRUE(worker(1).Contribute(0, Row(5)).ok());
  ExpectStep(Row(5));
}

// As another process maps it.
std::unique_ptr<SharedMemory> Mapped(const RegionGrant& grant) {
  return *SharedMemory::Map(FileDescriptor(dup(grant.row[0].region->fd())),
                            grant.row[0].region->num_bytes(),
                            SharedMemory::Others::kWrite);
}

// One that is frozen holds no memory.
TEST_F(ShardRegionsTest, ASupersededSessionsRowIsEmptied) {
  RegionGrant former = Grant(worker(0).session());
  Write(former, Row(4));
  const auto mapped = Mapped(former);
  LocalWorker next = Joined(&job_.cluster, 0, job_.manifest);
  former = RegionGrant();
  engine()->AwaitEndedRows();
  for (int64_t i = 0; i < mapped->num_bytes(); ++i) {
    ASSERT_EQ(mapped->data()[i], 0);
  }
}

// Its worker may come back, and may have no other copy of its gradient.
TEST_F(ShardRegionsTest, ARowOutlivesALeaseThatRanOut) {
  RegionGrant former = Grant(worker(0).session());
  Write(former, Row(4));
  const auto mapped = Mapped(former);
  SessionChange change;
  change.session = worker(0).session();
  change.rank = 0;
  change.remove = true;
  change.reason = "the lease ran out";
  ASSERT_TRUE(engine()->SetSession(worker(0).Header(0).epoch, change).ok());
  former = RegionGrant();
  EXPECT_EQ(std::memcmp(mapped->data(), Row(4)[0].data(),
                        Row(4)[0].size() * sizeof(float)),
            0);
}

// Shards may have heard of different ones before the epoch ended. What a
// recovery needs memory for is reserved, and giving the session out takes none.
TEST_F(ShardRegionsTest, ARecoveryReservesTheRowOfASessionUnheardOf) {
  const uint64_t session = worker(0).session();
  const RegionGrant grant = Grant(session);
  const uint64_t epoch = worker(0).Header(0).epoch + 1;
  ASSERT_TRUE(engine()->Attach(epoch, nullptr).ok());
  const auto planned = [&] { return engine()->Status().memory_planned_bytes; };
  const int64_t before = planned();
  // It goes on in its own row.
  ASSERT_EQ(engine()->ReserveRow(epoch, 0, session), absl::OkStatus());
  EXPECT_EQ(planned(), before);
  SessionChange change;
  change.session = session + 100;
  change.rank = 0;
  ASSERT_EQ(engine()->ReserveRow(epoch, 0, change.session), absl::OkStatus());
  const int64_t reserved = planned();
  ASSERT_EQ(engine()->SetSession(epoch, change), absl::OkStatus());
  EXPECT_LE(planned(), reserved);
}

// While a former session's row is held, the next one's takes memory of its own.
TEST_F(ShardRegionsTest, ASuccessorsRowIsPlannedAsLongAsBothAreThere) {
  const int64_t alone = engine()->Status().memory_planned_bytes;
  Write(Grant(worker(0).session()), Row(5));
  ASSERT_TRUE(Land(InPlace(worker(0), 0)).ok());
  worker(0).Commit(0);
  LocalWorker next = Joined(&job_.cluster, 0, job_.manifest);
  // Nobody can write it yet.
  EXPECT_EQ(engine()->Status().memory_planned_bytes, alone);
  const RegionGrant grant = Grant(next.session());
  ASSERT_THAT(grant.row, SizeIs(1));
  EXPECT_EQ(engine()->Status().memory_planned_bytes,
            alone + grant.row[0].region->num_bytes());
  ASSERT_TRUE(worker(1).Contribute(0, Row(5)).ok());
  job_.cluster.Settle();
  EXPECT_EQ(engine()->Status().memory_planned_bytes, alone);
}

int64_t PlannedBytes() {
  RunningJob job(Sharing(), TestManifest(), 2);
  return job.cluster.engine(0)->Status().memory_planned_bytes;
}

ClusterOptions SharingWithoutRoom() {
  ClusterOptions options = Sharing();
  options.shard.memory_budget.host_bytes = PlannedBytes();
  return options;
}

class TightBudgetTest : public ShardRegionsTest {
 protected:
  TightBudgetTest() : ShardRegionsTest(SharingWithoutRoom()) {}
};

// The worker is let in all the same: the round may need it. It sends its rows.
TEST_F(TightBudgetTest, ASuccessorWaitsForMemoryThatItMayWrite) {
  Write(Grant(worker(0).session()), Row(5));
  ASSERT_TRUE(Land(InPlace(worker(0), 0)).ok());
  worker(0).Commit(0);
  LocalWorker next = Joined(&job_.cluster, 0, job_.manifest);
  const RegionGrant now = Grant(next.session());
  EXPECT_TRUE(now.row.empty());
  EXPECT_TRUE(now.row_later);
  ASSERT_TRUE(worker(1).Contribute(0, Row(5)).ok());
  job_.cluster.Settle();
  const RegionGrant later = Grant(next.session());
  EXPECT_THAT(later.row, SizeIs(1));
  EXPECT_FALSE(later.row_later);
  EXPECT_EQ(engine()->Status().memory_planned_bytes,
            engine()->Status().memory_budget_bytes);
}

// The row of a worker that sends is in the memory that the next one would get.
TEST_F(ShardRegionsTest, ARowThatIsHeldIsGrantedLater) {
  ASSERT_TRUE(worker(0).Push(0, Row(5)).ok());
  worker(0).Commit(0);
  LocalWorker next = Joined(&job_.cluster, 0, job_.manifest);
  const RegionGrant now = Grant(next.session());
  EXPECT_TRUE(now.row.empty());
  EXPECT_TRUE(now.row_later);
  ASSERT_TRUE(worker(1).Contribute(0, Row(5)).ok());
  job_.cluster.Settle();
  const RegionGrant later = Grant(next.session());
  EXPECT_THAT(later.row, SizeIs(1));
  EXPECT_FALSE(later.row_later);
}

TEST_F(ShardRegionsTest, ASecondGradientOfARoundIsSent) {
  Write(Grant(worker(0).session()), Row(4));
  ASSERT_TRUE(Land(InPlace(worker(0), 0)).ok());
  // P5: the same attempt by payload is another gradient.
  EXPECT_EQ(worker(0).Push(0, Row(5)).code(),
            absl::StatusCode::kFailedPrecondition);
  // Repeated in place it is a duplicate.
  EXPECT_TRUE(Land(InPlace(worker(0), 0))->acknowledge);
}

ClusterOptions SharingInt8() {
  ClusterOptions options = Sharing();
  options.shard.push_dtype = DType::kI8;
  return options;
}

class Int8Test : public ShardRegionsTest {
 protected:
  Int8Test() : ShardRegionsTest(SharingInt8()) {}
};

// To who does not know where the scales of a row lie. Versions are shared all
// the same.
TEST_F(Int8Test, RowsOfAnOlderClientAreSent) {
  const RegionGrant grant = Grant(worker(0).session());
  EXPECT_TRUE(grant.row.empty());
  EXPECT_FALSE(grant.row_later);
  EXPECT_FALSE(grant.versions.empty());
  FrameHeader header = InPlace(worker(0), 0);
  header.dtype = DType::kI8;
  EXPECT_THAT(Refusal(header), HasSubstr("has no region here"));
}

class PrivateMemoryTest : public ShardRegionsTest {
 protected:
  PrivateMemoryTest() : ShardRegionsTest(Sharing(false)) {}
};

TEST_F(PrivateMemoryTest, NothingIsGranted) {
  const RegionGrant grant = Grant(worker(0).session());
  EXPECT_TRUE(grant.row.empty());
  EXPECT_TRUE(grant.versions.empty());
  EXPECT_FALSE(grant.row_later);
}

// In a row of int8 the scales lie behind all elements.
TEST(RowOfInt8Test, IsForWhoKnowsWhereItsScalesLie) {
  ClusterOptions options = MakeClusterOptions(1, 1);
  options.shard.shared_memory = true;
  options.shard.push_dtype = DType::kI8;
  RunningJob job(options, MakeManifest({{300}, {5}}), 1);
  ShardEngine* const engine = job.cluster.engine(0);
  LocalWorker& worker = job.workers[0];
  RegionQuery query{worker.session(), 0, engine->life()};
  const auto older = engine->GrantRegions(query);
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_TRUE(older->row.empty());
  EXPECT_FALSE(older->versions.empty());
  query.takes_int8 = true;
  const auto grant = engine->GrantRegions(query);
  ASSERT_TRUE(grant.ok()) << grant.status();
  ASSERT_THAT(grant->row, SizeIs(1));
  EXPECT_EQ(grant->row[0].dtype, DType::kI8);
  EXPECT_THAT(grant->row_offsets, testing::ElementsAre(0, 512));
  // 3 blocks: 2 of the first tensor.
  const std::shared_ptr<Region> row = grant->row[0].region;
  EXPECT_EQ(row->num_bytes(), 3 * 260);
  std::memset(row->data(), 10, 300);
  std::memset(row->data() + 512, 20, 5);
  const float scales[] = {0.5f, 2.0f, 4.0f};
  std::memcpy(row->data() + 3 * 256, scales, sizeof(scales));
  FrameHeader header = worker.Header(0);
  header.slices = {0, 1};
  header.in_place = true;
  absl::StatusOr<FrameLanding> landing = engine->BeginFrame(header);
  ASSERT_TRUE(landing.ok()) << landing.status();
  for (SliceLanding& slice : landing->slices) slice.landed = true;
  ASSERT_TRUE(engine->EndFrame(*landing).ok());
  worker.Commit(0);
  job.cluster.Settle();
  const Tensors start = *job.cluster.Pull(0);
  const Tensors end = *job.cluster.Pull(1);
  EXPECT_EQ(end[0][0], start[0][0] - 0.5f * 5.0f);
  EXPECT_EQ(end[0][299], start[0][299] - 0.5f * 20.0f);
  EXPECT_EQ(end[1][4], start[1][4] - 0.5f * 80.0f);
}

// Rows that their workers write on the shard's device (P47).

ClusterOptions OnDevice() {
  ClusterOptions options = Sharing();
  options.make_backend = [] { return std::make_unique<TwoSidedBackend>(); };
  return options;
}

class ShardDeviceRowsTest : public ShardRegionsTest {
 protected:
  explicit ShardDeviceRowsTest(const ClusterOptions& options = OnDevice())
      : ShardRegionsTest(options) {}

  RegionGrant Grant(uint64_t session) {
    return ShardRegionsTest::Grant(session, /*takes_device=*/true);
  }

  // As the worker's process does it, in memory that it has mapped.
  static void Write(const RegionGrant& grant, const Tensors& tensors) {
    const auto memory = *SharedMemory::Map(
        FileDescriptor(dup(grant.row_device[0].share.fd)),
        grant.row_device[0].share.mapped_bytes, SharedMemory::Others::kWrite);
    for (size_t t = 0; t < tensors.size(); ++t) {
      std::memcpy(memory->data() + grant.row_offsets[t], tensors[t].data(),
                  tensors[t].size() * sizeof(float));
    }
  }

  FrameHeader OnDeviceFrame(LocalWorker& worker, uint64_t round) {
    FrameHeader header = InPlace(worker, round);
    header.on_device = true;
    return header;
  }
};

TEST_F(ShardDeviceRowsTest, ARowOnTheDeviceCountsAsItIs) {
  const RegionGrant grant = Grant(worker(0).session());
  ASSERT_THAT(grant.row_device, SizeIs(1));
  EXPECT_EQ(grant.row_device[0].number, grant.row[0].region->number());
  EXPECT_EQ(grant.row_device[0].num_bytes, grant.row[0].region->num_bytes());
  Write(grant, Row(5));
  // The host's side is not looked at.
  std::memset(grant.row[0].region->data(), 0x7f,
              static_cast<size_t>(grant.row[0].region->num_bytes()));
  const auto landed = Land(OnDeviceFrame(worker(0), 0));
  ASSERT_TRUE(landed.ok()) << landed.status();
  EXPECT_TRUE(landed->acknowledge);
  EXPECT_EQ(engine()->Status().push_bytes_in_place, 46 * 4);
  EXPECT_EQ(engine()->Status().push_bytes_on_device, 46 * 4);
  worker(0).Commit(0);
  ASSERT_TRUE(worker(1).Contribute(0, Row(5)).ok());
  ExpectStep(Row(5));
}

// Its zeros are written on the host.
TEST_F(ShardDeviceRowsTest, AbsentSlicesAreZeroOnTheDevice) {
  Tensors row = Row(5);
  Write(Grant(worker(0).session()), row);
  FrameHeader header = OnDeviceFrame(worker(0), 0);
  header.slices = {0, 1};
  header.absent_slices = {2};
  ASSERT_TRUE(Land(header).ok());
  worker(0).Commit(0);
  for (float& value : row[2]) value = 0.0f;
  ASSERT_TRUE(worker(1).Contribute(0, row).ok());
  ExpectStep(row);
}

// Whose worker's copies failed in the midst: each slice is on one side, and one
// that is named again stays where it is.
TEST_F(ShardDeviceRowsTest, SlicesThatAreWrittenOnTheHostAreCopied) {
  const Tensors row = Row(5);
  const RegionGrant grant = Grant(worker(0).session());
  Tensors first = row;
  std::fill(first[2].begin(), first[2].end(), 7.0f);
  Write(grant, first);
  FrameHeader header = OnDeviceFrame(worker(0), 0);
  header.slices = {0, 1};
  ASSERT_TRUE(Land(header).ok());
  char* const host = grant.row[0].region->data();
  std::memset(host, 0x7f,
              static_cast<size_t>(grant.row[0].region->num_bytes()));
  std::memcpy(host + grant.row_offsets[2], row[2].data(), row[2].size() * 4);
  header.slices = {0, 1, 2};
  header.on_device = false;
  const auto landed = Land(header);
  ASSERT_TRUE(landed.ok()) << landed.status();
  EXPECT_TRUE(landed->acknowledge);
  worker(0).Commit(0);
  ASSERT_TRUE(worker(1).Contribute(0, row).ok());
  ExpectStep(row);
}

// What was sent lands on the host and is copied before a version is published:
// the worker may write its next row on the device from then on.
TEST_F(ShardDeviceRowsTest, AVersionIsPublishedBehindTheCopiesOfRows) {
  const RegionGrant grant = Grant(worker(0).session());
  ASSERT_TRUE(worker(0).Contribute(0, Row(4)).ok());
  ASSERT_TRUE(worker(1).Contribute(0, Row(4)).ok());
  ASSERT_TRUE(job_.cluster.Pull(1).ok());
  Write(grant, Row(5));
  ASSERT_TRUE(Land(OnDeviceFrame(worker(0), 1)).ok());
  worker(0).Commit(1);
  ASSERT_TRUE(worker(1).Contribute(1, Row(5)).ok());
  const Tensors start = *job_.cluster.Pull(1);
  const Tensors end = *job_.cluster.Pull(2);
  EXPECT_EQ(end[0][0], start[0][0] - 0.5f * Row(5)[0][0]);
}

TEST_F(ShardDeviceRowsTest, LiesAreRefused) {
  EXPECT_THAT(Refusal(OnDeviceFrame(worker(0), 0)),
              HasSubstr("this session has no region here"));
  Grant(worker(0).session());
  FrameHeader header = OnDeviceFrame(worker(0), 0);
  header.in_place = false;
  EXPECT_THAT(Refusal(header),
              HasSubstr("meta.on_device is set without meta.in_place"));
  header = OnDeviceFrame(worker(0), 0);
  header.payload_bytes = 4;
  EXPECT_THAT(Refusal(header), HasSubstr("payload has 4 bytes"));
}

TEST_F(ShardDeviceRowsTest, WhoDoesNotAskGetsTheHostsSideAlone) {
  const RegionGrant grant = ShardRegionsTest::Grant(worker(0).session());
  EXPECT_THAT(grant.row, SizeIs(1));
  EXPECT_THAT(grant.row_device, IsEmpty());
  EXPECT_THAT(grant.parameters_device, IsEmpty());
}

class ShardWithoutDeviceTest : public ShardDeviceRowsTest {
 protected:
  static ClusterOptions OnHost() {
    ClusterOptions options = OnDevice();
    options.make_backend = nullptr;
    return options;
  }
  ShardWithoutDeviceTest() : ShardDeviceRowsTest(OnHost()) {}
};

TEST_F(ShardWithoutDeviceTest, NothingIsOnADevice) {
  EXPECT_THAT(Grant(worker(0).session()).row_device, IsEmpty());
  EXPECT_THAT(Refusal(OnDeviceFrame(worker(0), 0)),
              HasSubstr("this session's row has no side on a device"));
}

}  // namespace
}  // namespace agg
