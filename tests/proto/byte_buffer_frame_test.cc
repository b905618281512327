#include "proto/byte_buffer_frame.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/crc32c.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

std::string Flatten(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

// In pieces of `piece` bytes, as a network delivers them.
grpc::ByteBuffer BufferOf(const std::string& bytes, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t i = 0; i < bytes.size(); i += piece) {
    slices.emplace_back(bytes.substr(i, piece));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

v1::FrameMeta ExampleMeta() {
  v1::FrameMeta meta;
  meta.set_epoch(5);
  meta.set_session(0x0102030405060708);
  meta.set_round(3);
  meta.set_dtype(v1::F32);
  meta.add_slices(0);
  meta.add_crc32c(0xaa36f2c9);
  return meta;
}

// 1.0f and -2.0f, little endian.
const char kPayload[] = "\x00\x00\x80\x3f\x00\x00\x00\xc0";
std::string Payload() { return std::string(kPayload, 8); }

// The worked example of proto/README.md.
const char kExampleHex[] =
    "0a18080511080706050403020118032801320100"
    "3a04c9f236aa7a080000803f000000c0";

TEST(FrameTest, WorkedExampleOfTheReadme) {
  ASSERT_EQ(Crc32c(Payload()), 0xaa36f2c9u);
  const std::string payload = Payload();
  const grpc::ByteBuffer frame = MakeFrame(ExampleMeta(), {payload}, nullptr);
  EXPECT_EQ(absl::BytesToHexString(Flatten(frame)), kExampleHex);
}

// The same with int8, whose bytes go to two places.
TEST(FrameTest, WorkedExampleOfInt8OfTheReadme) {
  const std::string payload("\x00\x00\x00\x3f\x02\xfe\x7f\x81", 8);
  ASSERT_EQ(Crc32c(payload), 0xd62d9f8du);
  v1::FrameMeta meta = ExampleMeta();
  meta.set_dtype(v1::I8);
  meta.set_crc32c(0, Crc32c(payload));
  const std::string bytes = Flatten(MakeFrame(meta, {payload}, nullptr));
  EXPECT_EQ(absl::BytesToHexString(bytes),
            "0a18080511080706050403020118032804320100"
            "3a048d9f2dd67a080000003f02fe7f81");
  for (const size_t piece : {1, 3, 64}) {
    FrameReader reader;
    ASSERT_TRUE(reader.Init(BufferOf(bytes, piece)).ok());
    float scale = 0.0f;
    std::string elements(4, '\0');
    uint32_t crc =
        reader.ReadOn(reinterpret_cast<char*>(&scale), 4, kCrc32cInit);
    crc = reader.ReadOn(&elements[0], 4, crc);
    EXPECT_EQ(FinishCrc32c(crc), reader.meta().crc32c(0));
    EXPECT_EQ(scale, 0.5f);
    EXPECT_EQ(elements, payload.substr(4));
    EXPECT_EQ(reader.remaining_bytes(), 0);
  }
}

TEST(FrameTest, IsWhatProtobufWrites) {
  v1::PushFrame message;
  *message.mutable_meta() = ExampleMeta();
  message.set_payload(Payload());
  const std::string payload = Payload();
  const absl::string_view whole = payload;
  const grpc::ByteBuffer frame =
      MakeFrame(ExampleMeta(), {whole.substr(0, 3), whole.substr(3)}, nullptr);
  EXPECT_EQ(Flatten(frame), message.SerializeAsString());
  v1::PullFrame parsed;
  ASSERT_TRUE(parsed.ParseFromString(Flatten(frame)));
  EXPECT_EQ(parsed.payload(), Payload());
}

TEST(FrameTest, FramesMayShareAHeader) {
  const std::string payload = Payload();
  const grpc::Slice header =
      MakeFrameHeader(ExampleMeta(), static_cast<int64_t>(payload.size()));
  for (int i = 0; i < 2; ++i) {
    const grpc::ByteBuffer frame = MakeFrame(header, {payload}, nullptr);
    EXPECT_EQ(absl::BytesToHexString(Flatten(frame)), kExampleHex);
  }
}

TEST(FrameTest, PayloadIsNotCopiedAndItsOwnerIsReleased) {
  auto owner = std::make_shared<std::string>(1 << 16, 'x');
  const std::weak_ptr<std::string> watch = owner;
  const char* const data = owner->data();
  {
    const grpc::ByteBuffer frame = MakeFrame(ExampleMeta(), {*owner}, owner);
    owner.reset();
    ASSERT_FALSE(watch.expired());
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(frame.Dump(&slices).ok());
    EXPECT_EQ(reinterpret_cast<const char*>(slices.back().begin()), data);
  }
  EXPECT_TRUE(watch.expired());
}

TEST(FrameReaderTest, ReadsAndSkipsAcrossPieces) {
  const std::string payload = "0123456789abcdefghij";
  v1::PushFrame message;
  *message.mutable_meta() = ExampleMeta();
  message.set_payload(payload);
  for (size_t piece : {1, 2, 3, 7, 1000}) {
    FrameReader reader;
    ASSERT_TRUE(reader.Init(BufferOf(message.SerializeAsString(), piece)).ok());
    EXPECT_EQ(reader.meta().session(), 0x0102030405060708u);
    ASSERT_EQ(reader.remaining_bytes(), 20);
    std::string out(10, '\0');
    EXPECT_EQ(reader.Read(&out[0], 10), Crc32c("0123456789"));
    EXPECT_EQ(out, "0123456789");
    reader.Skip(4);
    EXPECT_EQ(reader.Read(&out[0], 6), Crc32c("efghij"));
    EXPECT_EQ(reader.remaining_bytes(), 0);
  }
}

TEST(FrameReaderTest, NoPayloadIsAFrame) {
  v1::PushFrame message;
  *message.mutable_meta() = ExampleMeta();
  FrameReader reader;
  ASSERT_TRUE(reader.Init(BufferOf(message.SerializeAsString(), 5)).ok());
  EXPECT_EQ(reader.remaining_bytes(), 0);
}

// Fields that a later version adds to the meta do not hurt.
TEST(FrameReaderTest, UnknownFieldsOfTheMetaAreIgnored) {
  std::string meta = ExampleMeta().SerializeAsString();
  meta += std::string("\xf8\x07\x2a", 3);  // field 127, varint 42
  std::string frame = "\x0a";
  frame += static_cast<char>(meta.size());
  frame += meta;
  frame += std::string("\x7a\x01z", 3);
  FrameReader reader;
  ASSERT_TRUE(reader.Init(BufferOf(frame, 4)).ok());
  EXPECT_EQ(reader.meta().round(), 3u);
  EXPECT_EQ(reader.remaining_bytes(), 1);
}

v1::PushFrame FrameOfOneTrip() {
  v1::PushFrame message;
  *message.mutable_meta() = ExampleMeta();
  message.mutable_commit()->set_session(7);
  message.mutable_commit()->set_round(3);
  message.mutable_pull()->set_version(4);
  return message;
}

TEST(FrameReaderTest, CommitAndPullComeBetweenMetaAndPayload) {
  v1::PushFrame message = FrameOfOneTrip();
  const std::string payload = Payload();
  const grpc::ByteBuffer frame =
      MakeFrame(MakeFrameHeader(message, 8), {payload}, nullptr);
  message.set_payload(payload);
  EXPECT_EQ(Flatten(frame), message.SerializeAsString());
  for (size_t piece : {1, 5, 1000}) {
    FrameReader reader;
    ASSERT_TRUE(reader.Init(BufferOf(Flatten(frame), piece)).ok());
    EXPECT_EQ(reader.meta().round(), 3u);
    ASSERT_TRUE(reader.commit().has_value());
    EXPECT_EQ(reader.commit()->session(), 7u);
    ASSERT_TRUE(reader.pull().has_value());
    EXPECT_EQ(reader.pull()->version(), 4u);
    std::string out(8, '\0');
    EXPECT_EQ(reader.Read(&out[0], 8), Crc32c(payload));
  }
}

TEST(FrameReaderTest, EachOfCommitAndPullMayComeAlone) {
  v1::PushFrame committed = FrameOfOneTrip();
  committed.clear_pull();
  v1::PushFrame pulled = FrameOfOneTrip();
  pulled.clear_commit();
  FrameReader reader;
  ASSERT_TRUE(reader.Init(BufferOf(committed.SerializeAsString(), 9)).ok());
  EXPECT_TRUE(reader.commit().has_value() && !reader.pull().has_value());
  ASSERT_TRUE(reader.Init(BufferOf(pulled.SerializeAsString(), 9)).ok());
  EXPECT_TRUE(!reader.commit().has_value() && reader.pull().has_value());
}

TEST(FrameReaderTest, CommitAndPullAreRefusedOutOfOrderOrTwiceOrTooLong) {
  const std::string meta =
      absl::HexStringToBytes(std::string(kExampleHex).substr(0, 52));
  const std::string commit("\x12\x02\x18\x03", 4);
  const std::string pull("\x1a\x02\x10\x04", 4);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {meta + pull + commit, "field 2 follows pull"},
      {meta + commit + commit, "field 2 follows commit"},
      {meta + pull + pull, "field 3 follows pull"},
      {commit + meta, "does not start with meta"},
      {meta + commit + meta, "field 1 follows commit"},
      {meta + "\x12", "length of commit is cut"},
      {meta + "\x1a\x03\x10", "pull does not parse"},
      {meta + "\x12\x81\x80\x04", "commit has 65537 bytes, over 65536"},
      {meta + "\x22\x01z", "field 4 follows meta"},
  };
  for (const auto& [bytes, message] : cases) {
    FrameReader reader;
    const absl::Status status = reader.Init(BufferOf(bytes, 3));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

TEST(FrameReaderTest, AnAcknowledgementHasAVersionsFrame) {
  v1::PushAck head;
  *head.mutable_meta() = ExampleMeta();
  head.set_last(true);
  const std::string payload = Payload();
  const std::string bytes =
      Flatten(MakeFrame(MakeFrameHeader(head, 8), {payload}, nullptr));
  v1::PushAck whole = head;
  whole.set_payload(payload);
  EXPECT_EQ(bytes, whole.SerializeAsString());
  for (size_t piece : {1, 4, 1000}) {
    FrameReader reader;
    v1::PushAck ack;
    ASSERT_TRUE(reader.InitAck(BufferOf(bytes, piece), &ack).ok());
    EXPECT_EQ(ack.SerializeAsString(), head.SerializeAsString());
    EXPECT_EQ(reader.meta().round(), 3u);
    ASSERT_EQ(reader.remaining_bytes(), 8);
    std::string out(8, '\0');
    EXPECT_EQ(reader.Read(&out[0], 8), Crc32c(payload));
  }
}

TEST(FrameReaderTest, AnAcknowledgementWithoutAPayloadIsRead) {
  v1::PushAck sent;
  sent.set_round(9);
  sent.mutable_outcome()->set_version(10);
  FrameReader reader;
  v1::PushAck ack;
  ASSERT_TRUE(reader.InitAck(BufferOf(sent.SerializeAsString(), 2), &ack).ok());
  EXPECT_EQ(ack.outcome().version(), 10u);
  EXPECT_EQ(reader.remaining_bytes(), 0);
  for (const char* hex : {"38", "3a05080511", "7a09", "ff"}) {
    EXPECT_EQ(
        reader.InitAck(BufferOf(absl::HexStringToBytes(hex), 2), &ack).code(),
        absl::StatusCode::kInvalidArgument)
        << hex;
  }
}

struct Malformed {
  std::string hex;
  std::string message;
};

TEST(FrameReaderTest, MalformedFramesAreRefusedByName) {
  const std::string good = kExampleHex;
  const std::string meta = good.substr(0, 52);
  const std::vector<Malformed> cases = {
      {"", "does not start with meta"},
      {"7a0401020304", "does not start with meta"},
      {"0a", "length of meta is cut"},
      {"0affffffffff", "length of meta is cut"},
      {"0a8080800408", "meta has 8388608 bytes"},
      {"0a05080511", "meta does not parse"},
      {"0a02ffff", "meta does not parse"},
      {meta + "7a", "length of payload is cut"},
      {meta + "7a09" + good.substr(56), "payload says 9 bytes, 8"},
      {meta + "7a07" + good.substr(56), "payload says 7 bytes, 8"},
      {good + "00", "payload says 8 bytes, 9"},
      {meta + "00", "field 0 follows meta"},
      {meta + "80", "field 0 follows meta"},
      {meta + meta, "field 1 follows meta"},
      {meta + "7affffffff0f", "payload says 4294967295 bytes, 0"},
  };
  for (const Malformed& c : cases) {
    for (size_t piece : {1, 3, 1000}) {
      FrameReader reader;
      const absl::Status status =
          reader.Init(BufferOf(absl::HexStringToBytes(c.hex), piece));
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.hex;
      EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.hex;
      EXPECT_EQ(reader.remaining_bytes(), 0);
    }
  }
}

// No cut of a good frame is a good frame, except behind its meta.
TEST(FrameReaderTest, EveryTruncationIsRefused) {
  const std::string bytes = absl::HexStringToBytes(kExampleHex);
  for (size_t size = 0; size < bytes.size(); ++size) {
    FrameReader reader;
    EXPECT_EQ(reader.Init(BufferOf(bytes.substr(0, size), 2)).ok(), size == 26u)
        << size;
  }
}

// The next frame after a bad one.
TEST(FrameReaderTest, CanBeUsedAgain) {
  FrameReader reader;
  EXPECT_FALSE(reader.Init(BufferOf("junk", 4)).ok());
  ASSERT_TRUE(
      reader.Init(BufferOf(absl::HexStringToBytes(kExampleHex), 9)).ok());
  EXPECT_EQ(reader.remaining_bytes(), 8);
}

}  // namespace
}  // namespace agg
