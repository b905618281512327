
#include "server/checkpoint/checkpoint_manifest.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "proto/checkpoint.pb.h"
#include "proto/crc32c.h"
#include "server/checkpoint/part_layout.h"
#include "tests/server/checkpoint/sample_checkpoint.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

// Complete, with numbers that a double cannot hold.
CheckpointManifest Sample() {
  CheckpointManifest manifest =
      SampleManifest({0xfffffffffffffffe, 0x20000000000001}, 2, SmallTensors());
  const ShardPlan plan = *MakeShardPlan(manifest.tensors, 2);
  for (int i = 0; i < 2; ++i) {
    manifest.parts.push_back({PartFileName(i, 2),
                              MakePartLayout(plan, i, 3).num_bytes,
                              0xfffffff0u + static_cast<uint32_t>(i)});
  }
  return manifest;
}

// The manifest's text with a part replaced, and the right checksum.
std::string Changed(const std::string& from, const std::string& to) {
  const std::string text = CheckpointManifestJson(Sample());
  const std::string checked = text.substr(0, text.rfind(", \"crc32c\": "));
  const std::string changed = absl::StrReplaceAll(checked, {{from, to}});
  EXPECT_NE(changed, checked) << from;
  return absl::StrCat(changed, ", \"crc32c\": ", Crc32c(changed), "}\n");
}

std::string Error(const std::string& text) {
  return std::string(ParseCheckpointManifest(text).status().message());
}

TEST(CheckpointJsonTest, ReadsWhatItWrites) {
  const CheckpointManifest manifest = Sample();
  const std::string text = CheckpointManifestJson(manifest);
  const auto back = ParseCheckpointManifest(text);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(CheckpointManifestJson(*back), text);
  EXPECT_TRUE(back->id == manifest.id);
  EXPECT_EQ(back->history, manifest.history);
  EXPECT_EQ(CompareManifests(back->tensors, manifest.tensors),
            absl::OkStatus());
  EXPECT_EQ(back->parts[1].crc32c, 0xfffffff1u);
  EXPECT_EQ(back->members[0].session, 0xfedcba9876543210u);
  EXPECT_EQ(back->members[1].client, manifest.members[1].client);
  EXPECT_EQ(back->members[0].identity, "");
  EXPECT_EQ(back->members[1].identity, "trainer");
  EXPECT_EQ(back->record, manifest.record);
  EXPECT_EQ(back->config, manifest.config);
}

TEST(CheckpointJsonTest, IsTheJsonFormOfTheMessage) {
  const CheckpointManifest manifest = Sample();
  const std::string text = CheckpointManifestJson(manifest);
  v1::CheckpointManifest message;
  const auto status =
      google::protobuf::util::JsonStringToMessage(text, &message);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(message.format(), kCheckpointFormat);
  EXPECT_EQ(message.job(), "job");
  EXPECT_EQ(message.made(), manifest.id.made);
  EXPECT_EQ(message.version(), manifest.id.version);
  EXPECT_EQ(message.history(), 7u);
  EXPECT_EQ(message.shards(), 2u);
  ASSERT_EQ(message.tensors_size(), 8);
  EXPECT_EQ(message.tensors(0).shape(1), 2);
  EXPECT_EQ(message.tensors(1).shape_size(), 0);
  EXPECT_EQ(message.tensors(3).group(), "bias");
  EXPECT_TRUE(message.tensors(4).optional());
  EXPECT_EQ(message.optimizer(), "adam");
  EXPECT_EQ(message.state_arrays(), 2u);
  ASSERT_EQ(message.parts_size(), 2);
  EXPECT_EQ(message.parts(1).file(), "part-00001-of-00002.npz");
  EXPECT_EQ(message.parts(1).bytes(), manifest.parts[1].num_bytes);
  EXPECT_EQ(message.parts(1).crc32c(), 0xfffffff1u);
  ASSERT_EQ(message.members_size(), 2);
  EXPECT_EQ(message.members(0).session(), 0xfedcba9876543210u);
  EXPECT_EQ(message.members(1).client(), manifest.members[1].client);
  EXPECT_EQ(message.members(0).identity(), "");
  EXPECT_EQ(message.members(1).identity(), "trainer");
  EXPECT_EQ(message.record(), manifest.record);
  EXPECT_EQ(message.facts(), "facts");
  EXPECT_EQ(message.config(), manifest.config);
  EXPECT_EQ(message.crc32c(),
            Crc32c(text.substr(0, text.rfind(", \"crc32c\": "))));
}

