// Float32 bytes that cannot be copied behind a version: who reads them later
// has it tried again.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "server/params/parameter_store.h"
#include "server/params/snapshot.h"
#include "server/params/snapshot_finisher.h"
#include "server/shard/guarded_backend.h"
#include "tests/kernels/cuda/emulator/device.h"

namespace agg {
namespace {

using testing::Each;
using testing::HasSubstr;

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
