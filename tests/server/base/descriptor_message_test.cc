#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/local_socket.h"

namespace agg {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr absl::Duration kShort = absl::Milliseconds(1);

class DescriptorMessageTest : public testing::Test {
 protected:
  DescriptorMessageTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    near_ = FileDescriptor(ends[0]);
    far_ = FileDescriptor(ends[1]);
  }
  FileDescriptor near_;
  FileDescriptor far_;
};

TEST_F(DescriptorMessageTest, BytesAndDescriptorsArrive) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const FileDescriptor in(ends[0]);
  const FileDescriptor out(ends[1]);
  const std::string bytes(3 << 20, 'a');  // more than a socket holds
  std::thread sender([&] {
    EXPECT_TRUE(
        SendMessage(near_.get(), bytes, {in.get(), out.get()}, kPatience).ok());
  });
  auto message = ReceiveMessage(far_.get(), bytes.size(), kPatience);
  sender.join();
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->bytes, bytes);
  ASSERT_THAT(message->descriptors, SizeIs(2));
  EXPECT_EQ(write(message->descriptors[1].get(), "x", 1), 1);
  char read_back = 0;
  EXPECT_EQ(read(in.get(), &read_back, 1), 1);
  EXPECT_EQ(read_back, 'x');
  EXPECT_NE(fcntl(message->descriptors[0].get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(DescriptorMessageTest, AnEmptyOneIsAMessage) {
  ASSERT_TRUE(SendMessage(near_.get(), "", {}, kPatience).ok());
  EXPECT_EQ(ReceiveMessage(far_.get(), 0, kPatience)->bytes, "");
}

TEST_F(DescriptorMessageTest, WhatIsTooLongIsRefusedUnread) {
  ASSERT_TRUE(SendMessage(near_.get(), "12345", {}, kPatience).ok());
  const absl::Status refused =
      ReceiveMessage(far_.get(), 4, kPatience).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(refused.message(), HasSubstr("5 bytes; allowed: at most 4"));
}

TEST_F(DescriptorMessageTest, MoreDescriptorsThanAllowedAreRefused) {
  const std::vector<int> half(kMaxDescriptors / 2 + 1, near_.get());
  ASSERT_TRUE(SendMessage(near_.get(), "", half, kPatience).ok());
  ASSERT_TRUE(ReceiveMessage(far_.get(), 0, kPatience).ok());
  // Two empty messages as the bytes of one.
  const char length[] = {8, 0, 0, 0};
  ASSERT_EQ(send(near_.get(), length, sizeof(length), 0), 4);
  ASSERT_TRUE(SendMessage(near_.get(), "", half, kPatience).ok());
  ASSERT_TRUE(SendMessage(near_.get(), "", half, kPatience).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(
      ReceiveMessage(far_.get(), 8, kPatience).status()));
}

TEST_F(DescriptorMessageTest, SilenceEnds) {
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(ReceiveMessage(far_.get(), 8, kShort).status()));
  ASSERT_EQ(send(near_.get(), "\x08", 1, 0), 1);
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(ReceiveMessage(far_.get(), 8, kShort).status()));
  const std::string bytes(16 << 20, 'a');  // nobody reads
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(SendMessage(near_.get(), bytes, {}, kShort)));
}

TEST_F(DescriptorMessageTest, TheOtherEndMayBeGone) {
  far_ = FileDescriptor();
  EXPECT_TRUE(
      absl::IsUnavailable(ReceiveMessage(near_.get(), 8, kPatience).status()));
  EXPECT_TRUE(
      absl::IsUnavailable(SendMessage(near_.get(), "12", {}, kPatience)));
}

}  // namespace
}  // namespace agg
