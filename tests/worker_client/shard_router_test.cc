#include "worker_client/shard_router.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TensorSpec Spec(std::string name, std::vector<int64_t> shape,
                bool optional = false) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.shape = std::move(shape);
  spec.optional = optional;
  return spec;
}

Manifest SmallManifest() {
  return {{Spec("a", {2, 3}), Spec("empty", {0}), Spec("scalar", {}),
           Spec("maybe", {5}, true)}};
}

ShardRouter Router(Manifest manifest, int num_shards) {
  return ShardRouter::Create(std::move(manifest), num_shards).value();
}

TEST(ShardRouterTest, BindsViewsInManifestOrder) {
  const std::vector<float> a(6), scalar(1);
  const std::vector<TensorView> views = {absl::MakeConstSpan(a), TensorView(),
                                         absl::MakeConstSpan(scalar),
                                         TensorView()};
  const auto bound = Router(SmallManifest(), 1).Bind(views, DType::kF32);
  ASSERT_TRUE(bound.ok()) << bound.status();
  EXPECT_EQ((*bound)[0].data, a.data());
  EXPECT_EQ((*bound)[2].data, scalar.data());
  EXPECT_EQ((*bound)[3].data, nullptr);
}

TEST(ShardRouterTest, BindsNamedViewsInAnyOrder) {
  const std::vector<float> a(6), scalar(1), maybe(5);
  const std::vector<TensorView> views = {
      {"maybe", maybe}, {"scalar", scalar}, {"a", a}};
  const auto bound = Router(SmallManifest(), 1).Bind(views, DType::kF32);
  ASSERT_TRUE(bound.ok()) << bound.status();
  EXPECT_EQ((*bound)[0].data, a.data());
  EXPECT_EQ((*bound)[3].data, maybe.data());
}

