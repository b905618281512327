// A P x P Gram matrix of gradient rows, plain or compensated.
#ifndef AGG_SERVER_COMBINE_GRAM_MATRIX_H_
#define AGG_SERVER_COMBINE_GRAM_MATRIX_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace agg {

// Symmetric P x P matrix of doubles, G_ij = <row_i, row_j>, held dense. When
// compensated, every entry has a low part: its value is hi + lo to about 106
// bits. A value type; not thread-safe for writes.
class GramMatrix {
 public:
  GramMatrix() = default;
  explicit GramMatrix(int num_rows, bool compensated = false);

  // From packed upper triangles, row by row (kernels/backend.h). `lo` is empty
  // for a plain one. REQUIRES: hi.size() == num_rows * (num_rows + 1) / 2 and
  // lo.size() the same or 0.
  static GramMatrix FromPacked(int num_rows, absl::Span<const double> hi,
                               absl::Span<const double> lo);

  int num_rows() const { return num_rows_; }
  bool compensated() const { return !lo_.empty(); }
  double operator()(int i, int j) const { return hi_[i * num_rows_ + j]; }
  // Low part; 0 when plain.
  double lo(int i, int j) const {
    return lo_.empty() ? 0.0 : lo_[i * num_rows_ + j];
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
  int num_rows_ = 0;
  std::vector<double> hi_;
  std::vector<double> lo_;
};

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_GRAM_MATRIX_H_
