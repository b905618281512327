// What the emulated device does as a real one: the order of copies, what is in
// shared memory when a block begins, and when asynchronous copies are there.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/emulator/device_ops.h"

namespace agg::cuda {
namespace {

constexpr cudaMemcpyKind kUp = cudaMemcpyHostToDevice;
constexpr cudaMemcpyKind kDown = cudaMemcpyDeviceToHost;

class EmulatedDeviceTest : public testing::Test {
 protected:
  EmulatedDeviceTest() {
    emulator::SetLazy(true);
    for (cudaStream_t& stream : streams_) {
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    }
    void* memory = nullptr;
    cudaMalloc(&memory, kInts * sizeof(int));
    device_ = static_cast<int*>(memory);
    std::memset(memory, 0, kInts * sizeof(int));
    cudaHostAlloc(&memory, kInts * sizeof(int), cudaHostAllocDefault);
    host_ = static_cast<int*>(memory);
    for (int i = 0; i < kInts; ++i) host_[i] = i + 1;
  }
  ~EmulatedDeviceTest() override {
    cudaDeviceSynchronize();
    for (const cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    cudaFree(device_);
    cudaFreeHost(host_);
  }

  void Copy(int i, cudaMemcpyKind kind, cudaStream_t stream) {
    EXPECT_EQ(cudaMemcpyAsync(kind == kUp ? device_ + i : host_ + i,
                              kind == kUp ? host_ + i : device_ + i,
                              sizeof(int), kind, stream),
              cudaSuccess);
  }

  static constexpr int kInts = 16;
  cudaStream_t streams_[3];
  int* device_;
  int* host_;
};

TEST_F(EmulatedDeviceTest, ACopyWaitsForEarlierOnesOfItsDirection) {
  Copy(0, kUp, streams_[0]);
  Copy(1, kUp, streams_[1]);
  Copy(2, kUp, streams_[0]);
  cudaStreamSynchronize(streams_[1]);
  EXPECT_EQ(device_[0], 1);  // of another stream
  EXPECT_EQ(device_[1], 2);
  EXPECT_EQ(device_[2], 0);  // came after it
}

TEST_F(EmulatedDeviceTest, ACopyPassesOnesOfTheOtherDirection) {
  Copy(0, kUp, streams_[0]);
  Copy(1, kDown, streams_[1]);
  cudaStreamSynchronize(streams_[1]);
  EXPECT_EQ(host_[1], 0);
  EXPECT_EQ(device_[0], 0);
}

// The engine stands still until the copy at its head may be made.
TEST_F(EmulatedDeviceTest, ACopyWaitsForWhatEarlierOnesWaitFor) {
  cudaEvent_t filled;
  cudaEventCreateWithFlags(&filled, cudaEventDisableTiming);
  cudaMemsetAsync(device_ + 4, 0x11, sizeof(int), streams_[2]);
  cudaEventRecord(filled, streams_[2]);
  cudaStreamWaitEvent(streams_[0], filled, 0);
  Copy(0, kUp, streams_[0]);
  Copy(1, kUp, streams_[1]);
  cudaStreamSynchronize(streams_[1]);
  EXPECT_EQ(device_[4], 0x11111111);
  EXPECT_EQ(device_[0], 1);
  cudaEventDestroy(filled);
}

TEST_F(EmulatedDeviceTest, ALostDeviceForgetsItsCopies) {
  Copy(0, kUp, streams_[0]);
  emulator::BreakDevice(cudaErrorIllegalAddress);
  emulator::BreakDevice(cudaSuccess);
  Copy(1, kUp, streams_[1]);
  cudaStreamSynchronize(streams_[1]);
  EXPECT_EQ(device_[0], 0);
  EXPECT_EQ(device_[1], 2);
}

// Neighbouring registrations are no range that one copy may use.
TEST_F(EmulatedDeviceTest, ACopyStaysInOnePieceOfRegisteredMemory) {
  alignas(4096) static char memory[3 * 4096];
  cudaHostRegister(memory, 4096, cudaHostRegisterDefault);
  cudaHostRegister(memory + 4096, 4096, cudaHostRegisterDefault);
  const auto copy = [this](int64_t begin) {
    return cudaMemcpyAsync(device_, memory + begin, 8, kUp, streams_[0]);
  };
  EXPECT_EQ(copy(0), cudaSuccess);
  EXPECT_EQ(copy(4096 - 8), cudaSuccess);
  EXPECT_EQ(copy(4096 - 4), cudaErrorInvalidValue);
  EXPECT_EQ(copy(2 * 4096 - 4), cudaErrorInvalidValue);  // in part
  EXPECT_EQ(copy(2 * 4096), cudaSuccess);                // not at all
  EXPECT_EQ(cudaHostRegister(memory + 4000, 8, cudaHostRegisterDefault),
            cudaErrorHostMemoryAlreadyRegistered);
  cudaStreamSynchronize(streams_[0]);
  EXPECT_EQ(cudaHostUnregister(memory), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(memory + 4096), cudaSuccess);
}

void NothingKernel(int* /*nothing*/) {}

// Streams, events and memory are the device's that was the thread's when they
// were made.
TEST_F(EmulatedDeviceTest, WorkIsForTheThreadsOwnDevice) {
  emulator::SetDeviceCount(2);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  cudaEvent_t event;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  EXPECT_EQ(cudaEventRecord(event, streams_[0]),
            cudaErrorInvalidResourceHandle);
  EXPECT_EQ(LaunchKernel(&NothingKernel, 1, 32, streams_[0], device_),
            cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaMemsetAsync(device_, 0, 4, stream),
            cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaMemcpyAsync(device_, host_, 4, kUp, stream),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(device_), cudaErrorInvalidValue);
  Copy(0, kUp, streams_[0]);  // which is legal, and waits
  cudaDeviceSynchronize();
  EXPECT_EQ(device_[0], 0);
  cudaEventDestroy(event);
  cudaStreamDestroy(stream);
  emulator::SetDeviceCount(1);
  cudaDeviceSynchronize();
  EXPECT_EQ(device_[0], 1);
}

// Tells what it finds in shared memory, and leaves something there.
void LookingKernel(int* found) {
  int& shared = BlockShared<int>();
  if (threadIdx.x == 0) {
    found[blockIdx.x] = shared;
    shared = 7;
  }
  __syncthreads();
  if (threadIdx.x == 1) found[blockIdx.x] += shared;
}

TEST_F(EmulatedDeviceTest, SharedMemoryIsPoisonedForEachBlock) {
  ASSERT_EQ(LaunchKernel(&LookingKernel, 4, 32, streams_[0], device_),
            cudaSuccess);
  cudaStreamSynchronize(streams_[0]);
  for (int block = 0; block < 4; ++block) EXPECT_EQ(device_[block], -1 + 7);
}

struct Slots {
  uint4 slots[4];
};

// found[0 ..]: what the first thread sees in its slots at each point.
void CopyingKernel(const uint4* from, uint32_t* found) {
  uint4(&slots)[4] = BlockShared<Slots>().slots;
  if (threadIdx.x != 0) return;
  slots[0].x = 5;
  CopyAsync(SharedAtOf(&slots[0]), from);
  CommitCopies();
  found[0] = slots[0].x;  // nobody has waited
  CopySomeAsync(SharedAtOf(&slots[1]), from + 1, 6);
  CopySomeAsync(SharedAtOf(&slots[2]), from + 1, -3);
  CopyWordAsync(SharedAtOf(&slots[3].y), &from->z, true);
  CommitCopies();
  WaitForCopies<2>();
  found[1] = slots[0].x;  // nor now, in effect
  WaitForCopies<1>();
  found[2] = slots[0].x;
  found[3] = slots[0].w;
  found[4] = slots[1].x;  // of the second group
  slots[1].w = 9;         // before the copy is there
  WaitForCopies<0>();
  found[5] = slots[1].x;
  found[6] = slots[1].y;  // half of it
  found[7] = slots[1].w + slots[2].x;
  found[8] = LoadShared<uint32_t>(SharedAtOf(&slots[3].y));
  found[9] = slots[3].x & slots[3].z;  // nobody wrote there
}

TEST_F(EmulatedDeviceTest, AsynchronousCopiesAreThereOnceTheyAreWaitedFor) {
  alignas(16) const uint32_t from[8] = {1, 2, 3, 4, 5, 0x60007, 7, 8};
  auto* const found = reinterpret_cast<uint32_t*>(device_);
  ASSERT_EQ(LaunchKernel(&CopyingKernel, 1, 32, streams_[0],
                         reinterpret_cast<const uint4*>(from), found),
            cudaSuccess);
  cudaStreamSynchronize(streams_[0]);
  EXPECT_EQ(found[0], 0xffffffffu);
  EXPECT_EQ(found[1], 0xffffffffu);
  EXPECT_EQ(found[2], 1u);
  EXPECT_EQ(found[3], 4u);
  EXPECT_EQ(found[4], 0xffffffffu);
  EXPECT_EQ(found[5], 5u);
  EXPECT_EQ(found[6], 7u);
  EXPECT_EQ(found[7], 0u);
  EXPECT_EQ(found[8], 3u);
  EXPECT_EQ(found[9], 0xffffffffu);
}

TEST_F(EmulatedDeviceTest, BytesAndWordsAreWhereTheyAreOnADevice) {
  EXPECT_EQ(SelectBytes(0x44332211, 0x88776655, 0x7604), 0x88771155u);
  EXPECT_EQ(DoubleOfWords(0x40b08000, 0), 4096.0 + 128.0);
}

void LeavingKernel(const uint4* from) {
  CopyAsync(SharedAtOf(&BlockShared<Slots>().slots[0]), from);
  CommitCopies();
  WaitForCopies<1>();
}

TEST_F(EmulatedDeviceTest, AThreadThatEndsBeforeItsCopiesAborts) {
  alignas(16) const uint32_t from[4] = {};
  EXPECT_DEATH(
      {
        LaunchKernel(&LeavingKernel, 1, 1, streams_[0],
                     reinterpret_cast<const uint4*>(from));
        cudaStreamSynchronize(streams_[0]);
      },
      "a thread ended before its copies");
}

}  // namespace
}  // namespace agg::cuda
