// Complete jobs on `backend: "cuda"`, K shards on one card, through real
// servers and clients.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/e2e/cuda_device.h"
#include "tests/e2e/loopback_job.h"
#include "tests/e2e/whole_job.h"
#include "tests/reference/row_statistics.h"

namespace agg {
namespace {

constexpr double kFloatUnit = 0x1p-24;

JobResult RunOn(const std::string& backend, const WholeJob& job,
                const Manifest& manifest, int num_shards) {
  WholeJob on = job;
  absl::StrAppend(&on.config, " backend: \"", backend, "\"");
  return RunWholeJob(on, manifest, num_shards, TheCudaDevice().make_backend);
}

Manifest ManifestOf(const WholeJob& job) {
  return job.workers > 8 ? SmallManifest()
                         : MixedManifest(TheCudaDevice().columns);
}

class CudaJobs : public testing::Test {
 protected:
  void SetUp() override {
    const std::string& why_not = TheCudaDevice().why_not;
    if (!why_not.empty()) GTEST_SKIP() << why_not;
    BeginRun(0);
  }
};

class CudaJobsOf : public CudaJobs,
                   public testing::WithParamInterface<WholeJob> {};

TEST_P(CudaJobsOf, HaveTheSameBitsForAnyShardCountAndInEveryRun) {
  const Manifest manifest = ManifestOf(GetParam());
  const JobResult expected = RunOn("cuda", GetParam(), manifest, 1);
  int run = 1;
  for (const int num_shards : {1, 2, 3}) {
    SCOPED_TRACE(absl::StrCat(num_shards, " shards"));
    BeginRun(run++);
    ExpectSameResult(RunOn("cuda", GetParam(), manifest, num_shards), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, CudaJobsOf, testing::ValuesIn(WholeJobs()),
                         NameOf);

// The coefficients of these rules do not come from the Gram matrix, whose last
// bits may differ from the CPU's, and Update has the CPU's bits.
class CudaMeans : public CudaJobs,
                  public testing::WithParamInterface<WholeJob> {};

TEST_P(CudaMeans, HaveTheBitsOfTheCpu) {
  const Manifest manifest = ManifestOf(GetParam());
  EXPECT_TRUE(RunOn("cuda", GetParam(), manifest, 2).parameters ==
              RunOn("cpu", GetParam(), manifest, 3).parameters);
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, CudaMeans,
    testing::Values(
        WholeJob{"mean_adamw", 3,
                 "combination { rule: \"mean\" } learning_rate { rate: 0.1 } "
                 "optimizer { kind: \"adamw\" weight_decay: 0.01 }"},
        WholeJob{"sum_bf16_both_ways", 3,
                 "combination { rule: \"sum\" } learning_rate { rate: 0.1 } "
                 "push_dtype: \"bf16\" pull_dtype: \"bf16\""},
        WholeJob{"weighted_mean_f16_adagrad", 2,
                 "combination { rule: \"weighted_mean\" } "
                 "learning_rate { rate: 0.1 } push_dtype: \"f16\" "
                 "optimizer { kind: \"adagrad\" }"},
        WholeJob{"mean_of_33", 33,
                 "combination { rule: \"mean\" } learning_rate { rate: 0.1 } "
                 "optimizer { kind: \"sgd\" momentum: 0.9 }"}),
    NameOf);

// A trust ratio may differ in a float's last bit, hence as the conformance
// suites: a few float roundings per round, of values up to 4.
TEST_F(CudaJobs, LambIsWithinFloatRoundingsOfTheCpu) {
  const WholeJob job = {"lamb", 2,
                        "optimizer { kind: \"lamb\" weight_decay: 0.01 } "
                        "learning_rate { rate: 0.05 }"};
  const Manifest manifest = ManifestOf(job);
  const HostTensors cuda = RunOn("cuda", job, manifest, 2).parameters;
  const HostTensors cpu = RunOn("cpu", job, manifest, 2).parameters;
  for (size_t t = 0; t < cpu.size(); ++t) {
    ASSERT_EQ(cuda[t].size(), cpu[t].size());
    for (size_t k = 0; k < cpu[t].size(); ++k) {
      ASSERT_NEAR(cuda[t][k], cpu[t][k], 3 * 16 * kFloatUnit * 4.0)
          << "tensor " << t << ", element " << k;
    }
  }
}

// One node of Adasum's tree, and how much of each row is in it.
struct Node {
  reference::Vector sum;
  std::vector<double> weights;
};

Node Pair(const Node& a, const Node& b) {
  const auto dot = static_cast<double>(reference::Dot(a.sum, b.sum));
  const double of_a =
      1.0 - dot / (2.0 * static_cast<double>(reference::NormSquared(a.sum)));
  const double of_b =
      1.0 - dot / (2.0 * static_cast<double>(reference::NormSquared(b.sum)));
  Node node;
  node.sum = reference::AdasumPair(a.sum, b.sum);
  for (size_t i = 0; i < a.weights.size(); ++i) {
    node.weights.push_back(of_a * a.weights[i] + of_b * b.weights[i]);
  }
  return node;
}

// sum |w_i| ||g_i|| of four rows.
double RowMagnitude(const reference::Rows& rows) {
  std::vector<Node> nodes;
  for (size_t i = 0; i < rows.size(); ++i) {
    nodes.push_back({reference::ToVector(rows[i]), {0.0, 0.0, 0.0, 0.0}});
    nodes.back().weights[i] = 1.0;
  }
  const Node root = Pair(Pair(nodes[0], nodes[1]), Pair(nodes[2], nodes[3]));
  double sum = 0.0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto norm = reference::Norm(reference::ToVector(rows[i]));
    sum += std::abs(root.weights[i]) * static_cast<double>(norm);
  }
  return sum;
}

// What one round combines: the optimizer "none" keeps it as the parameters.
HostTensors CombinedOf(const std::string& backend, const Manifest& manifest,
                       const std::vector<HostTensors>& gradients) {
  LoopbackJob job(
      3,
      absl::StrCat("workers: 4 combination { rule: \"adasum\" } "
                   "learning_rate { rate: 1 } optimizer { kind: \"none\" } "
                   "backend: \"",
                   backend, "\""),
      TheCudaDevice().make_backend);
  HostTensors result;
  std::vector<std::unique_ptr<AggClient>> clients(gradients.size());
  RunWorkers(4, [&](int rank) {
    clients[rank] = job.Connect(rank, manifest);
    HostTensors parameters = MakeTensors(manifest, 7);
    ASSERT_TRUE(clients[rank]->SeedOrPull(MutableViews(&parameters)).ok());
    const auto outcome = clients[rank]->PushPull(Views(gradients[rank]), {},
                                                 MutableViews(&parameters));
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    if (rank == 0) result = parameters;
  });
  return result;
}

double Distance(const std::vector<float>& a, const reference::Vector& b) {
  return static_cast<double>(
      reference::Distance(reference::Vector(a.begin(), a.end()), b));
}

// Within the bound of server/combine/README.md 10.4 of the tree on the vectors,
// and so of the CPU: rows that have a part in common, and lengths from 1 to
// 1000.
TEST_F(CudaJobs, AdasumIsThatOfTheVectorsAndOfTheCpu) {
  const Manifest manifest =
      MixedManifest(std::min<int64_t>(TheCudaDevice().columns, 70000));
  const HostTensors common = MakeTensors(manifest, 50);
  std::vector<HostTensors> gradients;
  for (int rank = 0; rank < 4; ++rank) {
    gradients.push_back(MakeTensors(manifest, 51 + rank));
    const float length = std::pow(10.0f, static_cast<float>(rank));
    for (size_t t = 0; t < common.size(); ++t) {
      for (size_t k = 0; k < common[t].size(); ++k) {
        gradients[rank][t][k] =
            length * (common[t][k] + 0.25f * gradients[rank][t][k]);
      }
    }
  }
  const HostTensors cuda = CombinedOf("cuda", manifest, gradients);
  const HostTensors cpu = CombinedOf("cpu", manifest, gradients);
  ASSERT_EQ(cuda.size(), manifest.tensors.size());
  ASSERT_EQ(cpu.size(), manifest.tensors.size());
  for (size_t t = 0; t < cuda.size(); ++t) {
    SCOPED_TRACE(absl::StrCat("tensor ", t));
    if (cuda[t].empty()) continue;
    reference::Rows rows;
    for (const HostTensors& gradient : gradients) {
      rows.emplace_back(gradient[t].begin(), gradient[t].end());
    }
    const double bound = 4 * kFloatUnit * RowMagnitude(rows);
    EXPECT_LE(Distance(cuda[t], reference::AdasumTree(rows)), bound);
    EXPECT_LE(
        Distance(cuda[t], reference::Vector(cpu[t].begin(), cpu[t].end())),
        bound);
  }
}

}  // namespace
}  // namespace agg
