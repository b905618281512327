// What a benchmark has measured, as a JSON file: gpu_report joins such files.
#ifndef AGG_TESTS_BENCH_BENCH_FILE_H_
#define AGG_TESTS_BENCH_BENCH_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "server/base/json.h"

namespace agg {

// The flags of a benchmark of the GPU: `[--smoke] [--json=FILE]`.
struct BenchFlags {
  bool smoke = false;  // small arrays: that it works, not how fast
  std::string json;    // "": no file
};

// False if an argument is neither: stderr has its name, and what is allowed.
bool ParseBenchFlags(int argc, char** argv, BenchFlags* flags);

// {"median", "min", "max"}, six digits each; of an even number of values the
// median is the upper one of the two in the middle. REQUIRES: not empty.
Json SpreadOf(std::vector<double> values);

// Seconds of one turn of a device-to-device copy and a kernel.
struct Turn {
  double copy = 0.0;  // right before the kernel
  double kernel = 0.0;
  double yardstick = 0.0;  // after another copy; 0: the turn had none
};

// Writes the row of a kernel that has to move `kernel_bytes` while its copies
// read and write `copy_bytes` together: {"bytes", "repetitions", "gb_per_s":
// spread, "share_of_copy": spread}. A turn's share is the kernel's bytes per
// second over the copy's. REQUIRES: `turns` is not empty.
Json RatesOf(const std::vector<Turn>& turns, double kernel_bytes,
             double copy_bytes);

// A spread of the yardstick's time over the kernel's: the share of its speed
// that the kernel has, which moves the same bytes. Null if a turn has none.
Json ShareOfYardstick(const std::vector<Turn>& turns);

// A JSON object with "program" and "complete" as its first members. The file is
// written anew, whole, with each change: a benchmark that is killed leaves what
// it had measured by then, and "complete" is false. Ends the process with a
// message if the file cannot be written. Thread-compatible.
class BenchFile {
 public:
  // `path`: "" for no file, of which all calls do nothing.
  BenchFile(const std::string& program, std::string path);
  ~BenchFile();

  // Adds or replaces a member.
  void Set(const std::string& name, Json value);
  // Adds an element to the list `name`, which is made if it is not there.
  void Append(const std::string& name, Json value);
  // Nothing is missing: "complete" becomes true.
  void Finish();

 private:
  void Write() const;

  const std::string path_;
  const std::unique_ptr<Json> value_;
};

}  // namespace agg

#endif  // AGG_TESTS_BENCH_BENCH_FILE_H_
