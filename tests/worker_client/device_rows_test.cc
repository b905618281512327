// Tensors on the device of a shard of this host: their rows are written there,
// and versions read there, unless the shard says what is not so.
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device_memory/cuda_driver.h"
#include "kernels/device_memory/device_context.h"
#include "kernels/device_memory/shared_device_memory.h"
#include "kernels/narrow_float.h"
#include "proto/region.pb.h"
#include "server/base/file_descriptor.h"
#include "server/base/shared_memory.h"
#include "tests/kernels/device_memory/fake_cuda.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/device_shard.h"
#include "tests/worker_client/device_tensors.h"
#include "tests/worker_client/device_worker.h"
#include "tests/worker_client/fake_job.h"
#include "worker_client/agg_client.h"
#include "worker_client/device_row.h"
#include "worker_client/tensor_view.h"

namespace agg {
namespace {

using ::testing::ElementsAre;

using Tensors = std::vector<std::vector<float>>;

class DeviceRowsTest : public testing::Test {
 protected:
  ~DeviceRowsTest() override {
    fake_cuda::Fail("cuMemImportFromShareableHandle", 0);
    EXPECT_EQ(fake_cuda::NumLive(), live_);
  }

  const int64_t live_ = fake_cuda::NumLive();
};

// One of several slices, and 64 small ones: several frames.
TEST_F(DeviceRowsTest, RowsAndVersionsStayOnTheDevice) {
  Manifest manifest = ManyTensors();
  for (TensorSpec& tensor : MixedManifest().tensors) {
    manifest.tensors.push_back(std::move(tensor));
  }
  DeviceWorker worker(manifest);
  const int64_t copies = fake_cuda::NumHostCopies();
  ASSERT_TRUE(worker.Round(0.5f).ok());
  EXPECT_THAT(worker.client->job().transports, ElementsAre("cuda"));
  ASSERT_TRUE(worker.Round(0.25f).ok());
  // Copies of other streams must not have been needed for this.
  EXPECT_EQ(worker.parameters.Get(), Expected(manifest, {0.5f, 0.25f}));
  const DeviceShard::Counts counts = worker.shard.counts();
  EXPECT_EQ(counts.takes_device, 1);
  EXPECT_GT(counts.frames, 2 * 64);
  EXPECT_EQ(counts.frames_on_device, counts.frames);
  EXPECT_EQ(counts.pulls_on_device, 2);
  EXPECT_EQ(fake_cuda::NumHostCopies(), copies);
  EXPECT_GT(worker.job.frames(0), 3 + 2);  // of the seed, and of the rows
}

// Only slices' numbers travel.
TEST_F(DeviceRowsTest, AFrameNamesManySlicesThatAreOnTheDevice) {
  const Manifest manifest{{Spec("a", {17 << 20})}};
  DeviceWorker worker(manifest);
  const int before = worker.job.frames(0);
  ASSERT_TRUE(worker.Round(0.5f).ok());
  EXPECT_EQ(worker.parameters.Get(), Expected(manifest, {0.5f}));
  EXPECT_EQ(worker.shard.counts().frames_on_device, 17);
  EXPECT_EQ(worker.job.frames(0), before + 2) << "64 MiB, and the rest";
}

TEST_F(DeviceRowsTest, TensorsThatComeOneByOneGoAtOnce) {
  const Manifest manifest{
      {Spec("a", {8}), Spec("b", {1 << 20}), Spec("c", {4})}};
  DeviceWorker worker(manifest);
  worker.gradient.Set(Values(manifest, 0.5f));
  const std::vector<TensorView> views = worker.gradient.Read();
  const int before = worker.job.frames(0);
  for (const int t : {2, 0}) {
    TensorView view = views[t];
    view.name = manifest.tensors[t].name;
    worker.client->StartPush({view});
    worker.job.AwaitFrames(before + (t == 2 ? 1 : 2));
  }
  TensorView last = views[1];
  last.name = "b";
  auto round = worker.client->StartRound({last}, {}, worker.parameters.Write());
  ASSERT_TRUE(round.Outcome().ok());
  EXPECT_EQ(worker.parameters.Get(), Expected(manifest, {0.5f}));
  EXPECT_EQ(worker.shard.counts().frames_on_device, 3);
}

// Its first tensors do not say where the others are: the row before does, or
// the seed.
TEST_F(DeviceRowsTest, ARowThatBeginsOnTheHostGoesWhereTheLastOneWasWhole) {
  DeviceWorker worker(TwoTensors());
  const Tensors half = Values(TwoTensors(), 0.5f);
  worker.gradient.Set(half);
  TensorView on_device = worker.gradient.Read()[1];
  on_device.name = "b";
  for (const int expected : {2, 4, 6}) {
    const int before = worker.job.frames(0);
    worker.client->StartPush({TensorView("a", half[0])});
    worker.job.AwaitFrames(before + 1);
    auto round =
        worker.client->StartRound({on_device}, {}, worker.parameters.Write());
    ASSERT_TRUE(round.Outcome().ok());
    EXPECT_EQ(worker.shard.counts().frames_on_device, expected);
  }
  EXPECT_EQ(worker.parameters.Get(),
            Expected(TwoTensors(), {0.5f, 0.5f, 0.5f}));
  // The first one that is the host's altogether is the last one to go there.
  for (int round = 0; round < 2; ++round) {
    const int before = worker.job.frames(0);
    worker.client->StartPush({TensorView("a", half[0])});
    worker.job.AwaitFrames(before + 1);
    auto last = worker.client->StartRound({TensorView("b", half[1])}, {},
                                          worker.parameters.Write());
    ASSERT_TRUE(last.Outcome().ok());
  }
  EXPECT_EQ(worker.parameters.Get(),
            Expected(TwoTensors(), {0.5f, 0.5f, 0.5f, 0.5f, 0.5f}));
  EXPECT_EQ(worker.shard.counts().frames_on_device, 8);
  EXPECT_EQ(worker.shard.counts().frames, 10);
}

// Also tensors of the host, and of other types than the row's: by way of the
// row's host side.
TEST_F(DeviceRowsTest, OtherTensorsOfTheRowGoToTheDeviceToo) {
  DeviceWorker worker(TwoTensors(), DType::kBF16);
  const Tensors half = Values(TwoTensors(), 0.5f);
  const std::vector<uint16_t> ones(4, 0x3f80);
  TensorView on_device;
  on_device.name = "b";
  on_device.num_elements = 4;
  on_device.dtype = DType::kBF16;
  on_device.data = worker.gradient.at(1);
  fake_cuda::Launch(0, [&] {
    std::memcpy(worker.gradient.at(1), ones.data(), ones.size() * 2);
  });
  ASSERT_TRUE(worker.client
                  ->PushPull({TensorView("a", half[0]), on_device}, {},
                             worker.parameters.Write())
                  .ok());
  // Rounded as it is for a row of the host.
  Tensors expected = Values(TwoTensors(), 1);
  for (size_t i = 0; i < 8; ++i) {
    expected[0][i] -= FloatOfBf16(Bf16OfFloat(half[0][i]));
  }
  for (float& value : expected[1]) value -= 1;
  EXPECT_EQ(worker.parameters.Get(), expected);
  EXPECT_EQ(worker.shard.counts().frames_on_device, 2);
}

TEST_F(DeviceRowsTest, WhatIsRoundedGoesByWayOfTheHost) {
  for (const DType dtype : {DType::kBF16, DType::kI8}) {
    DeviceWorker worker(ManyTensors(), dtype);
    for (const float scale : {0.5f, 0.25f}) {
      ASSERT_TRUE(worker.Round(scale).ok());
    }
    EXPECT_EQ(worker.shard.counts().frames_on_device, 0);
    EXPECT_GT(worker.shard.counts().frames, 2 * 64);
    // The same from the host's memory, without any memory that is shared.
    FakeJob::Options of_job;
    of_job.push_dtype = dtype;
    FakeJob job(ManyTensors(), of_job);
    const auto client = Connect(OptionsFor(job, ManyTensors()));
    Tensors parameters = Values(ManyTensors(), 1);
    ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
    for (const float scale : {0.5f, 0.25f}) {
      const Tensors gradient = Values(ManyTensors(), scale);
      ASSERT_TRUE(
          client->PushPull(Read(gradient), {}, Write(&parameters)).ok());
    }
    EXPECT_EQ(worker.parameters.Get(), parameters);
  }
}

TEST_F(DeviceRowsTest, ARowThatIsPushedAgainIsNotCopiedAgain) {
  const Manifest manifest = MixedManifest();
  int64_t copies_of_round[2];
  for (const bool breaks : {false, true}) {
    DeviceWorker worker(manifest);
    const int before = worker.job.frames(0);
    if (breaks) {
      worker.job.set_push_fault(0, [before](int count) {
        return count == before + 2
                   ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "broken")
                   : grpc::Status::OK;
      });
    }
    worker.gradient.Set(Values(manifest, 0.5f));
    const int64_t copies = fake_cuda::NumCalls("cuMemcpyAsync");
    ASSERT_TRUE(worker.client->Push(worker.gradient.Read()).ok());
    copies_of_round[breaks] = fake_cuda::NumCalls("cuMemcpyAsync") - copies;
    ASSERT_TRUE(worker.client->Commit({}).ok());
    ASSERT_TRUE(worker.client->Pull(1, worker.parameters.Write()).ok());
    EXPECT_EQ(worker.parameters.Get(), Expected(manifest, {0.5f}));
  }
  EXPECT_EQ(copies_of_round[true], copies_of_round[false]);
}

// Another gradient of the round is sent: the shard may be reading the first.
TEST_F(DeviceRowsTest, ASecondGradientOfARoundIsSent) {
  DeviceWorker worker(TwoTensors());
  worker.gradient.Set(Values(TwoTensors(), 0.5f));
  ASSERT_TRUE(worker.client->Push(worker.gradient.Read()).ok());
  EXPECT_EQ(worker.shard.counts().frames_on_device, 2);
  ASSERT_TRUE(worker.Round(0.25f).ok());
  EXPECT_EQ(worker.shard.counts().frames, 2);
  EXPECT_EQ(worker.parameters.Get(), Expected(TwoTensors(), {0.25f}));
  ASSERT_TRUE(worker.Round(0.5f).ok());
  EXPECT_EQ(worker.shard.counts().frames_on_device, 4);
  EXPECT_EQ(worker.parameters.Get(), Expected(TwoTensors(), {0.25f, 0.5f}));
}

TEST_F(DeviceRowsTest, AnOverwrittenVersionIsPulledByWayOfTheHost) {
  DeviceWorker worker(ManyTensors());
  worker.shard.OverwriteNext();
  worker.gradient.Set(Values(ManyTensors(), 0.5f));
  ASSERT_TRUE(worker.RoundInCalls(worker.gradient.Read()).ok());
  EXPECT_EQ(worker.parameters.Get(), Expected(ManyTensors(), {0.5f}));
  EXPECT_EQ(worker.shard.counts().pulls, 2);
  EXPECT_EQ(worker.shard.counts().pulls_on_device, 1);
  worker.gradient.Set(Values(ManyTensors(), 0.25f));
  ASSERT_TRUE(worker.RoundInCalls(worker.gradient.Read()).ok());
  EXPECT_EQ(worker.parameters.Get(), Expected(ManyTensors(), {0.5f, 0.25f}));
  EXPECT_EQ(worker.shard.counts().pulls_on_device, 2);
}

TEST_F(DeviceRowsTest, TargetsOfTheHostAreNotPulledOnTheDevice) {
  DeviceWorker worker(TwoTensors());
  Tensors here = Values(TwoTensors(), 0);
  worker.gradient.Set(Values(TwoTensors(), 0.5f));
  ASSERT_TRUE(
      worker.client->PushPull(worker.gradient.Read(), {}, Write(&here)).ok());
  EXPECT_EQ(here, Expected(TwoTensors(), {0.5f}));
  std::vector<MutableTensorView> some = worker.parameters.Write();
  some[1] = Write(&here)[1];
  ASSERT_TRUE(worker.client->Pull(1, some).ok());
  EXPECT_EQ(worker.parameters.Get()[0], here[0]);
  EXPECT_GT(worker.shard.counts().pulls, 0);
  EXPECT_EQ(worker.shard.counts().pulls_on_device, 0);
}

TEST_F(DeviceRowsTest, WithoutTheOptionNoneIsAskedFor) {
  DeviceWorker worker(TwoTensors(), DType::kF32, nullptr, /*cuda_rows=*/false);
  ASSERT_TRUE(worker.Round(0.5f).ok());
  EXPECT_EQ(worker.parameters.Get(), Expected(TwoTensors(), {0.5f}));
  EXPECT_EQ(worker.shard.counts().takes_device, 0);
  EXPECT_EQ(worker.shard.counts().frames, 2);
}

TEST_F(DeviceRowsTest, TensorsOfTheHostAskForNone) {
  DeviceShard shard(TwoTensors());
  FakeJob job(TwoTensors(), shard.Options());
  const auto client = Connect(OptionsFor(job, TwoTensors()));
  Tensors parameters = Values(TwoTensors(), 1);
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  ASSERT_TRUE(client->PushPull(Read(parameters), {}, Write(&parameters)).ok());
  EXPECT_EQ(shard.counts().requests, 1);
  EXPECT_EQ(shard.counts().takes_device, 0);
  EXPECT_THAT(client->job().transports, ElementsAre("shm"));
  EXPECT_EQ(shard.counts().frames, 2);
}

struct LieCase {
  const char* name;
  DeviceShard::Tell tell;
  bool row_of_the_host = true;  // is believed all the same
};

class LyingDeviceTest : public testing::TestWithParam<LieCase> {
 protected:
  const int64_t live_ = fake_cuda::NumLive();
};

TEST_P(LyingDeviceTest, TheHostsMemoryDoesInstead) {
  {
    DeviceWorker worker(TwoTensors(), DType::kF32, GetParam().tell);
    ASSERT_TRUE(worker.Round(0.5f).ok());
    ASSERT_TRUE(worker.Round(0.25f).ok());
    EXPECT_EQ(worker.parameters.Get(), Expected(TwoTensors(), {0.5f, 0.25f}));
    const DeviceShard::Counts counts = worker.shard.counts();
    EXPECT_GE(counts.takes_device, 1);
    EXPECT_EQ(counts.frames_on_device, 0);
    EXPECT_EQ(counts.pulls_on_device, 0);
    EXPECT_EQ(counts.frames > 0, GetParam().row_of_the_host);
  }
  EXPECT_EQ(fake_cuda::NumLive(), live_);
}

LieCase Both(const char* name, std::function<void(v1::DeviceRegion*)> tell) {
  return {name, [tell](RegionGift* gift) {
            tell(gift->reply.mutable_row_device());
            tell(gift->reply.mutable_parameters_device());
          }};
}

// Descriptors: row, version, the row's device, the parameters', the page.
const LieCase kLies[] = {
    Both("MoreThanIsMapped",
         [](v1::DeviceRegion* r) { r->set_bytes(r->mapped_bytes() + 4); }),
    Both("NoBytes", [](v1::DeviceRegion* r) { r->set_bytes(0); }),
    Both("MappedIsHuge",
         [](v1::DeviceRegion* r) { r->set_mapped_bytes(~uint64_t{0}); }),
    Both("MappedIsMoreThanThereIs",
         [](v1::DeviceRegion* r) {
           r->set_mapped_bytes(r->mapped_bytes() * 2);
         }),
    Both("NoUuid", [](v1::DeviceRegion* r) { r->clear_uuid(); }),
    Both("AnotherType", [](v1::DeviceRegion* r) { r->set_dtype(v1::BF16); }),
    {"DescriptorsOfSomethingElse",
     [](RegionGift* gift) {
       for (const int i : {2, 3}) {
         gift->descriptors[i] = FileDescriptor(dup(STDERR_FILENO));
       }
     }},
    {"DescriptorsAreMissing",
     [](RegionGift* gift) { gift->descriptors.resize(2); }},
    {"DescriptorsAreTooMany",
     [](RegionGift* gift) {
       gift->descriptors.push_back(FileDescriptor(dup(STDERR_FILENO)));
     }},
    {"NoRow",
     [](RegionGift* gift) {
       gift->reply.clear_row();
       gift->reply.clear_row_offsets();
       gift->descriptors.erase(gift->descriptors.begin());
       gift->reply.clear_parameters_device();
       gift->descriptors.resize(2);
     },
     /*row_of_the_host=*/false},
};

INSTANTIATE_TEST_SUITE_P(Lies, LyingDeviceTest, testing::ValuesIn(kLies),
                         [](const testing::TestParamInfo<LieCase>& info) {
                           return std::string(info.param.name);
                         });

TEST_F(DeviceRowsTest, ADriverThatCannotMapIsNone) {
  fake_cuda::Fail("cuMemImportFromShareableHandle", 801);
  DeviceWorker worker(TwoTensors());
  ASSERT_TRUE(worker.Round(0.5f).ok());
  EXPECT_EQ(worker.parameters.Get(), Expected(TwoTensors(), {0.5f}));
  EXPECT_EQ(worker.shard.counts().frames, 2);
  EXPECT_EQ(worker.shard.counts().frames_on_device, 0);
}

// Tensors on another device than the shard's: rows and versions go from and to
// a peer of it, and by way of the host where there is none.

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
    ASSERT_TRUE(worker->RoundInCalls(row).ok());
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

// Copies to the row, of which nobody is told before they are done. What a shard
// says of it that is not so is tested above.

constexpr int64_t kBytes = 64;

class DeviceRowTest : public testing::Test {
 protected:
  DeviceRowTest() {
    const absl::Span<const float> tensor(reinterpret_cast<float*>(from_), 16);
    EXPECT_TRUE(devices_.DevicesOf({TensorView(tensor)}).ok());
    const DeviceUuid uuid = *context_->driver().UuidOf(0);
    said_.set_bytes(kBytes);
    said_.set_mapped_bytes(static_cast<uint64_t>(memory_->mapped_bytes()));
    said_.set_dtype(v1::F32);
    said_.set_uuid(std::string(uuid.begin(), uuid.end()));
    auto row = DeviceRow::Map(said_, DType::kF32, kBytes,
                              FileDescriptor(dup(memory_->fd())), 0, &devices_);
    EXPECT_TRUE(row.ok()) << row.status();
    if (row.ok()) row_ = *std::move(row);
  }
  ~DeviceRowTest() override {
    row_ = nullptr;
    fake_cuda::Free(from_);
  }

