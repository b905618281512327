// A P x P Gram matrix of gradient rows, plain or compensated, and what it says
// of them.
#ifndef AGG_SERVER_COMBINE_GRAM_MATRIX_H_
#define AGG_SERVER_COMBINE_GRAM_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"

namespace agg {

// What a worker says of its gradient row when it commits: a plain value. A
// loss_scale that is not finite and > 0 makes the row's
// scaled Gram non-finite, hence the row excluded.
struct RowInfo {
  int32_t rank = 0;
  int64_t examples = 1;      // >= 1; weighted_mean, unequal batches
  int32_t accumulation = 1;  // micro-gradients averaged in the row, >= 1
  // Sum over the accumulation micro-gradients of ||g||^2, of the gradients as
  // pushed (loss scale included); replaces the estimate from rows. Ignored
  // when negative or not finite.
  std::optional<double> micro_norm_squared_sum;
  double loss_scale = 1.0;  // finite, > 0: the row is this times the gradient
};

// Rules take a row whose squared norm is below this for a row of zeros:
// sqrt(DBL_MIN), Horovod's bound in its Adasum.
constexpr double kZeroNormSquared = 0x1p-511;

// Symmetric P x P matrix of doubles, G_ij = <row_i, row_j>. Only the upper
// triangle is kept, row by row as kernels/backend.h has it: a job of 10,000
// tensors holds as many of these. When compensated, every entry has a low part:
// its value is hi + lo to about 106 bits. A value type; not thread-safe for
// writes.
class GramMatrix {
 public:
  GramMatrix() = default;
  explicit GramMatrix(int num_rows, bool compensated = false);

  // Makes a matrix of packed upper triangles, which are not copied. `lo` is
  // empty for a plain one. REQUIRES: hi.size() == num_rows * (num_rows + 1) / 2
  // and lo.size() the same or 0.
  static GramMatrix FromPacked(int num_rows, std::vector<double> hi,
                               std::vector<double> lo);

  int num_rows() const { return num_rows_; }
  bool compensated() const { return !lo_.empty(); }
  double operator()(int i, int j) const { return hi_[Index(i, j)]; }
  // Low part of the entry; 0 when plain.
  double lo(int i, int j) const { return lo_.empty() ? 0.0 : lo_[Index(i, j)]; }
  // The entries (i, i), (i, i + 1) .. (i, P - 1). Valid until a change.
  absl::Span<const double> UpperRow(int i) const {
    return {&hi_[Index(i, i)], static_cast<size_t>(num_rows_ - i)};
  }
  // Sets (i, j) and (j, i).
  void Set(int i, int j, double hi, double lo = 0.0);

  // Adds entry by entry; with two-sum when both are compensated. The order of
  // calls fixes the bits: callers add in manifest order.
  // REQUIRES: the same num_rows and compensated().
  void Add(const GramMatrix& other);

  // The rows and columns `keep` (ascending), as a smaller matrix.
  GramMatrix Compact(absl::Span<const int> keep) const;

  // G_ij <- G_ij * scale_i * scale_j (loss scaling: scale_i = 1/loss_scale_i).
  void Scale(absl::Span<const double> scale);

  double Trace() const;

 private:
  // Index at which (i, j), which is also (j, i), lies.
  size_t Index(int i, int j) const {
    const size_t row = static_cast<size_t>(i < j ? i : j);
    const size_t column = static_cast<size_t>(i < j ? j : i);
    // Row r begins behind P + (P - 1) + .. of the r rows above it, at column r.
    return row * (2 * static_cast<size_t>(num_rows_) - row - 1) / 2 + column;
  }

  int num_rows_ = 0;
  std::vector<double> hi_;
  std::vector<double> lo_;
};

// The entry (i, j) in a rule's arithmetic: double takes the high part,
// __float128 both.
template <typename Real>
Real Entry(const GramMatrix& gram, int i, int j) {
  if constexpr (std::is_same_v<Real, double>) return gram(i, j);
  return static_cast<Real>(gram(i, j)) + gram.lo(i, j);
}

// --- Statistics of a set of gradient rows, all from their Gram matrix
// (server/combine/README.md 7). Pure. REQUIRES everywhere: finite entries.
//
// G w: the inner product of each row with the combination. O(P^2). Each sum is
// formed in the order of the columns.
// REQUIRES: w.size() == gram.num_rows().
std::vector<double> Product(const GramMatrix& gram, absl::Span<const double> w);

// 1^T G 1 = ||sum of rows||^2.
double SumOfEntries(const GramMatrix& gram);

// u^T G w: the inner product of the two combinations. O(P^2).
// REQUIRES: u.size() == w.size() == gram.num_rows().
double BilinearForm(const GramMatrix& gram, absl::Span<const double> u,
                    absl::Span<const double> w);
// w^T G w, the squared norm of the combination; rounding may leave it < 0.
double QuadraticForm(const GramMatrix& gram, absl::Span<const double> w);

// Orthogonality (server/combine/README.md 3.6) from ||Adasum||^2 and trace G,
// in [0, 1] (clamped there: the bound is proved, rounding may pass it). NaN if
// the trace is 0.
double Orthogonality(double adasum_norm_squared, double trace);

// tr G / 1^T G 1, in [1/P, inf]; +infinity when the rows cancel, NaN when they
// are all zero.
double GradientDiversity(const GramMatrix& gram);

// Cosines between rows that are not zero. NaN where there is no pair.
struct PairwiseCosines {
  std::vector<double> row_means;  // per row: to the other nonzero rows
  double mean = 0.0;              // over pairs i != j
  double min = 0.0;
};
PairwiseCosines ComputeCosines(const GramMatrix& gram);

// Eigenvalues of the (symmetric) matrix, ascending, by cyclic Jacobi rotations.
std::vector<double> Eigenvalues(const GramMatrix& gram);

// exp(-sum p ln p), p = eigenvalue / trace: 1 for parallel rows, P for
// orthogonal ones of equal norm. NaN if the trace is 0.
double EffectiveRank(const GramMatrix& gram);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_GRAM_MATRIX_H_
