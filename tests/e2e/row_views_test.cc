// Gradients computed where the row lies, in any dtype and in several pieces:
// the bits of the same job over TCP, from C++ and through the C ABI.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/narrow_float.h"
#include "tests/e2e/loopback_job.h"
#include "worker_client/c/agg.h"

namespace agg {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kShards = 2;
constexpr uint64_t kRounds = 3;

// A tensor of three slices, which lie on both shards, and small ones.
Manifest TheManifest() {
  return ShapedManifest({{3, 700001}, {7}, {}, {0, 4}, {5}});
}

std::string ConfigOf(const std::string& push_dtype, int workers = 1) {
  return absl::StrCat("workers: ", workers,
                      " learning_rate { rate: 0.1 } push_dtype: '", push_dtype,
                      "' ");
}

std::unique_ptr<AggClient> Connect(const LoopbackJob& job, bool shared) {
  ClientOptions options = job.Options(0, TheManifest());
  options.shared_memory = shared;
  options.local_sockets = shared;
  options.copy_threads = 2;
  auto client = AggClient::Connect(options);
  EXPECT_TRUE(client.ok()) << client.status();
  return client.ok() ? *std::move(client) : nullptr;
}

// One element of a gradient, as the row's dtype has it.
void Store(float value, DType dtype, char* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, &value, sizeof(value));
    return;
  }
  const uint16_t narrow =
      dtype == DType::kBF16 ? Bf16OfFloat(value) : F16OfFloat(value);
  std::memcpy(to, &narrow, sizeof(narrow));
}

void Compute(const HostTensors& gradient, const std::vector<RowView>& row) {
  for (size_t t = 0; t < row.size(); ++t) {
    for (const TensorPiece& piece : row[t].pieces) {
      for (int64_t e = 0; e < piece.num_elements; ++e) {
        Store(gradient[t][piece.begin + e], row[t].dtype,
              static_cast<char*>(piece.data) + e * DTypeBytes(row[t].dtype));
      }
    }
  }
}

std::vector<TensorView> ViewsOfRow(const std::vector<RowView>& row) {
  std::vector<TensorView> views;
  for (const RowView& tensor : row) views.push_back(tensor.view());
  return views;
}

// The parameters after each round of the same job over TCP.
std::vector<HostTensors> Sent(const std::string& push_dtype) {
  const LoopbackJob job(kShards, ConfigOf(push_dtype));
  const auto client = Connect(job, false);
  std::vector<HostTensors> versions;
  HostTensors parameters = MakeTensors(TheManifest(), 7);
  EXPECT_TRUE(client->SeedOrPull(MutableViews(&parameters)).ok());
  for (uint64_t round = 0; round < kRounds; ++round) {
    const HostTensors gradient = MakeTensors(TheManifest(), 10 + round);
    EXPECT_TRUE(
        client->PushPull(Views(gradient), {}, MutableViews(&parameters)).ok());
    versions.push_back(parameters);
  }
  return versions;
}

class RowViewsOf : public testing::TestWithParam<const char*> {};

TEST_P(RowViewsOf, HaveTheBitsThatTcpGives) {
  const std::vector<HostTensors> expected = Sent(GetParam());
  const LoopbackJob job(kShards, ConfigOf(GetParam()));
  const auto client = Connect(job, true);
  HostTensors parameters = MakeTensors(TheManifest(), 7);
  ASSERT_TRUE(client->SeedOrPull(MutableViews(&parameters)).ok());
  const auto row = client->RowViews();
  ASSERT_TRUE(row.ok()) << row.status();
  ASSERT_EQ(row->size(), TheManifest().tensors.size());
  EXPECT_GT((*row)[0].pieces.size(), 1u);
  EXPECT_EQ((*row)[1].pieces.size(), 1u);
  EXPECT_TRUE((*row)[3].pieces.empty());
  for (uint64_t round = 0; round < kRounds; ++round) {
    Compute(MakeTensors(TheManifest(), 10 + round), *row);
    ASSERT_TRUE(client->Push(ViewsOfRow(*row)).ok());
    const absl::StatusOr<RoundOutcome> outcome = client->Commit({});
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_TRUE(outcome->included);
    ASSERT_TRUE(client->Pull(round + 1, MutableViews(&parameters)).ok());
    EXPECT_EQ(parameters, expected[round]);
  }
}

