// Tensors on the device of a shard of this host: their rows are written there,
// and versions read there, unless the shard says what is not so.
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/narrow_float.h"
#include "tests/kernels/device_memory/fake_cuda.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/device_shard.h"
#include "tests/worker_client/device_tensors.h"
#include "tests/worker_client/device_worker.h"
#include "tests/worker_client/fake_job.h"
#include "worker_client/agg_client.h"

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
  ASSERT_TRUE(worker.Round(0.5f).ok());
  EXPECT_EQ(worker.parameters.Get(), Expected(ManyTensors(), {0.5f}));
  EXPECT_EQ(worker.shard.counts().pulls, 2);
  EXPECT_EQ(worker.shard.counts().pulls_on_device, 1);
  ASSERT_TRUE(worker.Round(0.25f).ok());
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

}  // namespace
}  // namespace agg
