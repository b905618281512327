// A system that refuses to write large files, and to make memory that can be
// shared.
#ifndef AGG_TESTS_SERVER_BASE_NO_LARGE_FILES_H_
#define AGG_TESTS_SERVER_BASE_NO_LARGE_FILES_H_

#include <sys/resource.h>

#include <cstdio>
#include <string>

#include "gtest/gtest.h"

namespace agg {

// While it lives, this process gets an error for files of more than the limit,
// memory files too. What signals do stays as it is: a library that ran into the
// limit would end the test. So would a line of the log in a long file, to which
// stderr may lead; what is written there meanwhile has a file of its own. Not
// thread-safe; one at a time.
class NoLargeFiles {
 public:
  static constexpr long kMaxBytes = 256 << 10;

  // What was logged goes, at its end, to `*logged`, or, if that is null, to
  // stderr.
  explicit NoLargeFiles(rlim_t max_bytes = kMaxBytes,
                        std::string* logged = nullptr)
      : logged_(logged) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &former_), 0);
    rlimit limit = former_;
    limit.rlim_cur = max_bytes;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~NoLargeFiles() {
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &former_), 0);
    const std::string text = testing::internal::GetCapturedStderr();
    if (logged_ != nullptr) {
      *logged_ = text;
    } else {
      std::fputs(text.c_str(), stderr);
    }
  }
  NoLargeFiles(const NoLargeFiles&) = delete;
  NoLargeFiles& operator=(const NoLargeFiles&) = delete;

 private:
  std::string* const logged_;
  rlimit former_;
};

}  // namespace agg

#endif  // AGG_TESTS_SERVER_BASE_NO_LARGE_FILES_H_
