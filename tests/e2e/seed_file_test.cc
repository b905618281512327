// Parameters leave a job as a file and begin the next one.
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/loopback_job.h"
#include "worker_client/npz/npz.h"

namespace agg {
namespace {

const char kConfig[] = "workers: 1 learning_rate { rate: 0.1 }";

std::vector<NpzTensor> Named(const Manifest& manifest,
                             const HostTensors& tensors) {
  std::vector<NpzTensor> named;
  for (size_t t = 0; t < tensors.size(); ++t) {
    named.push_back(
        {manifest.tensors[t].name, manifest.tensors[t].shape, tensors[t]});
  }
  return named;
}

TEST(SeedFile, BeginsAJobWithAnothersParameters) {
  const Manifest manifest = ShapedManifest({{20, 3}, {}, {0, 2}, {7}});
  const std::string path = testing::TempDir() + "/params.npz";
  HostTensors trained;
  {
    LoopbackJob job(2, kConfig);
    Train(job, manifest, /*num_workers=*/1, /*num_rounds=*/2);
    trained = job.Parameters(manifest);
  }
  ASSERT_TRUE(WriteNpz(path, Named(manifest, trained)).ok());
  LoopbackJob job(3, kConfig);
  const std::unique_ptr<AggClient> client = job.Connect(0, manifest);
  const absl::StatusOr<RoundOutcome> seeded = client->SeedFile(path);
  ASSERT_TRUE(seeded.ok()) << seeded.status();
  EXPECT_EQ(job.Parameters(manifest), trained);
}

TEST(SeedFile, RefusesFilesThatDoNotFit) {
  const Manifest manifest = ShapedManifest({{2, 3}, {4}});
  const std::string path = testing::TempDir() + "/other.npz";
  LoopbackJob job(1, kConfig);
  const std::unique_ptr<AggClient> client = job.Connect(0, manifest);
  EXPECT_EQ(client->SeedFile(path + ".missing").status().code(),
            absl::StatusCode::kNotFound);
  const Manifest other = ShapedManifest({{3, 2}, {4}});
  ASSERT_TRUE(WriteNpz(path, Named(other, MakeTensors(other, 1))).ok());
  const absl::Status refused = client->SeedFile(path).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              testing::HasSubstr("\"t0\" has the shape [3,2]"));
  const Manifest fewer = ShapedManifest({{2, 3}});
  ASSERT_TRUE(WriteNpz(path, Named(fewer, MakeTensors(fewer, 1))).ok());
  EXPECT_EQ(client->SeedFile(path).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace agg
