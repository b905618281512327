// What processes of the host get from a shard, and what hostile ones do not.
#include "server/rpc/region_server.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/dtype.h"
#include "proto/protocol_version.h"
#include "proto/region.pb.h"
#include "server/base/local_socket.h"
#include "server/params/shared_buffer.h"
#include "server/shard/region_grant.h"

namespace agg {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr absl::Duration kPatience = absl::Seconds(60);

class RegionServerTest : public testing::Test {
 protected:
  RegionServerTest() {
    std::random_device random;
    name_ = RegionSocketName((uint64_t{random()} << 32) | random());
    auto server = RegionServer::Start(
        name_, [this](const RegionQuery& query) { return Grant(query); });
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  absl::StatusOr<RegionGrant> Grant(const RegionQuery& query) {
    if (query.session == 9) return absl::NotFoundError("unknown session");
    RegionGrant grant;
    if (query.session != 0) {
      grant.row = {{DType::kBF16, row_}};
      grant.row_offsets = {0, 64};
    }
    grant.versions.assign(num_versions_, {DType::kF32, version_});
    if (query.takes_device) {
      const auto granted = [](const std::shared_ptr<Region>& region,
                              DType dtype) {
        GrantedDevice device{dtype, region->number(), region->num_bytes(),
                             {},    region,           region};
        device.share.fd = region->fd();
        device.share.mapped_bytes = 4096;
        device.share.uuid.fill('u');
        return device;
      };
      grant.row_device = {granted(row_, DType::kBF16)};
      grant.parameters_device = {granted(version_, DType::kF32)};
    }
    return grant;
  }

  static v1::RegionRequest Request(uint64_t session) {
    v1::RegionRequest request;
    request.set_protocol_version(kProtocolVersion);
    request.set_session(session);
    return request;
  }
  // Sends the bytes as a message; the reply.
  absl::StatusOr<DescriptorMessage> Ask(const std::string& bytes) {
    const auto socket = ConnectLocally(name_);
    if (!socket.ok()) return socket.status();
    const absl::Status sent = SendMessage(socket->get(), bytes, {}, kPatience);
    if (!sent.ok()) return sent;
    return ReceiveMessage(socket->get(), 1 << 20, kPatience);
  }
  v1::RegionReply Answer(const v1::RegionRequest& request,
                         size_t num_descriptors) {
    v1::RegionReply reply;
    const auto message = Ask(request.SerializeAsString());
    EXPECT_TRUE(message.ok()) << message.status();
    if (!message.ok()) return reply;
    EXPECT_THAT(message->descriptors, SizeIs(num_descriptors));
    EXPECT_TRUE(reply.ParseFromString(message->bytes));
    return reply;
  }

  const std::shared_ptr<Region> row_ = SharedBuffer::RegionOf(
      SharedBuffer::Allocate(BufferUse::kRow, 100)->get());
  const std::shared_ptr<Region> version_ = SharedBuffer::RegionOf(
      SharedBuffer::Allocate(BufferUse::kSnapshot, 200)->get());
  size_t num_versions_ = 3;  // set before a request is made
  std::string name_;
  std::unique_ptr<RegionServer> server_;
};

TEST_F(RegionServerTest, AWorkerGetsItsRowAndTheVersions) {
  const v1::RegionReply reply = Answer(Request(7), 4);
  EXPECT_EQ(reply.code(), 0);
  EXPECT_EQ(reply.row().number(), row_->number());
  EXPECT_EQ(reply.row().bytes(), 100u);
  EXPECT_EQ(reply.row().dtype(), v1::BF16);
  EXPECT_THAT(reply.row_offsets(), testing::ElementsAre(0, 64));
  ASSERT_THAT(reply.versions(), SizeIs(3));
  EXPECT_EQ(reply.versions(0).bytes(), 200u);
}

TEST_F(RegionServerTest, AnObserverGetsTheVersions) {
  const v1::RegionReply reply = Answer(Request(0), 3);
  EXPECT_FALSE(reply.has_row());
}

TEST_F(RegionServerTest, WhoTakesADeviceGetsItsMemory) {
  v1::RegionRequest request = Request(7);
  v1::RegionReply reply = Answer(request, 4);
  EXPECT_FALSE(reply.has_row_device());
  EXPECT_FALSE(reply.has_parameters_device());
  request.set_takes_device(true);
  reply = Answer(request, 7);
  EXPECT_EQ(reply.row_device().number(), row_->number());
  EXPECT_EQ(reply.row_device().bytes(), 100u);
  EXPECT_EQ(reply.row_device().mapped_bytes(), 4096u);
  EXPECT_EQ(reply.row_device().dtype(), v1::BF16);
  EXPECT_EQ(reply.row_device().uuid(), std::string(16, 'u'));
  EXPECT_EQ(reply.parameters_device().number(), version_->number());
  EXPECT_EQ(reply.parameters_device().dtype(), v1::F32);
}

// What a message has room for.
TEST_F(RegionServerTest, VersionsMakeRoomForADevice) {
  num_versions_ = kMaxDescriptors;
  v1::RegionRequest request = Request(7);
  EXPECT_EQ(Answer(request, kMaxDescriptors).versions_size(),
            static_cast<int>(kMaxDescriptors) - 1);
  request.set_takes_device(true);
  EXPECT_EQ(Answer(request, kMaxDescriptors).versions_size(),
            static_cast<int>(kMaxDescriptors) - 4);
}

TEST_F(RegionServerTest, ARefusalHasNoDescriptors) {
  v1::RegionReply reply = Answer(Request(9), 0);
  EXPECT_EQ(reply.code(), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(reply.message(), "unknown session");
  v1::RegionRequest request = Request(7);
  request.set_protocol_version(kProtocolVersion + 1);
  reply = Answer(request, 0);
  EXPECT_EQ(reply.code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(reply.message(), HasSubstr("protocol_version is 2; allowed: 1"));
}

// None of them ends the thread.
TEST_F(RegionServerTest, HostileBytesGetNothing) {
  EXPECT_FALSE(Ask("\xff\xff\xff\xff").ok());
  EXPECT_FALSE(Ask(std::string(257, 'a')).ok());
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const auto socket = ConnectLocally(name_);
    ASSERT_TRUE(socket.ok()) << socket.status();
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    // Half of them with a length that fits.
    if (i % 2 == 0) {
      SendMessage(socket->get(), bytes, {}, kPatience).IgnoreError();
    } else {
      send(socket->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    shutdown(socket->get(), SHUT_WR);
    // Until it is answered, or the connection is closed.
    ReceiveMessage(socket->get(), 1 << 20, kPatience).status().IgnoreError();
  }
  EXPECT_EQ(Answer(Request(7), 4).code(), 0);
}

// Descriptors that nobody asked for are closed.
TEST_F(RegionServerTest, DescriptorsThatAreSentAreClosed) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const FileDescriptor in(ends[0]);
  {
    const FileDescriptor out(ends[1]);
    const auto socket = ConnectLocally(name_);
    ASSERT_TRUE(socket.ok());
    ASSERT_TRUE(SendMessage(socket->get(), Request(7).SerializeAsString(),
                            {out.get()}, kPatience)
                    .ok());
    EXPECT_TRUE(ReceiveMessage(socket->get(), 1 << 20, kPatience).ok());
  }
  char byte;
  EXPECT_EQ(read(in.get(), &byte, 1), 0);  // nobody has the other end
}

TEST_F(RegionServerTest, AnotherUsersProcessGetsNothing) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can become another user";
  }
  const pid_t child = fork();
  if (child == 0) {
    // Root's server; this process is another user's. It may connect.
    if (setresuid(65534, 65534, 65534) != 0) _exit(2);
    const auto socket = ConnectLocally(name_);
    if (!socket.ok()) _exit(3);
    SendMessage(socket->get(), Request(7).SerializeAsString(), {}, kPatience)
        .IgnoreError();
    _exit(ReceiveMessage(socket->get(), 1 << 20, kPatience).ok() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(RegionServerTest, ANameIsTakenOnce) {
  EXPECT_TRUE(absl::IsUnavailable(
      RegionServer::Start(name_, [this](const RegionQuery& query) {
        return Grant(query);
      }).status()));
}

}  // namespace
}  // namespace agg
