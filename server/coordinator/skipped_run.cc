// Counting, and the sentences about the count.
#include "server/coordinator/skipped_run.h"

#include "absl/strings/str_cat.h"

namespace agg {
namespace {

// A shard's failure, too, skips rounds: its message says what to do.
constexpr const char* kAdvice =
    "; if the parameters are no longer finite, they stay so: seed the job "
    "anew, "
    "with a smaller learning rate if it diverged";

bool IsPowerOfTen(uint64_t number) {
  while (number >= 10 && number % 10 == 0) number /= 10;
  return number == 1;
}

}  // namespace

void SkippedRun::Note(const RoundReport& report) {
  if (report.applied) {
    length_ = 0;
  } else if (!report.rows.empty()) {
    ++length_;
    last_reason_ = report.message;
  }
}

bool SkippedRun::worth_a_line() const {
  return length_ == 0 || IsPowerOfTen(length_);
}

std::string SkippedRun::Text() const {
  if (length_ < 2) return "";
  return absl::StrCat("the last ", length_, " rounds were skipped (",
                      last_reason_, ")", kAdvice);
}

std::string SkippedRun::FailureText() const {
  if (max_rounds_ == 0 || length_ < max_rounds_) return "";
  return absl::StrCat("it failed: ", length_,
                      " rounds in a row were skipped (max_skipped_rounds); the "
                      "last one: ",
                      last_reason_, kAdvice);
}

}  // namespace agg