TEST(ShardRouterTest, NamesTheTensorThatDoesNotFit) {
  const std::vector<float> a(6), scalar(1), seven(7);
  const ShardRouter router = Router(SmallManifest(), 1);
  struct Case {
    std::vector<TensorView> views;
    std::string message;
  };
  TensorView half("a", a);
  half.dtype = DType::kF16;
  const std::vector<Case> cases = {
      {{{"a", a}}, "\"scalar\" is missing"},
      {{{"a", a}, {"b", a}}, "\"b\" is not in the job's manifest"},
      {{{"a", a}, {"a", a}}, "\"a\" is given twice"},
      {{{"a", seven}, {"scalar", scalar}}, "\"a\" has 7 elements here, but 6"},
      {{half, {"scalar", scalar}}, "\"a\" is f16; allowed: f32"},
      {{absl::MakeConstSpan(a)}, "1 tensors were given without names"},
      {{{"a", a}, absl::MakeConstSpan(scalar)}, "name all tensors or none"},
  };
  for (const Case& c : cases) {
    const absl::Status status = router.Bind(c.views, DType::kBF16).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

TEST(ShardRouterTest, PullNeedsOptionalTensorsToo) {
  std::vector<float> a(6), scalar(1);
  const std::vector<MutableTensorView> views = {
      {"a", absl::MakeSpan(a)}, {"scalar", absl::MakeSpan(scalar)}};
  const absl::Status status = Router(SmallManifest(), 1).Bind(views).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("\"maybe\" is missing; a pull needs all tensors"));
}

TEST(ShardRouterTest, PutsSmallSlicesIntoOneFrame) {
  const std::vector<float> a(6), scalar(1);
  const ShardRouter router = Router(SmallManifest(), 1);
  const std::vector<TensorView> views = {{"a", a}, {"scalar", scalar}};
  const auto bound = router.Bind(views, DType::kF32);
  ASSERT_TRUE(bound.ok()) << bound.status();
  const std::vector<FramePlan> frames =
      router.PlanFrames(0, DType::kF32, *bound);
  ASSERT_THAT(frames, SizeIs(1));
  EXPECT_EQ(frames[0].slices, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(frames[0].absent_slices, (std::vector<int32_t>{2}));
  EXPECT_EQ(frames[0].payload_bytes, 7 * 4);
}

// Every slice of every shard is in exactly one frame, in order, and no frame
// exceeds the cap; checked for sizes around the slice and frame limits.
TEST(ShardRouterTest, FramesCoverEachShardOnceUnderTheCap) {
  const Manifest manifest = {{Spec("big", {3, kMaxSliceElements}),
                              Spec("odd", {kMaxSliceElements / 2 + 1}),
                              Spec("b", {kMaxSliceElements / 2}),
                              Spec("c", {17})}};
  std::vector<float> dummy(1);
  std::vector<TensorView> bound;
  for (const TensorSpec& spec : manifest.tensors) {
    TensorView view = absl::MakeConstSpan(dummy);  // frames are only planned
    view.num_elements = NumElements(spec);
    bound.push_back(view);
  }
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (int num_shards : {1, 2, 3, 9}) {
      const ShardRouter router = Router(manifest, num_shards);
      size_t slices = 0;
      for (int shard = 0; shard < num_shards; ++shard) {
        std::vector<int32_t> seen;
        for (const FramePlan& frame : router.PlanFrames(shard, dtype, bound)) {
          EXPECT_LE(frame.payload_bytes, kMaxFramePayloadBytes);
          EXPECT_FALSE(frame.slices.empty());
          int64_t bytes = 0;
          for (int32_t index : frame.slices) {
            bytes +=
                router.plan().slices[index].num_elements * DTypeBytes(dtype);
            seen.push_back(index);
          }
          EXPECT_EQ(frame.payload_bytes, bytes);
        }
        EXPECT_EQ(seen, router.plan().slices_of_shard[shard]);
        slices += seen.size();
      }
      EXPECT_EQ(slices, router.plan().slices.size());
    }
  }
}

TEST(ShardRouterTest, AShardWithoutSlicesGetsNoFrame) {
  const std::vector<float> x(4);
  const ShardRouter router = Router({{Spec("x", {4})}}, 3);
  const std::vector<TensorView> views = {absl::MakeConstSpan(x)};
  const auto bound = router.Bind(views, DType::kF32);
  ASSERT_TRUE(bound.ok()) << bound.status();
  int frames = 0;
  for (int shard = 0; shard < 3; ++shard) {
    frames += router.PlanFrames(shard, DType::kF32, *bound).size();
  }
  EXPECT_EQ(frames, 1);
}

TEST(ShardRouterTest, ManyTinyTensorsDoNotMakeALargeMeta) {
  Manifest manifest;
  for (int i = 0; i < 3 * ShardRouter::kMaxSlicesPerFrame / 2; ++i) {
    manifest.tensors.push_back(Spec(std::to_string(i), {1}));
  }
  const std::vector<float> one(1);
  const std::vector<TensorView> bound(manifest.tensors.size(),
                                      absl::MakeConstSpan(one));
  const ShardRouter router = Router(manifest, 1);
  const std::vector<FramePlan> frames =
      router.PlanFrames(0, DType::kF32, bound);
  ASSERT_THAT(frames, SizeIs(2));
  EXPECT_THAT(frames[0].slices, SizeIs(ShardRouter::kMaxSlicesPerFrame));
}

// 2 slices and a rest, in 2 pieces.
TEST(ShardRouterTest, ATensorMayLieInPiecesThatAreCutWhereSlicesAre) {
  constexpr int64_t kSlice = kMaxSliceElements;
  const Manifest manifest = {{Spec("a", {2 * kSlice + 5})}};
  const ShardRouter router = Router(manifest, 2);
  uint16_t memory[2];
  using Pieces = std::vector<TensorPiece>;
  const auto bind = [&](const Pieces& pieces, DType push_dtype) {
    TensorView view;
    view.num_elements = 2 * kSlice + 5;
    view.dtype = DType::kBF16;
    view.pieces = pieces;
    return router.Bind({view}, push_dtype).status();
  };
  Pieces pieces = {{0, kSlice, &memory[0]}, {kSlice, kSlice + 5, &memory[1]}};
  EXPECT_TRUE(bind(pieces, DType::kBF16).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(bind(pieces, DType::kF16)));
  TensorView view;
  view.dtype = DType::kBF16;
  view.pieces = pieces;
  const auto at = [&](int64_t begin) { return ElementsFrom(view, begin); };
  EXPECT_EQ(at(0), reinterpret_cast<const char*>(&memory[0]));
  EXPECT_EQ(at(kSlice), reinterpret_cast<const char*>(&memory[1]));
  EXPECT_EQ(at(2 * kSlice), at(kSlice) + 2 * kSlice);
  for (const Pieces& bad :
       {Pieces{{0, kSlice, memory}},          // too few
        Pieces{{0, 2 * kSlice + 6, memory}},  // too many
        Pieces{{0, kSlice - 1, memory}, {kSlice - 1, kSlice + 6, memory}},
        Pieces{{0, kSlice, memory}, {2 * kSlice, 5, memory}},  // a gap
        Pieces{{0, 0, memory}, {0, 2 * kSlice + 5, memory}},   // empty
        Pieces{{0, kSlice, memory}, {kSlice, kSlice + 5, nullptr}}}) {
    const absl::Status status = bind(bad, DType::kBF16);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
}

TEST(ShardRouterTest, RefusesBadManifests) {
  EXPECT_EQ(ShardRouter::Create(Manifest(), 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Tensor a: slices 0, 1 and 2 (the last one of 5 elements); "empty": none;
// b: slice 3; c: slice 4.
Manifest TestManifest() {
  return {{{"a", {2 * kMaxSliceElements + 5}, "", false},
           {"empty", {0, 3}, "", false},
           {"b", {100}, "", false},
           {"c", {7}, "", true}}};
}

// What happens: tensors are given, or a shard takes and gets these slices.
struct Event {
  std::vector<int> give;
  int shard = -1;
  std::vector<int32_t> takes;
};
struct Case {
  const char* name;
  int num_shards;
  std::vector<Event> events;
};

Event Give(std::vector<int> tensors) { return {std::move(tensors), -1, {}}; }
Event Take(int shard, std::vector<int32_t> takes) {
  return {{}, shard, std::move(takes)};
}

std::vector<Case> Cases() {
  return {
      {"all at once, in the order of the manifest",
       1,
       {Give({0, 1, 2, 3}), Take(0, {0, 1, 2, 3, 4}), Take(0, {})}},
      {"backwards, each taken when it comes",
       1,
       {Take(0, {}), Give({3}), Take(0, {4}), Give({2}), Take(0, {3}),
        Give({1}), Take(0, {}), Give({0}), Take(0, {0, 1, 2})}},
      {"what gathers is taken in ascending order",
       1,
       {Give({3}), Give({0}), Take(0, {0, 1, 2, 4}), Give({2}), Take(0, {3})}},
      // Placed by size: 0 and 1 apart, then 3, 4 and 2 where there is less.
      {"each shard has its own",
       2,
       {Give({2}), Take(0, {3}), Take(1, {}), Give({0}), Take(1, {1, 2}),
        Take(0, {0}), Give({3, 1}), Take(1, {4}), Take(0, {})}},
      {"a shard without slices never gets one",
       9,
       {Give({0, 1, 2, 3}), Take(8, {}), Take(0, {0})}},
  };
}

TEST(RowScheduleTest, SlicesGoOutWhenTheirTensorIsThere) {
  for (const Case& test : Cases()) {
    SCOPED_TRACE(test.name);
    const ShardRouter router =
        *ShardRouter::Create(TestManifest(), test.num_shards);
    RowSchedule schedule(&router);
    for (const Event& event : test.events) {
      if (event.shard < 0) {
        schedule.Give(event.give);
      } else {
        EXPECT_EQ(schedule.Take(event.shard), event.takes);
      }
    }
  }
}

}  // namespace
}  // namespace agg
