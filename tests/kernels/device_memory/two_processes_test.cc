// A process makes device memory, another one writes it by asynchronous copies.
// The other one is this program, started anew before there are threads.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device_memory/device_stream.h"
#include "kernels/device_memory/shared_device_memory.h"
#include "server/base/local_socket.h"
#include "tests/kernels/device_memory/fake_cuda.h"

namespace agg {
namespace {

constexpr char kChild[] = "--child";
constexpr int64_t kNumBytes = 5000000;
constexpr absl::Duration kPatience = absl::Minutes(5);

std::shared_ptr<const DeviceContext> TheContext() {
  auto driver = CudaDriver::Load(kFakeCudaPath);
  EXPECT_TRUE(driver.ok()) << driver.status();
  auto context = DeviceContext::Retain(*driver, 0);
  EXPECT_TRUE(context.ok()) << context.status();
  return *std::move(context);
}

// The bytes of the next message, or the error.
std::string Receive(int socket, FileDescriptor* descriptor = nullptr) {
  absl::StatusOr<DescriptorMessage> message =
      ReceiveMessage(socket, /*max_bytes=*/1000, kPatience);
  if (!message.ok()) return std::string(message.status().message());
  if (descriptor != nullptr && message->descriptors.size() == 1) {
    *descriptor = std::move(message->descriptors[0]);
  }
  return message->bytes;
}

void Send(int socket, const std::string& bytes) {
  SendMessage(socket, bytes, {}, kPatience).IgnoreError();
}

// Maps what it is sent and says after each step what it has come to.
void RunChild(int socket) {
  FileDescriptor fd;
  const int64_t mapped_bytes = std::atoll(Receive(socket, &fd).c_str());
  const auto context = TheContext();
  const auto memory =
      SharedDeviceMemory::Map(context, fd.get(), kNumBytes, mapped_bytes);
  if (!memory.ok()) return Send(socket, memory.status().ToString());
  fd = FileDescriptor();
  char* const gradient = fake_cuda::Alloc(kNumBytes);
  fake_cuda::Launch(0, [&] { std::memset(gradient, 42, kNumBytes); });
  auto computed = DeviceEvent::Make(context).value();
  auto stream = DeviceStream::Make(context).value();
  absl::Status status = computed->RecordDefault();
  status.Update(computed->Synchronize());
  status.Update(stream->Copy((*memory)->data(), gradient, kNumBytes));
  Send(socket, absl::StrCat("queued: ", status.ToString()));
  Receive(socket);
  Send(socket, absl::StrCat("copied: ", stream->Synchronize().ToString()));
  Receive(socket);
  Send(socket,
       absl::StrCat("still there: ", int{(*memory)->data()[kNumBytes - 1]}));
}

// Starts this program as the child; returns its process and the socket.
std::pair<pid_t, int> StartChild() {
  std::array<int, 2> sockets;
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()), 0);
  const std::string number = absl::StrCat(sockets[1]);
  const pid_t child = fork();
  if (child == 0) {
    close(sockets[0]);
    execl("/proc/self/exe", "two_processes_test", kChild, number.c_str(),
          nullptr);
    _exit(127);
  }
  close(sockets[1]);
  return {child, sockets[0]};
}

TEST(TwoProcessesTest, WriteOneMemory) {
  const auto [child, socket] = StartChild();
  auto made = SharedDeviceMemory::Create(TheContext(), kNumBytes);
  ASSERT_TRUE(made.ok()) << made.status();
  std::unique_ptr<SharedDeviceMemory> memory = *std::move(made);
  const std::string size = absl::StrCat(memory->mapped_bytes());
  ASSERT_TRUE(SendMessage(socket, size, {memory->fd()}, kPatience).ok());
  EXPECT_EQ(Receive(socket), "queued: OK");
  EXPECT_EQ(memory->data()[kNumBytes - 1], 0) << "nobody has waited";
  Send(socket, "copy");
  EXPECT_EQ(Receive(socket), "copied: OK");
  EXPECT_EQ(memory->data()[0], 42);
  EXPECT_EQ(memory->data()[kNumBytes - 1], 42);
  // The other process keeps what it has mapped.
  memory = nullptr;
  Send(socket, "gone");
  EXPECT_EQ(Receive(socket), "still there: 42");
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  close(socket);
}

TEST(TwoProcessesTest, TellAMemoryOfAnotherCard) {
  // The child's one device has another UUID, and no way to others.
  setenv("AGG_FAKE_CUDA_UUID", "000102030405060708090a0b0c0d0e0f", 1);
  setenv("AGG_FAKE_CUDA_PEERS", "0", 1);
  const auto [child, socket] = StartChild();
  unsetenv("AGG_FAKE_CUDA_UUID");
  unsetenv("AGG_FAKE_CUDA_PEERS");
  auto memory = SharedDeviceMemory::Create(TheContext(), kNumBytes);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const std::string size = absl::StrCat((*memory)->mapped_bytes());
  ASSERT_TRUE(SendMessage(socket, size, {(*memory)->fd()}, kPatience).ok());
  EXPECT_THAT(Receive(socket),
              testing::HasSubstr("cuMemImportFromShareableHandle"));
  waitpid(child, nullptr, 0);
  close(socket);
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], agg::kChild) == 0) {
    agg::RunChild(std::atoi(argv[2]));
    return 0;
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
