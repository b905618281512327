// The float32 snapshot comes behind the narrowed one, which is published first:
// when each is there, what may be written meanwhile, and errors.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/narrow_float.h"
#include "server/params/parameter_store.h"
#include "server/params/snapshot.h"
#include "server/params/snapshot_finisher.h"
#include "server/shard/guarded_backend.h"
#include "tests/kernels/cuda/emulator/device.h"

namespace agg {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kTensorElements = 32;
constexpr float kStale = -77.0f;

// Parameters begin at 0 and lose 1 with each step.
class DeferredSnapshotTest : public testing::Test {
 protected:
  explicit DeferredSnapshotTest(int num_tensors = 3)
      : num_elements_(num_tensors * kTensorElements) {
    emulator::SetLazy(true);
    CudaOptions options;
    options.use_cublas = false;
    backend_ = *CudaBackend::Make(options);
    row_ = *backend_->Allocate(BufferUse::kRow, num_elements_ * 4);
    master_ = *backend_->Allocate(BufferUse::kState, num_elements_ * 4);
    combined_ = NewSnapshot(4);
    snapshot_ = NewSnapshot(4);
    narrowed_ = NewSnapshot(2);
    rows_ = {row_.get()};
    for (int t = 0; t < num_tensors; ++t) {
      updates_.push_back({{t * kTensorElements, kTensorElements},
                          coefficients_,
                          1.0f,
                          0.0f,
                          1.0f});
    }
    Load(0.0f);
    Fill(row_.get(), 1.0f);
    backend_->RowLanded(*row_, DType::kF32, {0, num_elements_});
    // Brings the row to the device, and is 1 everywhere.
    EXPECT_EQ(backend_->Combine(Request(nullptr)), absl::OkStatus());
    Fill(snapshot_.get(), kStale);
  }

  // The memory of a copy that is under way stays (Backend::FinishSnapshot).
  ~DeferredSnapshotTest() override {
    backend_->FinishSnapshot(*snapshot_).IgnoreError();
  }

  std::unique_ptr<Buffer> NewSnapshot(int64_t element_bytes) {
    return *backend_->Allocate(BufferUse::kSnapshot,
                               num_elements_ * element_bytes);
  }
  void Fill(Buffer* buffer, float value) const {
    std::fill_n(reinterpret_cast<float*>(buffer->host()), num_elements_, value);
  }
  std::vector<float> Values(const Buffer& buffer) const {
    const auto* const values = reinterpret_cast<const float*>(buffer.host());
    return std::vector<float>(values, values + num_elements_);
  }
  std::vector<float> Narrowed() const {
    std::vector<float> values(num_elements_);
    for (int64_t i = 0; i < num_elements_; ++i) {
      values[i] =
          FloatOfBf16(reinterpret_cast<const uint16_t*>(narrowed_->host())[i]);
    }
    return values;
  }

  void Load(float value) {
    const auto seed = NewSnapshot(4);
    Fill(seed.get(), value);
    ASSERT_TRUE(backend_
                    ->Load(OptimizerOptions(), *seed, master_.get(), nullptr,
                           nullptr, narrowed_.get(), DType::kBF16)
                    .ok());
  }

  UpdateRequest Request(Buffer* snapshot) {
    UpdateRequest request;
    request.rows = rows_;
    request.ranges = updates_;
    request.master = master_.get();
    request.snapshot = snapshot;
    request.narrowed_snapshot = narrowed_.get();
    request.narrowed_dtype = DType::kBF16;
    request.combined = combined_.get();
    return request;
  }
  // Whether the float32 bytes come later.
  bool Update(Buffer* snapshot, bool on_demand = false) {
    bool deferred = false;
    UpdateRequest request = Request(snapshot);
    request.snapshot_deferred = &deferred;
    request.snapshot_on_demand = on_demand;
    EXPECT_EQ(backend_->Update(request), absl::OkStatus());
    return deferred;
  }
  // Whose last act is a wait for the kernels alone.
  void StepWithoutSnapshot() {
    UpdateRequest request = Request(nullptr);
    request.narrowed_snapshot = nullptr;
    ASSERT_EQ(backend_->Step(request), absl::OkStatus());
  }

