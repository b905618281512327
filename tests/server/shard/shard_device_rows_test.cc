// Rows that their workers write on the shard's device (P47).
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/file_descriptor.h"
#include "server/base/shared_memory.h"
#include "server/ingest/frame.h"
#include "server/shard/region_grant.h"
#include "tests/server/round/local_cluster.h"
#include "tests/server/shard/two_sided_backend.h"

namespace agg {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

ClusterOptions OnDevice() {
  ClusterOptions options = MakeClusterOptions(1, 2);
  options.shard.shared_memory = true;
  options.make_backend = [] { return std::make_unique<TwoSidedBackend>(); };
  return options;
}

Manifest TestManifest() {
  Manifest manifest = MakeManifest({{40}, {}, {5}});
  manifest.tensors[2].optional = true;
  return manifest;
}

// Two workers on one shard, in round 0.
class ShardDeviceRowsTest : public testing::Test {
 protected:
  explicit ShardDeviceRowsTest(const ClusterOptions& options = OnDevice())
      : job_(options, TestManifest(), 2) {}

  ShardEngine* engine() { return job_.cluster.engine(0); }
  LocalWorker& worker(int rank) { return job_.workers[rank]; }
  Tensors Row(uint64_t seed) { return RandomTensors(job_.manifest, seed); }

  RegionGrant Grant(uint64_t session, bool takes_device = true) {
    RegionQuery query;
    query.session = session;
    query.life = engine()->life();
    query.takes_device = takes_device;
    const absl::StatusOr<RegionGrant> grant = engine()->GrantRegions(query);
    EXPECT_TRUE(grant.ok()) << grant.status();
    return grant.ok() ? *grant : RegionGrant();
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
    FrameHeader header = worker.Header(round);
    header.slices = {0, 1, 2};
    header.in_place = true;
    header.on_device = true;
    return header;
  }
  absl::StatusOr<FrameResult> Land(const FrameHeader& header) {
    absl::StatusOr<FrameLanding> landing = engine()->BeginFrame(header);
    if (!landing.ok()) return landing.status();
    for (SliceLanding& slice : landing->slices) slice.landed = true;
    return engine()->EndFrame(*landing);
  }
  // That `row` was worker 0's part of round 0.
  void ExpectStep(const Tensors& row) {
    const Tensors start = *job_.cluster.Pull(0);
    const Tensors end = *job_.cluster.Pull(1);
    for (size_t t = 0; t < start.size(); ++t) {
      for (size_t e = 0; e < start[t].size(); ++e) {
        EXPECT_EQ(end[t][e], start[t][e] - 0.5f * row[t][e]);
      }
    }
  }

  RunningJob job_;
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
  const auto refused = [&](const FrameHeader& header) {
    const auto result = Land(header);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(result.status().message());
  };
  EXPECT_THAT(refused(OnDeviceFrame(worker(0), 0)),
              HasSubstr("this session has no region here"));
  Grant(worker(0).session());
  FrameHeader header = OnDeviceFrame(worker(0), 0);
  header.in_place = false;
  EXPECT_THAT(refused(header),
              HasSubstr("meta.on_device is set without meta.in_place"));
  header = OnDeviceFrame(worker(0), 0);
  header.payload_bytes = 4;
  EXPECT_THAT(refused(header), HasSubstr("payload has 4 bytes"));
}

TEST_F(ShardDeviceRowsTest, WhoDoesNotAskGetsTheHostsSideAlone) {
  const RegionGrant grant = Grant(worker(0).session(), /*takes_device=*/false);
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
  const auto landed = Land(OnDeviceFrame(worker(0), 0));
  EXPECT_TRUE(absl::IsInvalidArgument(landed.status()));
  EXPECT_THAT(landed.status().message(),
              HasSubstr("this session's row has no side on a device"));
}

}  // namespace
}  // namespace agg
