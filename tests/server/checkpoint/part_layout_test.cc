// A part's bytes: what the project's own reader of .npz and NumPy make of them.

#include "server/checkpoint/part_layout.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/crc32c.h"
#include "tests/server/base/sim_disk.h"
#include "tests/server/checkpoint/sample_checkpoint.h"
#include "tests/worker_client/npz/npz_files.h"
#include "worker_client/npz/npz.h"

namespace agg {
namespace {

constexpr CheckpointId kId{1000, 20};

// The bytes of a part, and its entry of the manifest.
std::string PartBytes(const ShardPlan& plan, int ordinal,
                      CheckpointPart* part) {
  SimDisk disk;
  EXPECT_TRUE(disk.CreateFolder("/disk").ok());
  CheckpointFolder folder = OpenFolder(&disk, "/disk", 1);
  const auto written = folder.WritePart(kId, SampleSource(kId, &plan, ordinal));
  EXPECT_TRUE(written.ok()) << written.status();
  *part = *written;
  return disk.Bytes(absl::StrCat(folder.PathOf(kId), "/", part->file));
}

std::string Save(const std::string& name, const std::string& bytes) {
  const std::string path = TestPath(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(PartWriterTest, LengthAndChecksumAreThoseOfTheFile) {
  const ShardPlan plan = *MakeShardPlan(SmallTensors(), 3);
  for (int i = 0; i < 3; ++i) {
    CheckpointPart part;
    const std::string bytes = PartBytes(plan, i, &part);
    EXPECT_EQ(part.file, PartFileName(i, 3));
    EXPECT_EQ(part.num_bytes, static_cast<int64_t>(bytes.size()));
    EXPECT_EQ(part.num_bytes, MakePartLayout(plan, i, 3).num_bytes);
    EXPECT_EQ(part.crc32c, Crc32c(bytes));
  }
}

TEST(PartWriterTest, LibzipReadsEachSliceWithItsBits) {
  const ShardPlan plan = *MakeShardPlan(SmallTensors(), 3);
  for (int i = 0; i < 3; ++i) {
    CheckpointPart part;
    const std::string path = Save("part.npz", PartBytes(plan, i, &part));
    const auto tensors = ReadNpz(path);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    const std::vector<int32_t>& slices = plan.slices_of_shard[i];
    ASSERT_EQ(tensors->size(), 3 * slices.size());
    for (size_t entry = 0; entry < tensors->size(); ++entry) {
      const Slice& slice = plan.slices[slices[entry / 3]];
      const int array = static_cast<int>(entry % 3);
      const NpzTensor& read = (*tensors)[entry];
      EXPECT_EQ(read.name + ".npy", PartEntryName(slice, array));
      const std::vector<float> values = SampleValues(kId, slice, array);
      ASSERT_EQ(read.values.size(), values.size());
      EXPECT_EQ(std::memcmp(read.values.data(), values.data(),
                            values.size() * sizeof(float)),
                0);
    }
  }
}

TEST(PartWriterTest, NumPyReadsAPartOfManySlicesAndAnEmptyOne) {
  // More entries than the plain records of zip can count.
  Manifest many;
  for (int i = 0; i < 22000; ++i) {
    many.tensors.push_back({absl::StrCat("t", i), {2}, "", false});
  }
  CheckpointPart part;
  const std::string path =
      Save("many.npz", PartBytes(*MakeShardPlan(many, 1), 0, &part));
  EXPECT_TRUE(
      RunPython("z = np.load(sys.argv[1])\n"
                "assert len(z.files) == 66000\n"
                "assert z['t21999.0.state1'].shape == (2,)",
                path));
  const ShardPlan plan = *MakeShardPlan(SmallTensors(), 9);
  ASSERT_TRUE(plan.slices_of_shard[8].empty());
  EXPECT_TRUE(RunPython("assert np.load(sys.argv[1]).files == []",
                        Save("empty.npz", PartBytes(plan, 8, &part))));
}

TEST(PartWriterTest, AnErrorOfTheValuesEndsIt) {
  SimDisk disk;
  ASSERT_TRUE(disk.CreateFolder("/disk").ok());
  const ShardPlan plan = *MakeShardPlan(SmallTensors(), 1);
  PartSource source = SampleSource(kId, &plan, 0);
  source.values = [](int32_t, int) {
    return absl::CancelledError("shutting down");
  };
  CheckpointFolder folder = OpenFolder(&disk, "/disk", 1);
  EXPECT_EQ(folder.WritePart(kId, source).status(),
            absl::CancelledError("shutting down"));
  EXPECT_THAT(*disk.List(folder.PathOf(kId)), testing::ElementsAre());
}

// Offsets beyond 4 GiB, without the bytes.
TEST(PartLayoutTest, CountsInSixtyFourBits) {
  Manifest large;
  large.tensors = {{"w", {int64_t{3} << 30}, "", false}};
  const ShardPlan plan = *MakeShardPlan(large, 1);
  const PartLayout layout = MakePartLayout(plan, 0, 3);
  ASSERT_EQ(layout.offsets.size(), 3u * 3072 + 1);
  EXPECT_GT(layout.num_bytes, int64_t{36} << 30);
  for (size_t i = 1; i < layout.offsets.size(); ++i) {
    ASSERT_GT(layout.offsets[i] - layout.offsets[i - 1], int64_t{4} << 20);
  }
}

}  // namespace
}  // namespace agg