  const int64_t num_elements_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Buffer> row_, master_, combined_, snapshot_, narrowed_;
  std::vector<const Buffer*> rows_;
  const std::vector<double> coefficients_ = {1.0};
  std::vector<UpdateRange> updates_;
};

// Streams work as late as they may: what is there was waited for.
TEST_F(DeferredSnapshotTest, ComesBehindTheNarrowedOne) {
  ASSERT_TRUE(Update(snapshot_.get()));
  EXPECT_THAT(Narrowed(), Each(-1.0f));
  EXPECT_THAT(Values(*snapshot_), Each(kStale));
  ASSERT_EQ(backend_->FinishSnapshot(*snapshot_), absl::OkStatus());
  EXPECT_THAT(Values(*snapshot_), Each(-1.0f));
  EXPECT_EQ(backend_->FinishSnapshot(*snapshot_), absl::OkStatus());
}

TEST_F(DeferredSnapshotTest, OfAStepToo) {
  bool deferred = false;
  UpdateRequest request = Request(snapshot_.get());
  request.snapshot_deferred = &deferred;
  ASSERT_EQ(backend_->Step(request), absl::OkStatus());
  EXPECT_TRUE(deferred);
  EXPECT_THAT(Narrowed(), Each(-1.0f));
  EXPECT_THAT(Values(*snapshot_), Each(kStale));
  ASSERT_EQ(backend_->FinishSnapshot(*snapshot_), absl::OkStatus());
  EXPECT_THAT(Values(*snapshot_), Each(-1.0f));
}

// The flag's wait is the narrowed copy's.
TEST_F(DeferredSnapshotTest, SaysWhetherParametersAreFinite) {
  Fill(combined_.get(), std::numeric_limits<float>::infinity());
  bool deferred = false;
  bool all_finite = true;
  UpdateRequest request = Request(snapshot_.get());
  request.snapshot_deferred = &deferred;
  request.all_finite = &all_finite;
  ASSERT_EQ(backend_->Step(request), absl::OkStatus());
  EXPECT_TRUE(deferred);
  EXPECT_FALSE(all_finite);
}

TEST_F(DeferredSnapshotTest, IsThereAtOnceWhereNobodyAsks) {
  ASSERT_EQ(backend_->Update(Request(snapshot_.get())), absl::OkStatus());
  EXPECT_THAT(Values(*snapshot_), Each(-1.0f));
}

TEST_F(DeferredSnapshotTest, ComesLaterWithoutANarrowedOneToo) {
  bool deferred = false;
  UpdateRequest request = Request(snapshot_.get());
  request.narrowed_snapshot = nullptr;
  request.snapshot_deferred = &deferred;
  ASSERT_EQ(backend_->Update(request), absl::OkStatus());
  EXPECT_TRUE(deferred);
  EXPECT_THAT(Values(*snapshot_), Each(kStale));
  StepWithoutSnapshot();
  ASSERT_EQ(backend_->FinishSnapshot(*snapshot_), absl::OkStatus());
  EXPECT_THAT(Values(*snapshot_), Each(-1.0f));
}

TEST_F(DeferredSnapshotTest, OnDemandIsCopiedWhenItIsAskedFor) {
  for (const bool narrowed : {true, false}) {
    bool deferred = false;
    UpdateRequest request = Request(snapshot_.get());
    if (!narrowed) request.narrowed_snapshot = nullptr;
    request.snapshot_deferred = &deferred;
    request.snapshot_on_demand = true;
    const float expected = narrowed ? -1.0f : -2.0f;
    ASSERT_EQ(backend_->Update(request), absl::OkStatus());
    ASSERT_TRUE(deferred);
    const std::vector<float> before = Values(*snapshot_);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // all that was begun
    EXPECT_EQ(Values(*snapshot_), before);
    ASSERT_EQ(backend_->FinishSnapshot(*snapshot_), absl::OkStatus());
    EXPECT_THAT(Values(*snapshot_), Each(expected));
  }
}

TEST_F(DeferredSnapshotTest, OnDemandIsLostWhenTheMasterIsWritten) {
  bool deferred = false;
  UpdateRequest request = Request(snapshot_.get());
  request.snapshot_deferred = &deferred;
  request.snapshot_on_demand = true;
  ASSERT_EQ(backend_->Update(request), absl::OkStatus());
  StepWithoutSnapshot();
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = backend_->FinishSnapshot(*snapshot_);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  }
  // Its memory serves again.
  ASSERT_TRUE(Update(snapshot_.get()));
  ASSERT_EQ(backend_->FinishSnapshot(*snapshot_), absl::OkStatus());
}