  std::string Row() const { return std::string(memory_->data(), kBytes); }

  char* const from_ = fake_cuda::Alloc(kBytes);
  const std::shared_ptr<const DeviceContext> context_ =
      *DeviceContext::Retain(*CudaDriver::Load(kFakeCudaPath), 0);
  const std::unique_ptr<SharedDeviceMemory> memory_ =
      *SharedDeviceMemory::Create(context_, kBytes);
  TensorDevices devices_;
  v1::DeviceRegion said_;
  std::unique_ptr<DeviceRow> row_;
};

// A frame is told of when its copies are done, and not those of the next one.
TEST_F(DeviceRowTest, CopiesAreDoneWhenTheirMarkIs) {
  std::memset(memory_->data(), 0, kBytes);
  std::memset(from_, 'x', kBytes);
  fake_cuda::Hang(0, true);  // the caller's stream is nobody's here
  fake_cuda::Launch(0, [] {});
  ASSERT_TRUE(row_->Copy(0, from_, 0, 32).ok());
  auto first = row_->Mark();
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(row_->Copy(0, from_ + 32, 32, 32).ok());
  auto second = row_->Mark();
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(Row(), std::string(kBytes, '\0'));
  ASSERT_TRUE(row_->Await(*std::move(first)).ok());
  EXPECT_EQ(Row(), std::string(32, 'x') + std::string(32, '\0'));
  ASSERT_TRUE(row_->Await(*std::move(second)).ok());
  EXPECT_EQ(Row(), std::string(kBytes, 'x'));
  fake_cuda::Hang(0, false);
}

TEST_F(DeviceRowTest, NeighboursOfOneTensorAreOneCopy) {
  ASSERT_TRUE(row_->Copy(0, from_, 16, 8).ok());
  ASSERT_TRUE(row_->Copy(0, from_ + 8, 24, 8).ok());   // of both
  ASSERT_TRUE(row_->Copy(0, from_ + 16, 40, 8).ok());  // not in the row
  ASSERT_TRUE(row_->Copy(0, from_ + 32, 48, 8).ok());  // not in the tensor
  ASSERT_TRUE(row_->Copy(1, from_ + 40, 56, 8).ok());  // of another one
  auto event = row_->Mark();
  ASSERT_TRUE(event.ok());
  EXPECT_EQ(row_->num_copies(), 4);
  ASSERT_TRUE(row_->Await(*std::move(event)).ok());
  // One that was waited for is used again.
  const int64_t made = fake_cuda::NumCalls("cuEventCreate");
  event = row_->Mark();
  ASSERT_TRUE(event.ok());
  EXPECT_EQ(fake_cuda::NumCalls("cuEventCreate"), made);
  ASSERT_TRUE(row_->Await(*std::move(event)).ok());
}

// The fixture's memory as the shard's parameters.
TEST_F(DeviceRowTest, ParametersOfOneTensorAreOneCopy) {
  const auto page = SharedMemory::Create(4096, SharedMemory::Others::kRead);
  ASSERT_TRUE(page.ok()) << page.status();
  const auto parameters =
      DeviceParameters::Map(said_, FileDescriptor(dup(memory_->fd())),
                            FileDescriptor(dup((*page)->fd())), 0, &devices_);
  ASSERT_TRUE(parameters.ok()) << parameters.status();
  for (int i = 0; i < kBytes; ++i) memory_->data()[i] = static_cast<char>(i);
  std::memset(from_, 0, kBytes);
  auto* const to = reinterpret_cast<float*>(from_);
  const DeviceParameters::Place places[] = {
      {0, 16, to, 8},     {0, 24, to + 2, 4},  // neighbours in both
      {0, 32, to + 3, 4},                      // not at the shard's
      {0, 36, to + 5, 4},                      // not in the tensor
      {1, 40, to + 6, 4},                      // of another tensor
      {1, 44, to + 7, 0},                      // nothing
  };
  ASSERT_TRUE((*parameters)->Begin(places).ok());
  EXPECT_EQ((*parameters)->num_copies(), 4);
  ASSERT_TRUE((*parameters)->Finish(0).ok());
  const std::string expected = {16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
                                26, 27, 32, 33, 34, 35, 0,  0,  0,  0,
                                36, 37, 38, 39, 40, 41, 42, 43};
  EXPECT_EQ(std::string(from_, 28), expected);
}

TEST_F(DeviceRowTest, WhatIsDiscardedIsNotBegun) {
  std::memset(memory_->data(), 0, kBytes);
  std::memset(from_, 'x', kBytes);
  ASSERT_TRUE(row_->Copy(0, from_, 0, 8).ok());
  row_->Discard();
  auto event = row_->Mark();
  ASSERT_TRUE(event.ok());
  ASSERT_TRUE(row_->Await(*std::move(event)).ok());
  EXPECT_EQ(Row(), std::string(kBytes, '\0'));
}

TEST_F(DeviceRowTest, ADeviceWithoutPeerAccessIsNotUsed) {
  fake_cuda::SetNumDevices(2);
  fake_cuda::SetPeers(false);
  const FileDescriptor fd(dup(memory_->fd()));
  EXPECT_TRUE(absl::IsUnimplemented(
      DeviceRow::Map(said_, DType::kF32, kBytes, fd, 1, &devices_).status()));
  fake_cuda::SetPeers(true);
  EXPECT_TRUE(
      DeviceRow::Map(said_, DType::kF32, kBytes, fd, 1, &devices_).ok());
  fake_cuda::SetNumDevices(1);
}

}  // namespace
}  // namespace agg
