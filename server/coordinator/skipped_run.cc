// Counting, and the sentences about the count.
#include "server/coordinator/skipped_run.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/base/field_error.h"

namespace agg {
namespace {

// A shard's failure, too, skips rounds: its message says what to do.
constexpr const char* kAdvice =
    "; if the parameters are no longer finite, they stay so: seed the job "
    "anew, with a smaller learning rate if it diverged";
constexpr const char* kNotFiniteAdvice =
    "; they stay so: seed the job anew, with a smaller learning rate if it "
    "diverged";

bool IsPowerOfTen(uint64_t number) {
  while (number >= 10 && number % 10 == 0) number /= 10;
  return number == 1;
}

}  // namespace

void SkippedRun::Note(const RoundReport& report) {
  if (report.rows.empty()) return;
  if (report.applied && !report.not_finite.has_value()) {
    not_finite_.reset();
    num_after_ = 0;
  } else if (not_finite_.has_value()) {
    ++num_after_;
  } else if (report.not_finite.has_value()) {
    not_finite_ = report.not_finite;
    not_finite_since_ = report.round;
  }
  length_ = report.applied ? 0 : length_ + 1;
  if (!report.applied) last_reason_ = report.message;
}

bool SkippedRun::worth_a_line() const {
  const uint64_t length = std::max(length_, num_after_);
  return length == 0 || IsPowerOfTen(length);
}

std::string SkippedRun::NotFiniteText() const {
  if (!not_finite_.has_value()) return "";
  return absl::StrCat("the parameters have not been finite since round ",
                      not_finite_since_, " (tensor ",
                      Quoted(not_finite_->tensor), ", shard ",
                      not_finite_->shard, ")");
}

std::string SkippedRun::Text() const {
  std::string skipped;
  if (length_ >= 2) {
    skipped = absl::StrCat("the last ", length_, " rounds were skipped (",
                           last_reason_, ")");
  }
  if (!not_finite_.has_value()) {
    return skipped.empty() ? "" : absl::StrCat(skipped, kAdvice);
  }
  return absl::StrCat(NotFiniteText(), kNotFiniteAdvice,
                      skipped.empty() ? "" : "; ", skipped);
}

std::string SkippedRun::FailureText() const {
  if (max_rounds_ == 0) return "";
  if (not_finite_.has_value() && num_after_ >= max_rounds_) {
    return absl::StrCat("it failed: ", NotFiniteText(), ", and ", num_after_,
                        " rounds came after it (max_skipped_rounds)",
                        kNotFiniteAdvice);
  }
  if (length_ < max_rounds_) return "";
  return absl::StrCat("it failed: ", length_,
                      " rounds in a row were skipped (max_skipped_rounds); the "
                      "last one: ",
                      last_reason_, kAdvice);
}

}  // namespace agg