// The master is overwritten by each of these while it is still to be copied.
TEST_F(DeferredSnapshotTest, IsOfItsOwnStepWhateverWritesTheMasterNext) {
  const std::vector<float> other(static_cast<size_t>(num_elements_), 99.0f);
  const std::function<void()> writes[] = {
      [this] { StepWithoutSnapshot(); },
      [this] { Load(99.0f); },
      [&] {
        ASSERT_EQ(backend_->Write(other, master_.get()), absl::OkStatus());
      },
  };
  for (const auto& write : writes) {
    Load(0.0f);
    Fill(snapshot_.get(), kStale);
    ASSERT_TRUE(Update(snapshot_.get()));
    write();
    ASSERT_EQ(backend_->FinishSnapshot(*snapshot_), absl::OkStatus());
    EXPECT_THAT(Values(*snapshot_), Each(-1.0f));
  }
}

// Three waves, whose arguments wait for the kernels of former ones.
class DeferredWavesTest : public DeferredSnapshotTest {
 protected:
  DeferredWavesTest() : DeferredSnapshotTest(/*num_tensors=*/2500) {}
};

TEST_F(DeferredWavesTest, AreOfTheirOwnUpdateWhenTheNextOneRuns) {
  const auto second = NewSnapshot(4);
  ASSERT_TRUE(Update(snapshot_.get()));
  ASSERT_TRUE(Update(second.get()));
  EXPECT_THAT(Narrowed(), Each(-2.0f));
  ASSERT_EQ(backend_->FinishSnapshot(*second), absl::OkStatus());
  ASSERT_EQ(backend_->FinishSnapshot(*snapshot_), absl::OkStatus());
  EXPECT_THAT(Values(*snapshot_), Each(-1.0f));
  EXPECT_THAT(Values(*second), Each(-2.0f));
}

TEST_F(DeferredSnapshotTest, RoundsAllocateNothing) {
  const auto second = NewSnapshot(4);
  const int64_t num_allocations = emulator::NumAllocations();
  for (int round = 1; round <= 6; ++round) {
    Buffer* const snapshot = round % 2 == 0 ? snapshot_.get() : second.get();
    ASSERT_TRUE(Update(snapshot)) << round;
    ASSERT_EQ(backend_->FinishSnapshot(*snapshot), absl::OkStatus());
    EXPECT_THAT(Values(*snapshot), Each(-static_cast<float>(round)));
  }
  EXPECT_EQ(emulator::NumAllocations(), num_allocations);
}

TEST_F(DeferredSnapshotTest, IsNotDeferredBehindTooManyUnfinishedOnes) {
  std::vector<std::unique_ptr<Buffer>> unfinished;
  for (int i = 0; i < 4; ++i) {
    unfinished.push_back(NewSnapshot(4));
    ASSERT_TRUE(Update(unfinished.back().get()));
  }
  EXPECT_FALSE(Update(snapshot_.get()));
  EXPECT_THAT(Values(*snapshot_), Each(-5.0f));
  ASSERT_EQ(backend_->FinishSnapshot(*unfinished[2]), absl::OkStatus());
  EXPECT_THAT(Values(*unfinished[2]), Each(-3.0f));
  EXPECT_TRUE(Update(snapshot_.get()));
}

// What nobody has asked for goes with its memory.
TEST_F(DeferredSnapshotTest, SnapshotsThatGoMakeRoomForOthers) {
  std::vector<std::unique_ptr<Buffer>> unasked;
  for (int i = 0; i < 4; ++i) {
    unasked.push_back(NewSnapshot(4));
    EXPECT_TRUE(Update(unasked.back().get(), /*on_demand=*/true));
  }
  EXPECT_FALSE(Update(snapshot_.get(), /*on_demand=*/true));
  unasked.clear();
  EXPECT_TRUE(Update(snapshot_.get(), /*on_demand=*/true));
  ASSERT_EQ(backend_->FinishSnapshot(*snapshot_), absl::OkStatus());
  EXPECT_THAT(Values(*snapshot_), Each(-6.0f));
}

