// The first tensor is that of the lowest index, whichever slice came first.
#include "worker_client/encoding_tally.h"

#include <algorithm>
#include <climits>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "server/base/field_error.h"

namespace agg {

void EncodingTally::Set(int32_t slice, int tensor, const EncodingLoss& loss) {
  MutexLock lock(&mutex_);
  if (loss.num_infinite == 0 && loss.num_vanished == 0) {
    lost_.erase(slice);
  } else {
    lost_[slice] = {tensor, loss};
  }
}

std::string EncodingTally::Describe(const Manifest& manifest,
                                    DType dtype) const {
  int64_t num_infinite = 0, num_vanished = 0;
  int first_infinite = INT_MAX, first_vanished = INT_MAX;  // tensors
  {
    MutexLock lock(&mutex_);
    for (const auto& slice : lost_) {
      const Lost& lost = slice.second;
      num_infinite += lost.loss.num_infinite;
      num_vanished += lost.loss.num_vanished;
      if (lost.loss.num_infinite > 0) {
        first_infinite = std::min(first_infinite, lost.tensor);
      }
      if (lost.loss.num_vanished > 0) {
        first_vanished = std::min(first_vanished, lost.tensor);
      }
    }
  }
  // A number that is not 0 has its tensor.
  const auto name = [&](int first) {
    return Quoted(manifest.tensors[static_cast<size_t>(first)].name);
  };
  std::string text;
  if (num_infinite > 0) {
    text =
        absl::StrCat("this worker's row had ", num_infinite,
                     " finite values that push_dtype \"", DTypeName(dtype),
                     "\" sends as infinite, so that it cannot count: tensor ",
                     name(first_infinite));
  }
  if (num_vanished * 1000 > NumElements(manifest)) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "this worker's row had ",
                    num_vanished, " values that push_dtype \"",
                    DTypeName(dtype), "\" sends as zero: tensor ",
                    name(first_vanished));
  }
  if (text.empty()) return text;
  return absl::StrCat(text,
                      "; allowed: another loss_scale, or push_dtype \"f32\"",
                      dtype == DType::kF16 ? " or \"bf16\"" : "");
}

}  // namespace agg
