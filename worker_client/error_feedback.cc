// Two arrays per tensor, which change places when a row was included.
#include "worker_client/error_feedback.h"

#include <algorithm>
#include <cstddef>

#include "absl/types/span.h"

namespace agg {

ErrorFeedback::ErrorFeedback(const std::vector<int64_t>& num_elements)
    : tensors_(num_elements.size()) {
  for (size_t t = 0; t < tensors_.size(); ++t) {
    tensors_[t].before.resize(static_cast<size_t>(num_elements[t]));
    tensors_[t].after.resize(static_cast<size_t>(num_elements[t]));
  }
}

void ErrorFeedback::Begin(const RowName& row) {
  if (fate_ == Fate::kIncluded) {
    next_round_ = row_.round + 1;
    included_session_ = row_.session;
  }
  // A round that is over for this session: the row cannot count, and the next
  // round's begins as it would have without it.
  const bool repeats =
      row.round + 1 == next_round_ && row.session == included_session_;
  const bool gone_back = forgotten_ || (row.round < next_round_ && !repeats);
  for (Tensor& tensor : tensors_) {
    if (gone_back) {
      std::fill(tensor.before.begin(), tensor.before.end(), 0.0f);
    } else if (tensor.sent && fate_ == Fate::kIncluded) {
      tensor.before.swap(tensor.after);
    }
    tensor.sent = false;
  }
  if (gone_back) {
    next_round_ = row.round;
    included_session_ = 0;
  }
  row_ = row;
  fate_ = Fate::kUnknown;
  forgotten_ = false;
}

Residual ErrorFeedback::ResidualOf(int32_t tensor, int64_t begin,
                                   int64_t num_elements) {
  Tensor& of_tensor = tensors_[static_cast<size_t>(tensor)];
  of_tensor.sent = true;
  const auto first = static_cast<size_t>(begin);
  const auto count = static_cast<size_t>(num_elements);
  return {absl::MakeConstSpan(of_tensor.before).subspan(first, count),
          absl::MakeSpan(of_tensor.after).subspan(first, count)};
}

void ErrorFeedback::Settle(const RowName& row, bool included) {
  if (!(row == row_) || fate_ != Fate::kUnknown) return;
  fate_ = included ? Fate::kIncluded : Fate::kDropped;
}

void ErrorFeedback::Forget() { forgotten_ = true; }

std::unique_ptr<ErrorFeedback> MakeErrorFeedback(const Manifest& manifest,
                                                 DType push_dtype,
                                                 absl::optional<bool> wanted) {
  if (push_dtype == DType::kF32 || !wanted.value_or(push_dtype == DType::kI8)) {
    return nullptr;
  }
  std::vector<int64_t> num_elements;
  for (const TensorSpec& tensor : manifest.tensors) {
    num_elements.push_back(NumElements(tensor));
  }
  return std::make_unique<ErrorFeedback>(num_elements);
}

}  // namespace agg
