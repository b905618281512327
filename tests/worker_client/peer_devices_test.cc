// Tensors on another device than the shard's: rows and versions go from and to
// a peer of it, and by way of the host where there is none.
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/kernels/device_memory/fake_cuda.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/device_tensors.h"
#include "tests/worker_client/device_worker.h"
#include "worker_client/agg_client.h"
#include "worker_client/tensor_view.h"

namespace agg {
namespace {

// A worker with tensors on another device than the shard's, too.
class PeerDevicesTest : public testing::Test {
 protected:
  PeerDevicesTest() { fake_cuda::SetNumDevices(2); }
  ~PeerDevicesTest() override {
    EXPECT_EQ(fake_cuda::NumLive(), live_);
    fake_cuda::SetPeers(true);
    fake_cuda::SetNumDevices(1);
  }

  // A round of `row`, and a pull of its version to `elsewhere`.
  static void Run(const DeviceTensors& elsewhere,
                  const std::vector<TensorView>& row, DeviceWorker* worker) {
    auto* const client = worker->client.get();
    ASSERT_TRUE(client->PushPull(row, {}, worker->parameters.Write()).ok());
    ASSERT_TRUE(client->Pull(client->version(), elsewhere.Write()).ok());
    EXPECT_EQ(elsewhere.Get(), worker->parameters.Get());
  }

