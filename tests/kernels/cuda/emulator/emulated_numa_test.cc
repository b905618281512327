// Where the CUDA backend asks for host memory on a machine of two nodes, which
// sysfs is made to tell of; the node that is asked for is there everywhere.
#include <sys/mman.h>

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/cuda/emulator/device.h"
#include "tests/kernels/cuda/fake_sysfs.h"
#include "tests/kernels/cuda/memory_policy.h"

namespace agg {
namespace {

using testing::HasSubstr;

constexpr int64_t kNumBytes = 8192;

class EmulatedNumaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!MayPlaceMemory()) GTEST_SKIP() << "mbind is not allowed here";
    emulator::SetDeviceCount(2);
    adopted_ =
        static_cast<char*>(mmap(nullptr, kNumBytes, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  void TearDown() override {
    buffers_.clear();
    backend_ = nullptr;
    if (adopted_ != nullptr) munmap(adopted_, kNumBytes);
    emulator::SetDeviceCount(1);
  }

  // Rows and versions, of its own and adopted, of a backend on device 1.
  void AllocateAll(const std::string& numa_node) {
    CudaOptions options;
    options.device = 1;
    options.use_cublas = false;
    options.sysfs =
        MakeSysfs("emulated_numa", "0-1", "0000:1b:00.0", numa_node);
    backend_ = *CudaBackend::Make(options);
    for (const BufferUse use : {BufferUse::kRow, BufferUse::kSnapshot}) {
      buffers_.push_back(*backend_->Allocate(use, kNumBytes));
    }
    absl::Status registered;
    buffers_.push_back(
        *backend_->Adopt(BufferUse::kRow, adopted_, kNumBytes, &registered));
  }

  char* adopted_ = nullptr;
  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

TEST_F(EmulatedNumaTest, HostMemoryIsNearTheDevice) {
  AllocateAll("0");
  for (const auto& buffer : buffers_) {
    EXPECT_EQ(MemoryPolicy(buffer->host()), MPOL_PREFERRED);
  }
  EXPECT_THAT(backend_->description(), HasSubstr("host memory on NUMA node 0"));
}

TEST_F(EmulatedNumaTest, ADeviceWithoutANodeHasItAnywhere) {
  AllocateAll("-1");
  for (const auto& buffer : buffers_) {
    EXPECT_EQ(MemoryPolicy(buffer->host()), MPOL_DEFAULT);
  }
  EXPECT_THAT(backend_->description(), HasSubstr("host memory on any node"));
}

}  // namespace
}  // namespace agg
