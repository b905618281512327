// A thread of the caller's captures a CUDA graph while the client's copy rows
// and versions: neither ends the other.
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/device_memory/cuda_driver.h"
#include "kernels/dtype.h"
#include "tests/kernels/device_memory/fake_cuda.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/device_tensors.h"
#include "tests/worker_client/device_worker.h"
#include "worker_client/agg_client.h"
#include "worker_client/operation.h"

namespace agg {
namespace {

struct Way {
  const char* name;
  bool cuda_rows;
  DType push_dtype;
};

class GraphCaptureTest : public testing::TestWithParam<Way> {
 protected:
  ~GraphCaptureTest() override { fake_cuda::SetCaptures(false); }
};

TEST_P(GraphCaptureTest, RowsAndVersionsGoOn) {
  const Way& way = GetParam();
  DeviceWorker worker(ManyTensors(), way.push_dtype, nullptr, way.cuda_rows);
  const auto before = worker.parameters.Get();
  worker.gradient.Set(Values(ManyTensors(), 0.5f));
  worker.shard.PlaceVersions();
  const int64_t unsafe = fake_cuda::NumUnsafe();
  fake_cuda::SetCaptures(true);
  RoundOperation round = worker.client->StartRound(worker.gradient.Read(), {},
                                                   worker.parameters.Write());
  const auto outcome = round.Outcome();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  worker.client = nullptr;
  fake_cuda::SetCaptures(false);
  EXPECT_EQ(fake_cuda::NumUnsafe(), unsafe);
  EXPECT_NE(worker.parameters.Get(), before);
  if (way.push_dtype == DType::kF32) {
    EXPECT_EQ(worker.parameters.Get(), Expected(ManyTensors(), {0.5f}));
  }
}

// What the test would see.
TEST(FakeCaptureTest, RefusesWhoHasNotSaidThatItIsAnother) {
  const DeviceTensors tensors(Values(TwoTensors(), 1));
  const int64_t unsafe = fake_cuda::NumUnsafe();
  fake_cuda::SetCaptures(true);
  const auto driver = *CudaDriver::Load(kFakeCudaPath);
  EXPECT_EQ(driver->call().cuStreamSynchronize(nullptr), 900);
  fake_cuda::SetCaptures(false);
  EXPECT_EQ(fake_cuda::NumUnsafe(), unsafe + 1);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, GraphCaptureTest,
    testing::Values(Way{"OnTheDevice", true, DType::kF32},
                    Way{"InSharedMemory", false, DType::kF32},
                    Way{"Rounded", false, DType::kBF16}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace agg