// As in a recovery: the former store ends when the next one is there.
TEST_F(DeferredSnapshotTest, SnapshotsOfEveryStoreAreDeferred) {
  std::unique_ptr<ParameterStore> store;
  for (int i = 0; i < 4; ++i) {
    store = *ParameterStore::Create(backend_.get(), OptimizerOptions(),
                                    num_elements_, DType::kBF16);
    for (uint64_t version = 1; version <= 5; ++version) {
      int revoked = 0;
      const std::shared_ptr<Snapshot> snapshot = *store->NextSnapshot(&revoked);
      bool deferred = false;
      UpdateRequest request = Request(snapshot->buffers()->f32.get());
      request.master = store->master();
      request.snapshot_deferred = &deferred;
      request.snapshot_on_demand = true;
      ASSERT_EQ(backend_->Update(request), absl::OkStatus());
      EXPECT_TRUE(deferred) << i << " " << version;
      store->Publish(version, snapshot);
    }
  }
}

// The copy of the narrowed snapshot comes first.
TEST_F(DeferredSnapshotTest, IsCopiedAgainWhenItsCopyFails) {
  emulator::FailCopyAfter(1, cudaErrorInvalidValue);
  ASSERT_TRUE(Update(snapshot_.get()));
  EXPECT_THAT(Narrowed(), Each(-1.0f));
  emulator::FailCopyAfter(0, cudaErrorInvalidValue);
  const absl::Status again = backend_->FinishSnapshot(*snapshot_);
  EXPECT_EQ(again.code(), absl::StatusCode::kInternal) << again;
  EXPECT_THAT(std::string(again.message()), HasSubstr("cudaMemcpyAsync"));
  ASSERT_EQ(backend_->FinishSnapshot(*snapshot_), absl::OkStatus());
  EXPECT_THAT(Values(*snapshot_), Each(-1.0f));
}

TEST_F(DeferredSnapshotTest, WhoseCopyFailedIsLostWithTheNextUpdate) {
  emulator::FailCopyAfter(1, cudaErrorInvalidValue);
  ASSERT_TRUE(Update(snapshot_.get()));
  const auto second = NewSnapshot(4);
  ASSERT_TRUE(Update(second.get()));
  EXPECT_THAT(Narrowed(), Each(-2.0f));
  const absl::Status lost = backend_->FinishSnapshot(*snapshot_);
  EXPECT_EQ(lost.code(), absl::StatusCode::kFailedPrecondition) << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr("cudaMemcpyAsync"));
  ASSERT_EQ(backend_->FinishSnapshot(*second), absl::OkStatus());
  EXPECT_THAT(Values(*second), Each(-2.0f));
  // The memory serves others.
  ASSERT_TRUE(Update(snapshot_.get()));
  ASSERT_EQ(backend_->FinishSnapshot(*snapshot_), absl::OkStatus());
  EXPECT_THAT(Values(*snapshot_), Each(-3.0f));
}

TEST_F(DeferredSnapshotTest, OfALostDeviceIsAnError) {
  ASSERT_TRUE(Update(snapshot_.get()));
  emulator::BreakDevice(cudaErrorIllegalAddress);
  EXPECT_EQ(backend_->FinishSnapshot(*snapshot_).code(),
            absl::StatusCode::kUnavailable);
  emulator::BreakDevice(cudaSuccess);
}

// Float32 bytes that cannot be copied behind a version: who reads them later
// has it tried again.

constexpr int64_t kElements = 64;

// The next copies of float32 bytes fail, on whichever thread they are begun.
class FailingCopies : public GuardedBackend {
 public:
  explicit FailingCopies(Backend* backend) : GuardedBackend(backend) {}
  void Fail(int num_copies) { num_failing_ = num_copies; }
  absl::Status FinishSnapshot(const Buffer& snapshot) override {
    if (num_failing_ > 0) {
      --num_failing_;
      emulator::FailNextCopy(cudaErrorInvalidValue);
    }
    return GuardedBackend::FinishSnapshot(snapshot);
  }

 private:
  std::atomic<int> num_failing_{0};
};