  const int64_t live_ = fake_cuda::NumLive();
};

TEST_F(PeerDevicesTest, TensorsOfAPeerGoToTheShardsDeviceAtOnce) {
  DeviceTensors elsewhere(Values(TwoTensors(), 0.5f), 1);
  DeviceWorker worker(TwoTensors());
  const int64_t copies = fake_cuda::NumHostCopies();
  Run(elsewhere, elsewhere.Read(), &worker);
  elsewhere.Set(Values(TwoTensors(), 0.25f));
  Run(elsewhere, elsewhere.Read(), &worker);
  // From its own device, too: each has a way of its own.
  worker.gradient.Set(Values(TwoTensors(), 0.125f));
  Run(elsewhere, worker.gradient.Read(), &worker);
  EXPECT_EQ(worker.parameters.Get(),
            Expected(TwoTensors(), {0.5f, 0.25f, 0.125f}));
  EXPECT_EQ(worker.shard.counts().frames, 6);
  EXPECT_EQ(worker.shard.counts().frames_on_device, 6);
  EXPECT_EQ(worker.shard.counts().pulls_on_device, 6);
  EXPECT_EQ(fake_cuda::NumHostCopies(), copies);
  // Asked again when the second device was met.
  EXPECT_EQ(worker.shard.counts().takes_device, 2);
}

// Each device copies its own tensors.
TEST_F(PeerDevicesTest, ARowOfTwoDevicesGoesToTheShardsDevice) {
  const Manifest manifest{
      {Spec("a", {8}), Spec("b", {1 << 21}), Spec("c", {5})}};
  const DeviceTensors elsewhere(Values(manifest, 0.5f), 1);
  std::vector<std::vector<float>> here = Values(manifest, 0.5f);
  DeviceWorker worker(manifest);
  worker.gradient.Set(Values(manifest, 0.5f));
  std::vector<TensorView> views = worker.gradient.Read();
  views[1] = elsewhere.Read()[1];
  views[2] = Read(here)[2];
  std::vector<MutableTensorView> targets = worker.parameters.Write();
  targets[1] = elsewhere.Write()[1];
  const int pulls = worker.shard.counts().pulls_on_device;
  ASSERT_TRUE(worker.client->PushPull(views, {}, targets).ok());
  const auto expected = Expected(manifest, {0.5f});
  EXPECT_EQ(worker.parameters.Get()[0], expected[0]);
  EXPECT_EQ(elsewhere.Get()[1], expected[1]);
  EXPECT_EQ(worker.parameters.Get()[2], expected[2]);
  EXPECT_EQ(worker.shard.counts().frames, 4);
  EXPECT_EQ(worker.shard.counts().frames_on_device, 4);
  EXPECT_EQ(worker.shard.counts().pulls_on_device, pulls + 1);
}

// What one of them cannot copy ends the way of all of the row's.
TEST_F(PeerDevicesTest, ARowOfTwoDevicesOfWhichOneFailsGoesByWayOfTheHost) {
  const Manifest manifest{
      {Spec("a", {1 << 21}), Spec("b", {1 << 21}), Spec("c", {5})}};
  DeviceTensors elsewhere(Values(manifest, 0.5f), 1);
  DeviceWorker worker(manifest);
  const auto both = [&](float scale) {
    worker.gradient.Set(Values(manifest, scale));
    elsewhere.Set(Values(manifest, scale));
    std::vector<TensorView> views = worker.gradient.Read();
    views[1] = elsewhere.Read()[1];
    return views;
  };
  std::vector<MutableTensorView> targets = worker.parameters.Write();
  targets[1] = elsewhere.Write()[1];
  const auto expect = [&](const std::vector<float>& scales) {
    const auto expected = Expected(manifest, scales);
    EXPECT_EQ(worker.parameters.Get()[0], expected[0]);
    EXPECT_EQ(elsewhere.Get()[1], expected[1]);
    EXPECT_EQ(worker.parameters.Get()[2], expected[2]);
  };
  ASSERT_TRUE(worker.client->PushPull(both(0.5f), {}, targets).ok());
  expect({0.5f});
  const int on_device = worker.shard.counts().frames_on_device;
  EXPECT_EQ(on_device, 5);
  fake_cuda::FailCopiesOf(1, /*CUDA_ERROR_INVALID_VALUE*/ 1);
  const auto failed = worker.client->PushPull(both(0.25f), {}, targets);
  fake_cuda::FailCopiesOf(1, 0);
  ASSERT_TRUE(failed.ok()) << failed.status();
  expect({0.5f, 0.25f});
  ASSERT_TRUE(worker.client->PushPull(both(0.125f), {}, targets).ok());
  expect({0.5f, 0.25f, 0.125f});
  EXPECT_EQ(worker.shard.counts().frames_on_device, on_device);
}

// One that comes when the row has begun, too.
TEST_F(PeerDevicesTest, ATensorOfAnotherDeviceMayComeLater) {
  const DeviceTensors elsewhere(Values(TwoTensors(), 0.5f), 1);
  DeviceWorker worker(TwoTensors());
  worker.gradient.Set(Values(TwoTensors(), 0.5f));
  // Both devices are met.
  ASSERT_TRUE(worker.client->Pull(0, elsewhere.Write()).ok());
  const DeviceTensors late(Values(TwoTensors(), 0.5f), 1);
  std::vector<TensorView> views = worker.gradient.Read();
  views[1] = late.Read()[1];
  views[0].name = "a";
  views[1].name = "b";
  const int before = worker.job.frames(0);
  worker.client->StartPush({views[0]});
  worker.job.AwaitFrames(before + 1);
  ASSERT_TRUE(
      worker.client->StartRound({views[1]}, {}, worker.parameters.Write())
          .Outcome()
          .ok());
  EXPECT_EQ(worker.parameters.Get(), Expected(TwoTensors(), {0.5f}));
  EXPECT_EQ(worker.shard.counts().frames_on_device, 2);
}

// Where one of them has no way, all of the row goes by way of the host.
TEST_F(PeerDevicesTest, ARowOfADeviceWithoutAWayGoesByWayOfTheHost) {
  fake_cuda::SetPeers(false);
  const DeviceTensors elsewhere(Values(TwoTensors(), 0.5f), 1);
  DeviceWorker worker(TwoTensors());
  worker.gradient.Set(Values(TwoTensors(), 0.5f));
  std::vector<TensorView> both = worker.gradient.Read();
  both[1] = elsewhere.Read()[1];
  Run(elsewhere, both, &worker);
  EXPECT_EQ(worker.parameters.Get(), Expected(TwoTensors(), {0.5f}));
  EXPECT_EQ(worker.shard.counts().frames, 2);
  EXPECT_EQ(worker.shard.counts().frames_on_device, 0);
}

TEST_F(PeerDevicesTest, WithoutPeerAccessItsTensorsGoByWayOfTheHost) {
  fake_cuda::SetPeers(false);
  const DeviceTensors elsewhere(Values(TwoTensors(), 0.5f), 1);
  DeviceWorker worker(TwoTensors());
  Run(elsewhere, elsewhere.Read(), &worker);
  EXPECT_EQ(worker.shard.counts().frames_on_device, 0);
  EXPECT_EQ(worker.shard.counts().pulls_on_device, 1);  // to the shard's device
  worker.gradient.Set(Values(TwoTensors(), 0.25f));
  Run(elsewhere, worker.gradient.Read(), &worker);
  EXPECT_EQ(worker.parameters.Get(), Expected(TwoTensors(), {0.5f, 0.25f}));
  EXPECT_EQ(worker.shard.counts().frames_on_device, 2);
}

// What one device could not copy says nothing of the other one, and it is not
// tried again when the shard is asked once more.
TEST_F(PeerDevicesTest, ADeviceWhoseCopyFailedIsTheOnlyOneGivenUp) {
  fake_cuda::SetNumDevices(3);
  DeviceTensors elsewhere(Values(TwoTensors(), 0.5f), 1);
  DeviceWorker worker(TwoTensors());
  fake_cuda::Fail("cuMemcpyAsync", /*CUDA_ERROR_INVALID_VALUE*/ 1);
  Run(elsewhere, elsewhere.Read(), &worker);
  fake_cuda::Fail("cuMemcpyAsync", 0);
  EXPECT_EQ(worker.shard.counts().frames_on_device, 0);
  worker.gradient.Set(Values(TwoTensors(), 0.25f));
  Run(elsewhere, worker.gradient.Read(), &worker);
  EXPECT_EQ(worker.shard.counts().frames_on_device, 2);
  const DeviceTensors third(Values(TwoTensors(), 0.5f), 2);
  Run(elsewhere, third.Read(), &worker);
  EXPECT_EQ(worker.shard.counts().frames_on_device, 4);
  const int pulls = worker.shard.counts().pulls_on_device;
  elsewhere.Set(Values(TwoTensors(), 0.125f));
  Run(elsewhere, elsewhere.Read(), &worker);
  EXPECT_EQ(worker.shard.counts().frames_on_device, 4);
  // Nor are versions copied there.
  EXPECT_EQ(worker.shard.counts().pulls_on_device, pulls);
  EXPECT_EQ(worker.parameters.Get(),
            Expected(TwoTensors(), {0.5f, 0.25f, 0.5f, 0.125f}));
}

}  // namespace
}  // namespace agg