// A second gradient of a round is sent from where the first one was.
TEST_P(RowViewsOf, AreMemoryLikeAnyOtherForASecondGradient) {
  const std::vector<HostTensors> expected = Sent(GetParam());
  const LoopbackJob job(kShards, ConfigOf(GetParam()));
  const auto client = Connect(job, true);
  HostTensors parameters = MakeTensors(TheManifest(), 7);
  ASSERT_TRUE(client->SeedOrPull(MutableViews(&parameters)).ok());
  const auto row = client->RowViews();
  ASSERT_TRUE(row.ok()) << row.status();
  Compute(MakeTensors(TheManifest(), 10), *row);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(client->Push(ViewsOfRow(*row)).ok());
  }
  ASSERT_TRUE(client->Commit({}).ok());
  ASSERT_TRUE(client->Pull(1, MutableViews(&parameters)).ok());
  EXPECT_EQ(parameters, expected[0]);
}

TEST_P(RowViewsOf, ArePushedTensorByTensor) {
  const std::vector<HostTensors> expected = Sent(GetParam());
  const Manifest manifest = TheManifest();
  const LoopbackJob job(kShards, ConfigOf(GetParam()));
  const auto client = Connect(job, true);
  HostTensors parameters = MakeTensors(manifest, 7);
  ASSERT_TRUE(client->SeedOrPull(MutableViews(&parameters)).ok());
  const auto row = client->RowViews();
  ASSERT_TRUE(row.ok()) << row.status();
  for (uint64_t round = 0; round < kRounds; ++round) {
    Compute(MakeTensors(manifest, 10 + round), *row);
    for (size_t t = row->size(); t-- > 0;) {
      TensorView view = (*row)[t].view();
      view.name = manifest.tensors[t].name;
      client->StartPush({view});
    }
    ASSERT_TRUE(client->StartCommit({}).Wait().ok());
    ASSERT_TRUE(client->Pull(round + 1, MutableViews(&parameters)).ok());
    EXPECT_EQ(parameters, expected[round]);
  }
}

// The parameters after a round of two workers. `shared`: rank 0's gradient is
// nowhere but in its row, whose shard ends in good order, and comes back, while
// the round waits for the other one.
HostTensors OfTwo(const std::string& push_dtype, bool shared) {
  LoopbackJob job(kShards, ConfigOf(push_dtype, 2));
  std::vector<std::unique_ptr<AggClient>> clients;
  HostTensors parameters = MakeTensors(TheManifest(), 7);
  HostTensors others = parameters;
  for (int rank = 0; rank < 2; ++rank) {
    ClientOptions options = job.Options(rank, TheManifest());
    options.shared_memory = shared;
    options.local_sockets = shared;
    options.recovery_window = absl::Minutes(2);
    clients.push_back(*AggClient::Connect(options));
    EXPECT_TRUE(clients[rank]->SeedOrPull(MutableViews(&parameters)).ok());
  }
  const HostTensors gradient = MakeTensors(TheManifest(), 20);
  std::vector<TensorView> views = Views(gradient);
  const auto row = clients[0]->RowViews();
  EXPECT_EQ(row.ok(), shared) << row.status();
  if (row.ok()) {
    Compute(gradient, *row);
    views = ViewsOfRow(*row);
  }
  const Manifest manifest = TheManifest();
  for (size_t t = 0; t < views.size(); ++t) {
    views[t].name = manifest.tensors[t].name;
  }
  const absl::Status landed = clients[0]->StartPush(views).Wait();
  EXPECT_TRUE(landed.ok()) << landed;
  if (!landed.ok()) return {};
  RoundOperation round =
      clients[0]->StartRound({}, {}, MutableViews(&parameters));
  if (shared) {
    job.Stop(1);
    job.StartAgain(1);
  }
  const HostTensors own = MakeTensors(manifest, 21);
  const auto outcome =
      clients[1]->PushPull(Views(own), {}, MutableViews(&others));
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(round.Outcome().ok()) << round.Outcome().status();
  EXPECT_EQ(parameters, others);
  return parameters;
}

TEST_P(RowViewsOf, OutliveTheShardThatGaveThem) {
  EXPECT_EQ(OfTwo(GetParam(), true), OfTwo(GetParam(), false));
}

INSTANTIATE_TEST_SUITE_P(DTypes, RowViewsOf,
                         testing::Values("f32", "bf16", "f16"),
                         [](const auto& name) { return name.param; });

TEST(RowViewsTest, RowsOfInt8AreRoundedToWhereTheyLie) {
  const std::vector<HostTensors> expected = Sent("int8");
  const LoopbackJob job(kShards, ConfigOf("int8"));
  const auto client = Connect(job, true);
  EXPECT_THAT(client->job().transports, Each(std::string("shm")));
  const absl::Status refused = client->RowViews().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(refused.message(), HasSubstr("the job's rows are int8"));
  HostTensors parameters = MakeTensors(TheManifest(), 7);
  ASSERT_TRUE(client->SeedOrPull(MutableViews(&parameters)).ok());
  for (uint64_t round = 0; round < kRounds; ++round) {
    const HostTensors gradient = MakeTensors(TheManifest(), 10 + round);
    ASSERT_TRUE(
        client->PushPull(Views(gradient), {}, MutableViews(&parameters)).ok());
    EXPECT_EQ(parameters, expected[round]);
  }
}