// Parameters begin at 0 and lose 1 with each step.
class FailedSnapshotTest : public testing::Test {
 protected:
  FailedSnapshotTest() {
    CudaOptions options;
    options.use_cublas = false;
    cuda_ = *CudaBackend::Make(options);
    backend_ = std::make_unique<FailingCopies>(cuda_.get());
    store_ = *ParameterStore::Create(backend_.get(), OptimizerOptions(),
                                     kElements, DType::kBF16);
    row_ = *backend_->Allocate(BufferUse::kRow, kElements * 4);
    finisher_ = std::make_unique<SnapshotFinisher>(backend_.get());
    std::fill_n(reinterpret_cast<float*>(row_->host()), kElements, 1.0f);
    backend_->RowLanded(*row_, DType::kF32, {0, kElements});
    const std::shared_ptr<Snapshot> seed = Next();
    std::fill_n(reinterpret_cast<float*>(seed->buffers()->f32->host()),
                kElements, 0.0f);
    EXPECT_EQ(backend_->Load(OptimizerOptions(), *seed->buffers()->f32,
                             store_->master(), nullptr, nullptr,
                             seed->buffers()->narrowed.get(), DType::kBF16),
              absl::OkStatus());
  }

  std::shared_ptr<Snapshot> Next() {
    int revoked = 0;
    return *store_->NextSnapshot(&revoked);
  }

  // A version whose float32 bytes a reader has to ask for.
  std::shared_ptr<Snapshot> Update() {
    const std::shared_ptr<Snapshot> snapshot = Next();
    const Buffer* const rows[] = {row_.get()};
    const double coefficients[] = {1.0};
    const UpdateRange range = {{0, kElements}, coefficients, 1.0f, 0.0f, 1.0f};
    bool deferred = false;
    UpdateRequest request;
    request.rows = rows;
    request.ranges = absl::MakeConstSpan(&range, 1);
    request.master = store_->master();
    request.snapshot = snapshot->buffers()->f32.get();
    request.narrowed_snapshot = snapshot->buffers()->narrowed.get();
    request.narrowed_dtype = DType::kBF16;
    request.snapshot_deferred = &deferred;
    request.snapshot_on_demand = true;
    EXPECT_EQ(backend_->Update(request), absl::OkStatus());
    EXPECT_TRUE(deferred);
    finisher_->AddWhenAsked(snapshot);
    return snapshot;
  }

  static absl::Status Readable(const Snapshot& snapshot) {
    const auto said = std::make_shared<std::promise<absl::Status>>();
    snapshot.WhenReadable(DType::kF32, [said](const absl::Status& status) {
      said->set_value(status);
    });
    return said->get_future().get();
  }
  static std::vector<float> Values(const Snapshot& snapshot) {
    const auto* const values =
        reinterpret_cast<const float*>(snapshot.data(DType::kF32));
    return std::vector<float>(values, values + kElements);
  }

  std::unique_ptr<Backend> cuda_;
  std::unique_ptr<FailingCopies> backend_;
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<Buffer> row_;
  std::unique_ptr<SnapshotFinisher> finisher_;
};

TEST_F(FailedSnapshotTest, ALaterReaderHasItCopiedAgain) {
  const std::shared_ptr<Snapshot> snapshot = Update();
  backend_->Fail(4);  // twice for each reader
  for (int reader = 0; reader < 2; ++reader) {
    const absl::Status status = Readable(*snapshot);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cudaMemcpyAsync"));
    EXPECT_FALSE(snapshot->readable(DType::kF32));
  }
  EXPECT_EQ(Readable(*snapshot), absl::OkStatus());
  EXPECT_THAT(Values(*snapshot), Each(-1.0f));
}

TEST_F(FailedSnapshotTest, AfterTheNextStepItIsGone) {
  const std::shared_ptr<Snapshot> first = Update();
  backend_->Fail(2);
  EXPECT_TRUE(absl::IsUnavailable(Readable(*first)));
  const std::shared_ptr<Snapshot> second = Update();
  for (int reader = 0; reader < 2; ++reader) {
    const absl::Status status = Readable(*first);
    EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
  }
  EXPECT_EQ(Readable(*second), absl::OkStatus());
  EXPECT_THAT(Values(*second), Each(-2.0f));
}

// Nobody copies it any more: who asks does not wait for ever.
TEST_F(FailedSnapshotTest, WithoutItsFinisherItIsGone) {
  const std::shared_ptr<Snapshot> copied = Update();
  EXPECT_EQ(Readable(*copied), absl::OkStatus());
  const std::shared_ptr<Snapshot> last = Update();
  finisher_ = nullptr;
  for (int reader = 0; reader < 2; ++reader) {
    const absl::Status status = Readable(*last);
    EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
    EXPECT_FALSE(last->readable(DType::kF32));
  }
  EXPECT_EQ(Readable(*copied), absl::OkStatus());
}

}  // namespace
}  // namespace agg