TEST(CheckpointJsonTest, AnyFlippedBitOrCutIsDataLoss) {
  const std::string text = CheckpointManifestJson(Sample());
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string flipped = text;
    flipped[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    ASSERT_TRUE(absl::IsDataLoss(ParseCheckpointManifest(flipped).status()))
        << bit;
  }
  for (size_t length = 0; length < text.size(); ++length) {
    ASSERT_TRUE(absl::IsDataLoss(
        ParseCheckpointManifest(text.substr(0, length)).status()))
        << length;
  }
}

TEST(CheckpointJsonTest, NamesTheFieldThatIsWrong) {
  const std::vector<std::pair<std::pair<std::string, std::string>, std::string>>
      cases = {
          {{"\"job\": \"job\"", "\"job\": 5"}, "job is 5; allowed: a text"},
          {{"\"job\": \"job\"", "\"job\": \"\""}, "job is \"\""},
          {{"\"made\": 18446744073709551614", "\"made\": -1"},
           "made is -1; allowed: an integer from 0 to 18446744073709551615"},
          {{"\"history\"", "\"other\""}, "history is missing"},
          {{"\"shards\": 2", "\"shards\": 3"}, "parts is 2; allowed: 3"},
          {{"\"shards\": 2", "\"shards\": 0"}, "num_shards is 0"},
          {{"\"shards\": 2", "\"shards\": 1025"}, "parts is 2; allowed: 1025"},
          {{"\"shards\": 2", "\"shards\": 4294967296"}, "shards is 4294967296"},
          {{"\"shape\": [3, 2]", "\"shape\": [3, -2]"},
           "tensors[0].shape is [3, -2]; allowed"},
          {{"\"shape\": [3, 2]", "\"shape\": [3, 9]"}, "parts["},
          {{"\"state_arrays\": 2", "\"state_arrays\": 3"},
           "state_arrays is 3; allowed: 0 to 2"},
          {{"part-00001-of-", "../0001-of-"}, "parts[1].file is \"../0001-of-"},
          {{"\"record\": \"", "\"record\": \"?"}, "record is \"?"},
          {{"\"rank\": 2", "\"rank\": true"}, "members[1].rank is true"},
          {{"\"members\": [", "\"members\": [7, "}, "members[0] is 7"},
      };
  for (const auto& one : cases) {
    const std::string text = Changed(one.first.first, one.first.second);
    EXPECT_TRUE(absl::IsInvalidArgument(ParseCheckpointManifest(text).status()))
        << text;
    EXPECT_THAT(Error(text), HasSubstr(one.second));
  }
}

TEST(CheckpointJsonTest, RefusesALaterFormatAndIgnoresNewMembers) {
  EXPECT_EQ(ParseCheckpointManifest(Changed("\"format\": 1", "\"format\": 2"))
                .status(),
            absl::UnimplementedError("format is 2; allowed: 1"));
  EXPECT_TRUE(ParseCheckpointManifest(
                  Changed("\"format\": 1", "\"format\": 1, \"new\": [{}]"))
                  .ok());
}

TEST(CheckpointNamesTest, ReadsItsOwnNamesOnly) {
  EXPECT_EQ(CheckpointFolderName({12, 3}), "12-3");
  EXPECT_TRUE(*ParseCheckpointFolderName("12-3") == (CheckpointId{12, 3}));
  for (const char* name : {"12", "12-", "-3", "012-3", "12-3 ", "12--3",
                           "12-3-4", "99999999999999999999-1", "a-b"}) {
    EXPECT_FALSE(ParseCheckpointFolderName(name).has_value()) << name;
  }
  EXPECT_EQ(ParsePartFileName("part-00003-of-00012.npz")->ordinal, 3);
  EXPECT_EQ(ParsePartFileName("part-00003-of-00012.npz")->num_shards, 12);
  for (const char* name :
       {"part-00012-of-00012.npz", "part-00003-of-00012.npy",
        "part-0003-of-00012.npz", "part-+0003-of-00012.npz",
        "part-00003-of-00012.npz.1.tmp", "manifest.json", ""}) {
    EXPECT_FALSE(ParsePartFileName(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace agg
