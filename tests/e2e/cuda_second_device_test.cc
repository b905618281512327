// Whole jobs on the second of two emulated devices: servers call CUDA from many
// threads, and every one of them has to be on that device.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/e2e/cuda_device.h"
#include "tests/e2e/loopback_job.h"
#include "tests/kernels/cuda/emulator/device.h"
#include "worker_client/agg_client.h"

namespace agg {
namespace {

constexpr char kConfig[] =
    "backend: 'cuda' device: 1 workers: 2 pull_dtype: 'bf16' "
    "learning_rate { rate: 0.1 } combination { rule: 'adasum' } ";

class CudaSecondDevice : public testing::Test {
 protected:
  void SetUp() override { emulator::SetDeviceCount(2); }
  void TearDown() override { emulator::SetDeviceCount(1); }

  // Three rounds of two workers.
  void RunJob(const std::string& more) {
    const LoopbackJob job(2, absl::StrCat(kConfig, more),
                          TheCudaDevice().make_backend);
    std::vector<HostTensors> parameters(2);
    RunWorkers(2, [&](int rank) {
      const std::unique_ptr<AggClient> client = job.Connect(rank, manifest_);
      parameters[rank] = MakeTensors(manifest_, 7);
      ASSERT_TRUE(client->SeedOrPull(MutableViews(&parameters[rank])).ok());
      for (uint64_t round = 0; round < 3; ++round) {
        const HostTensors gradient = MakeTensors(manifest_, 64 * round + rank);
        const auto outcome = client->PushPull(Views(gradient), {},
                                              MutableViews(&parameters[rank]));
        ASSERT_TRUE(outcome.ok()) << outcome.status();
        EXPECT_EQ(outcome->version, round + 1);
      }
    });
    EXPECT_TRUE(parameters[0] == parameters[1]);
  }

  const Manifest manifest_ = ShapedManifest({{3000}, {17, 5}, {}, {900}});
};

TEST_F(CudaSecondDevice, IsTheOnlyOneInUse) {
  for (const char* memory :
       {"shared_memory: 'off'", "replication: 'none'", "shared_memory: 'on'"}) {
    SCOPED_TRACE(memory);
    RunJob(memory);
    EXPECT_TRUE(emulator::DeviceUsed(1));
    EXPECT_FALSE(emulator::DeviceUsed(0));
    EXPECT_EQ(emulator::AllocatedDeviceBytes(), 0);
  }
}

}  // namespace
}  // namespace agg
