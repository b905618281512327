// Entries are stored as a dense matrix of hi and, if compensated, one of lo
// parts, whose sums are made in double-double. Eigenvalues come from Jacobi's
// rotations: P is small, and no library is needed for it.
#include "server/combine/gram_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
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

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Sum of squares above the diagonal of a dense matrix with side n.
double OffDiagonal(const std::vector<double>& a, int n) {
  double sum = 0.0;
  for (int i = 0; i < n; ++i) {
    for (int j = i + 1; j < n; ++j) sum += a[i * n + j] * a[i * n + j];
  }
  return sum;
}

// The Jacobi rotation that zeroes entry (p, q) of the dense symmetric `a`.
void Rotate(int n, int p, int q, std::vector<double>* a) {
  std::vector<double>& m = *a;
  if (m[p * n + q] == 0.0) return;
  const double theta = (m[q * n + q] - m[p * n + p]) / (2.0 * m[p * n + q]);
  const double tangent = (theta >= 0.0 ? 1.0 : -1.0) /
                         (std::abs(theta) + std::sqrt(theta * theta + 1.0));
  const double cosine = 1.0 / std::sqrt(tangent * tangent + 1.0);
  const double sine = tangent * cosine;
  for (int k = 0; k < n; ++k) {
    const double kp = m[k * n + p];
    const double kq = m[k * n + q];
    m[k * n + p] = cosine * kp - sine * kq;
    m[k * n + q] = sine * kp + cosine * kq;
  }
  for (int k = 0; k < n; ++k) {
    const double pk = m[p * n + k];
    const double qk = m[q * n + k];
    m[p * n + k] = cosine * pk - sine * qk;
    m[q * n + k] = sine * pk + cosine * qk;
  }
}

}  // namespace

// One pass over the upper triangle. Entry (i, j) is added to row j's sum in the
// i-th step and to row i's sum in the i-th step behind it: so every sum takes
// its terms in the order of the columns, as if the matrix were dense.
std::vector<double> Product(const GramMatrix& gram,
                            absl::Span<const double> w) {
  AGG_DCHECK(w.size() == static_cast<size_t>(gram.num_rows()));
  const size_t num_rows = w.size();
  std::vector<double> product(num_rows, 0.0);
  for (size_t i = 0; i < num_rows; ++i) {
    const absl::Span<const double> row = gram.UpperRow(static_cast<int>(i));
    double sum = product[i];
    for (size_t j = i; j < num_rows; ++j) sum += row[j - i] * w[j];
    product[i] = sum;
    for (size_t j = i + 1; j < num_rows; ++j) product[j] += row[j - i] * w[i];
  }
  return product;
}

double SumOfEntries(const GramMatrix& gram) {
  const std::vector<double> ones(gram.num_rows(), 1.0);
  double sum = 0.0;
  for (const double row : Product(gram, ones)) sum += row;
  return sum;
}

double BilinearForm(const GramMatrix& gram, absl::Span<const double> u,
                    absl::Span<const double> w) {
  AGG_DCHECK(u.size() == static_cast<size_t>(gram.num_rows()));
  AGG_DCHECK(w.size() == u.size());
  const std::vector<double> product = Product(gram, w);
  double sum = 0.0;
  for (size_t i = 0; i < u.size(); ++i) sum += u[i] * product[i];
  return sum;
}

double QuadraticForm(const GramMatrix& gram, absl::Span<const double> w) {
  return BilinearForm(gram, w, w);
}

double Orthogonality(double adasum_norm_squared, double trace) {
  if (!(trace > 0.0)) return kNan;
  return std::clamp(adasum_norm_squared / trace, 0.0, 1.0);
}

double GradientDiversity(const GramMatrix& gram) {
  const double trace = gram.Trace();
  if (!(trace > 0.0)) return kNan;
  const double sum = SumOfEntries(gram);
  return sum > 0.0 ? trace / sum : std::numeric_limits<double>::infinity();
}

PairwiseCosines ComputeCosines(const GramMatrix& gram) {
  const int num_rows = gram.num_rows();
  PairwiseCosines result;
  result.row_means.assign(num_rows, kNan);
  int num_nonzero = 0;
  for (int i = 0; i < num_rows; ++i) num_nonzero += gram(i, i) > 0.0 ? 1 : 0;
  if (num_nonzero < 2) {
    result.mean = result.min = kNan;
    return result;
  }
  double total = 0.0;
  double min = 1.0;
  for (int i = 0; i < num_rows; ++i) {
    if (!(gram(i, i) > 0.0)) continue;
    double sum = 0.0;
    for (int j = 0; j < num_rows; ++j) {
      if (j == i || !(gram(j, j) > 0.0)) continue;
      const double norms = std::sqrt(gram(i, i)) * std::sqrt(gram(j, j));
      const double cosine = std::clamp(gram(i, j) / norms, -1.0, 1.0);
      sum += cosine;
      min = std::min(min, cosine);
    }
    result.row_means[i] = sum / (num_nonzero - 1);
    total += sum;
  }
  result.mean = total / num_nonzero / (num_nonzero - 1);
  result.min = min;
  return result;
}

std::vector<double> Eigenvalues(const GramMatrix& gram) {
  const int n = gram.num_rows();
  std::vector<double> a(static_cast<size_t>(n) * n);
  // Squares of entries must neither overflow nor vanish.
  const double trace = gram.Trace();
  const double scale = trace > 0.0 ? trace : 1.0;
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) a[i * n + j] = gram(i, j) / scale;
  }
  // Converges quadratically; 6 to 10 sweeps in practice.
  constexpr int kMaxSweeps = 50;
  constexpr double kConverged = 1e-34;  // of squared entries, trace 1
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    if (OffDiagonal(a, n) < kConverged) break;
    for (int p = 0; p < n; ++p) {
      for (int q = p + 1; q < n; ++q) Rotate(n, p, q, &a);
    }
  }
  std::vector<double> eigenvalues(n);
  for (int i = 0; i < n; ++i) eigenvalues[i] = a[i * n + i] * scale;
  std::sort(eigenvalues.begin(), eigenvalues.end());
  return eigenvalues;
}

double EffectiveRank(const GramMatrix& gram) {
  const double trace = gram.Trace();
  if (!(trace > 0.0)) return kNan;
  double entropy = 0.0;
  for (const double eigenvalue : Eigenvalues(gram)) {
    const double p = eigenvalue / trace;
    if (p > 0.0) entropy -= p * std::log(p);
  }
  return std::exp(entropy);
}

}  // namespace agg
