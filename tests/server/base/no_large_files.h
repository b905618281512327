// A system that refuses to make memory that can be shared.
#ifndef AGG_TESTS_SERVER_BASE_NO_LARGE_FILES_H_
#define AGG_TESTS_SERVER_BASE_NO_LARGE_FILES_H_

#include <sys/resource.h>

namespace agg {

// While it lives, this process gets an error for files of more than kMaxBytes,
// memory files too. What signals do stays as it is: a library that ran into the
// limit would end the test. Not thread-safe; one at a time.
class NoLargeFiles {
 public:
  static constexpr long kMaxBytes = 256 << 10;

  NoLargeFiles() {
    getrlimit(RLIMIT_FSIZE, &former_);
    rlimit limit = former_;
    limit.rlim_cur = kMaxBytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~NoLargeFiles() { setrlimit(RLIMIT_FSIZE, &former_); }
  NoLargeFiles(const NoLargeFiles&) = delete;
  NoLargeFiles& operator=(const NoLargeFiles&) = delete;

 private:
  rlimit former_;
};

}  // namespace agg

#endif  // AGG_TESTS_SERVER_BASE_NO_LARGE_FILES_H_