TEST(RowViewsTest, WhereNothingIsSharedThereAreNone) {
  const LoopbackJob job(kShards, ConfigOf("bf16"));
  const auto client = Connect(job, false);
  EXPECT_THAT(client->RowViews().status().message(),
              HasSubstr("shares no row with this worker"));
}

// --- The C ABI ---------------------------------------------------------------

class CRowTest : public testing::Test {
 protected:
  CRowTest()
      : job_(kShards, ConfigOf("bf16")), coordinator_(job_.coordinator()) {
    agg_options options;
    agg_options_init(&options, sizeof(options));
    options.coordinator = coordinator_.c_str();
    const Manifest manifest = TheManifest();
    std::vector<agg_spec> specs;
    for (const TensorSpec& spec : manifest.tensors) {
      specs.push_back({spec.name.c_str(), nullptr, spec.shape.data(),
                       static_cast<int32_t>(spec.shape.size()), 0});
    }
    options.specs = specs.data();
    options.num_specs = specs.size();
    client_ = agg_new(&options);
    EXPECT_EQ(agg_connect(client_), AGG_OK) << agg_error();
    for (std::vector<float>& tensor : parameters_) {
      targets_.push_back({tensor.data(), static_cast<int64_t>(tensor.size())});
    }
    EXPECT_EQ(agg_seed_or_pull(client_, targets_.data(), targets_.size()),
              AGG_OK)
        << agg_error();
  }
  ~CRowTest() override { agg_free(client_); }

  std::vector<agg_piece> Pieces() {
    size_t count = 0;
    EXPECT_EQ(agg_row_pieces(client_, nullptr, 0, &count), AGG_OK)
        << agg_error();
    std::vector<agg_piece> pieces(count);
    EXPECT_EQ(agg_row_pieces(client_, pieces.data(), count, &count), AGG_OK);
    return pieces;
  }

  const LoopbackJob job_;
  const std::string coordinator_;
  HostTensors parameters_ = MakeTensors(TheManifest(), 7);
  std::vector<agg_target> targets_;
  agg_client* client_ = nullptr;
};

TEST_F(CRowTest, IsComputedAndPushedWhereItLies) {
  const std::vector<HostTensors> expected = Sent("bf16");
  const std::vector<agg_piece> pieces = Pieces();
  ASSERT_GT(pieces.size(), parameters_.size());
  for (uint64_t round = 0; round < kRounds; ++round) {
    const HostTensors gradient = MakeTensors(TheManifest(), 10 + round);
    for (const agg_piece& piece : pieces) {
      ASSERT_EQ(piece.dtype, AGG_BF16);
      for (int64_t e = 0; e < piece.num_elements; ++e) {
        Store(gradient[piece.tensor][piece.begin + e], DType::kBF16,
              static_cast<char*>(piece.data) + 2 * e);
      }
    }
    std::vector<agg_view> views(parameters_.size(), agg_view{nullptr, 0, 0, 1});
    ASSERT_EQ(agg_push_pull(client_, views.data(), views.size(), nullptr,
                            targets_.data(), targets_.size(), nullptr),
              AGG_OK)
        << agg_error();
    EXPECT_EQ(parameters_, expected[round]);
  }
}

TEST_F(CRowTest, AViewInTheRowNeedsPieces) {
  const agg_view view = {nullptr, 0, AGG_BF16, 1};
  const uint64_t tensor = 1;
  EXPECT_EQ(agg_start_push(client_, &tensor, &view, 1, nullptr),
            AGG_INVALID_ARGUMENT);
  EXPECT_THAT(agg_error(), HasSubstr("views[0].in_row is 1; allowed: 0 before "
                                     "agg_row_pieces"));
  Pieces();
  const uint64_t none = 99;
  EXPECT_EQ(agg_start_push(client_, &none, &view, 1, nullptr),
            AGG_INVALID_ARGUMENT);
  EXPECT_EQ(agg_start_push(client_, &tensor, &view, 1, nullptr), AGG_OK)
      << agg_error();
  size_t count = 0;
  EXPECT_EQ(agg_row_pieces(client_, nullptr, 5, &count), AGG_INVALID_ARGUMENT);
  EXPECT_EQ(agg_row_pieces(client_, nullptr, 0, nullptr), AGG_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace agg
