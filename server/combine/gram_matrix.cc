// Entries are stored as a dense matrix of hi and, if compensated, one of lo
// parts, whose sums are made in double-double.
#include "server/combine/gram_matrix.h"

#include <cstddef>
#include <utility>

#include "server/base/dcheck.h"

namespace agg {
namespace {

// hi + lo of a double-double.
struct DoublePair {
  double hi;
  double lo;
};

// (a_hi + a_lo) + (b_hi + b_lo): Knuth's two-sum of the high parts, then one
// renormalisation.
DoublePair AddPairs(double a_hi, double a_lo, double b_hi, double b_lo) {
  const double sum = a_hi + b_hi;
  const double b_part = sum - a_hi;
  double error = (a_hi - (sum - b_part)) + (b_hi - b_part);
  error += a_lo + b_lo;
  const double hi = sum + error;
  return {hi, error - (hi - sum)};
}

}  // namespace

GramMatrix::GramMatrix(int num_rows, bool compensated)
    : num_rows_(num_rows),
      hi_(static_cast<size_t>(num_rows) * (num_rows + 1) / 2, 0.0),
      lo_(compensated ? hi_.size() : 0, 0.0) {}

GramMatrix GramMatrix::FromPacked(int num_rows, std::vector<double> hi,
                                  std::vector<double> lo) {
  AGG_DCHECK(hi.size() == static_cast<size_t>(num_rows) * (num_rows + 1) / 2);
  AGG_DCHECK(lo.empty() || lo.size() == hi.size());
  GramMatrix gram;
  gram.num_rows_ = num_rows;
  gram.hi_ = std::move(hi);
  gram.lo_ = std::move(lo);
  return gram;
}

void GramMatrix::Set(int i, int j, double hi, double lo) {
  hi_[Index(i, j)] = hi;
  if (!lo_.empty()) lo_[Index(i, j)] = lo;
}

void GramMatrix::Add(const GramMatrix& other) {
  AGG_DCHECK(other.num_rows_ == num_rows_);
  AGG_DCHECK(other.compensated() == compensated());
  if (lo_.empty()) {
    for (size_t k = 0; k < hi_.size(); ++k) hi_[k] += other.hi_[k];
    return;
  }
  for (size_t k = 0; k < hi_.size(); ++k) {
    const DoublePair sum = AddPairs(hi_[k], lo_[k], other.hi_[k], other.lo_[k]);
    hi_[k] = sum.hi;
    lo_[k] = sum.lo;
  }
}

GramMatrix GramMatrix::Compact(absl::Span<const int> keep) const {
  const int num_kept = static_cast<int>(keep.size());
  GramMatrix result(num_kept, compensated());
  for (int i = 0; i < num_kept; ++i) {
    for (int j = i; j < num_kept; ++j) {
      result.Set(i, j, (*this)(keep[i], keep[j]), lo(keep[i], keep[j]));
    }
  }
  return result;
}

void GramMatrix::Scale(absl::Span<const double> scale) {
  AGG_DCHECK(scale.size() == static_cast<size_t>(num_rows_));
  for (int i = 0; i < num_rows_; ++i) {
    for (int j = i; j < num_rows_; ++j) {
      if (lo_.empty()) {
        Set(i, j, (*this)(i, j) * (scale[i] * scale[j]));
        continue;
      }
      // Scales need not be powers of two: the product must not lose `lo`.
      const __float128 value =
          (static_cast<__float128>((*this)(i, j)) + lo(i, j)) * scale[i] *
          scale[j];
      const double hi = static_cast<double>(value);
      Set(i, j, hi, static_cast<double>(value - hi));
    }
  }
}

double GramMatrix::Trace() const {
  double trace = 0.0;
  for (int i = 0; i < num_rows_; ++i) trace += (*this)(i, i);
  return trace;
}

}  // namespace agg
