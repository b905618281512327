// Most tensors have one slice, whose Gram becomes the sum without a copy.
#include "server/coordinator/gram_sums.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "kernels/optimizer_table.h"

namespace agg {

// Two formulas; the header says which optimizer takes which one, and why.

namespace {

// An update so small that the ratio does not fit float32 counts as 0, where the
// ratio is 1: infinity times it would not be finite.
float InFloat(double ratio) {
  return ratio <= FLT_MAX ? static_cast<float>(ratio) : 1.0f;
}

}  // namespace

float TrustRatio(const OptimizerOptions& optimizer, double weight_decay,
                 const TensorNorms& norms) {
  const double parameter = std::sqrt(norms.parameter_norm_squared);
  const double update = std::sqrt(norms.update_norm_squared);
  if (!(parameter > 0.0) || !(update > 0.0)) return 1.0f;
  switch (LineOf(optimizer.kind).trust_norm) {
    case TrustNorm::kNone:
      return 1.0f;
    case TrustNorm::kGradient:
      return InFloat(static_cast<double>(optimizer.trust_coefficient) *
                     parameter /
                     (update + weight_decay * parameter +
                      static_cast<double>(optimizer.epsilon)));
    case TrustNorm::kDirection:
      return InFloat(parameter / update);
  }
  return 1.0f;
}

GramSums::GramSums(const ShardPlan& plan, const std::vector<int32_t>& tensors,
                   int num_rows, bool compensated)
    : plan_(plan),
      tensors_(tensors),
      num_rows_(num_rows),
      compensated_(compensated),
      sums_(tensors.size()) {}

bool GramSums::Fits(const SliceGram& gram) const {
  const size_t packed = static_cast<size_t>(PackedGramSize(num_rows_));
  return gram.slice >= 0 &&
         static_cast<size_t>(gram.slice) < plan_.slices.size() &&
         gram.hi.size() == packed &&
         gram.lo.size() == (compensated_ ? packed : 0);
}

void GramSums::AddNext(SliceGram gram, Sum* sum) const {
  GramMatrix next =
      GramMatrix::FromPacked(num_rows_, std::move(gram.hi), std::move(gram.lo));
  if (sum->num_added++ == 0) {
    if (!compensated_) {
      sum->gram = std::move(next);
      return;
    }
    // Added to zeros, which renormalises its pairs.
    sum->gram = GramMatrix(num_rows_, compensated_);
  }
  sum->gram.Add(next);
}

void GramSums::Add(SliceGram gram) {
  if (!Fits(gram)) return;
  const int32_t tensor = plan_.slices[gram.slice].tensor;
  const auto place = std::lower_bound(tensors_.begin(), tensors_.end(), tensor);
  if (place == tensors_.end() || *place != tensor) return;
  // A sum begins with 0, which makes -0 to 0. Done here, outside of the lock.
  for (double& value : gram.hi) value += 0.0;
  const std::vector<int32_t>& slices = plan_.slices_of_tensor[tensor];
  MutexLock lock(&mutex_);
  Sum& sum = sums_[static_cast<size_t>(place - tensors_.begin())];
  if (sum.num_added == slices.size() || gram.slice < slices[sum.num_added]) {
    return;
  }
  sum.early.emplace(gram.slice, std::move(gram));
  while (!sum.early.empty() &&
         sum.early.begin()->first == slices[sum.num_added]) {
    AddNext(std::move(sum.early.begin()->second), &sum);
    sum.early.erase(sum.early.begin());
  }
}

absl::StatusOr<std::vector<GramMatrix>> GramSums::Take() {
  MutexLock lock(&mutex_);
  std::vector<GramMatrix> grams;
  grams.reserve(sums_.size());
  for (size_t i = 0; i < sums_.size(); ++i) {
    const std::vector<int32_t>& slices = plan_.slices_of_tensor[tensors_[i]];
    if (sums_[i].num_added < slices.size()) {
      const int32_t slice = slices[sums_[i].num_added];
      return absl::InternalError(absl::StrCat(
          "the partial Gram of slice ", slice, ", shard ",
          plan_.slices[slice].shard, ", is missing or has another size"));
    }
    grams.push_back(slices.empty() ? GramMatrix(num_rows_, compensated_)
                                   : std::move(sums_[i].gram));
  }
  return grams;
}

}  // namespace agg
