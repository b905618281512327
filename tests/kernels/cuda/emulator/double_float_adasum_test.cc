// What a Gram in pairs of floats is for: Adasum's result must be as good with
// it as with one in double, kappa's limit and the compensated Gram above it
// being the server's. Against the tree on the vectors, which forms no Gram.
//
// Prints the largest error of each family, in both arithmetics.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "server/combine/decision.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/options.h"
#include "tests/kernels/cuda/emulator/device.h"
#include "tests/property/row_families.h"
#include "tests/reference/row_statistics.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

constexpr double kFloatEpsilon = 0x1p-23;
constexpr int kMaxRows = 32;

// A backend of one arithmetic, with rows.
class Device {
 public:
  Device(GramArithmetic gram, int num_elements) : num_elements_(num_elements) {
    CudaOptions options;
    options.use_cublas = false;
    options.gram = gram;
    backend_ = *CudaBackend::Make(options);
    for (int r = 0; r < kMaxRows; ++r) {
      buffers_.push_back(
          *backend_->Allocate(BufferUse::kRow, int64_t{4} * num_elements));
      pointers_.push_back(buffers_.back().get());
    }
  }

  GramMatrix Gram(const Rows& rows, bool compensated) {
    for (size_t r = 0; r < rows.size(); ++r) {
      auto* const to = reinterpret_cast<float*>(buffers_[r]->host());
      for (int k = 0; k < num_elements_; ++k) {
        to[k] = static_cast<float>(rows[r][k]);
      }
      backend_->RowLanded(*buffers_[r], DType::kF32, {0, num_elements_});
    }
    const auto num_rows = static_cast<int>(rows.size());
    std::vector<double> hi(PackedGramSize(num_rows));
    std::vector<double> lo(compensated ? hi.size() : 0);
    const std::vector<ElementRange> ranges = {{0, num_elements_}};
    GramRequest request;
    request.rows = absl::MakeConstSpan(pointers_).first(rows.size());
    request.ranges = ranges;
    request.compensated = compensated;
    request.hi = absl::MakeSpan(hi);
    request.lo = absl::MakeSpan(lo);
    const absl::Status status = backend_->Gram(request);
    EXPECT_TRUE(status.ok()) << status;
    return GramMatrix::FromPacked(num_rows, hi, lo);
  }

  // As the server decides.
  Decision Adasum(const Rows& rows) {
    RoundInput input;
    input.rows.resize(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      input.rows[i].rank = static_cast<int32_t>(i);
    }
    input.tensors.push_back(Gram(rows, false));
    const CombineOptions options = MakeOptions("adasum");
    Decision decision = Decide(options, {}, input);
    if (decision.kind != DecisionKind::kNeedsCompensated) return decision;
    input.tensors[0] = Gram(rows, true);
    return Decide(options, {}, input);
  }

 private:
  const int num_elements_;
  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<const Buffer*> pointers_;
};

// Distance to the tree's result beside sum |w| ||g||.
double Error(const Rows& rows, const reference::Vector& expected,
             const Decision& decision) {
  EXPECT_EQ(decision.kind, DecisionKind::kApply);
  if (decision.kind != DecisionKind::kApply) return 1.0;
  const std::vector<double>& weights = decision.coefficients[0];
  const auto error = static_cast<double>(
      reference::Distance(reference::WeightedSum(rows, weights), expected));
  return error == 0.0 ? 0.0 : error / BackwardScale(rows, weights);
}

void ExpectGoodResults(int num_elements, const std::vector<int>& row_counts) {
  emulator::SetLazy(false);
  Device doubles(GramArithmetic::kDouble, num_elements);
  Device floats(GramArithmetic::kDoubleFloat, num_elements);
  std::printf("%d elements         double  pairs of floats\n", num_elements);
  for (const RowFamily& family : RowFamilies()) {
    double worst_double = 0.0;
    double worst_float = 0.0;
    for (const int num_rows : row_counts) {
      const Rows rows = FamilyRows(family, num_rows, num_elements);
      const reference::Vector expected = reference::AdasumTree(rows);
      worst_double =
          std::max(worst_double, Error(rows, expected, doubles.Adasum(rows)));
      const double error = Error(rows, expected, floats.Adasum(rows));
      worst_float = std::max(worst_float, error);
      EXPECT_LE(error, 4 * kFloatEpsilon)
          << family.name << ", " << num_rows << " rows";
    }
    std::printf("%-22s  %7.1e  %7.1e\n", family.name.c_str(), worst_double,
                worst_float);
  }
}

TEST(DoubleFloatAdasumTest, EveryFamily) {
  ExpectGoodResults(1003, {2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 24, 31, 32});
}

TEST(DoubleFloatAdasumTest, LongRows) { ExpectGoodResults(40000, {2, 5}); }

}  // namespace
}  // namespace agg
