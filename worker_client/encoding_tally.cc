// The first tensor is that of the lowest index, whichever thread came first.
#include "worker_client/encoding_tally.h"

#include "absl/strings/str_cat.h"
#include "server/base/field_error.h"

namespace agg {
namespace {

void SetFirst(int tensor, std::atomic<int>* first) {
  int known = first->load(std::memory_order_relaxed);
  while (
      (known < 0 || tensor < known) &&
      !first->compare_exchange_weak(known, tensor, std::memory_order_relaxed)) {
  }
}

}  // namespace

void EncodingTally::Add(int tensor, const EncodingLoss& loss) {
  if (loss.num_infinite > 0) {
    SetFirst(tensor, &first_infinite_);
    num_infinite_.fetch_add(loss.num_infinite, std::memory_order_release);
  }
  if (loss.num_vanished > 0) {
    SetFirst(tensor, &first_vanished_);
    num_vanished_.fetch_add(loss.num_vanished, std::memory_order_release);
  }
}

std::string EncodingTally::Describe(const Manifest& manifest,
                                    DType dtype) const {
  // A number that is not 0 has its tensor.
  const int64_t num_infinite = num_infinite_.load(std::memory_order_acquire);
  const int64_t num_vanished = num_vanished_.load(std::memory_order_acquire);
  const auto name = [&](const std::atomic<int>& first) {
    return Quoted(manifest.tensors[first.load(std::memory_order_relaxed)].name);
  };
  std::string text;
  if (num_infinite > 0) {
    text =
        absl::StrCat("this worker's row had ", num_infinite,
                     " finite values that push_dtype \"", DTypeName(dtype),
                     "\" sends as infinite, so that it cannot count: tensor ",
                     name(first_infinite_));
  }
  if (num_vanished * 1000 > NumElements(manifest)) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "this worker's row had ",
                    num_vanished, " values that push_dtype \"",
                    DTypeName(dtype), "\" sends as zero: tensor ",
                    name(first_vanished_));
  }
  if (text.empty()) return text;
  return absl::StrCat(text,
                      "; allowed: another loss_scale, or push_dtype \"f32\"",
                      dtype == DType::kF16 ? " or \"bf16\"" : "");
}

}  // namespace agg
