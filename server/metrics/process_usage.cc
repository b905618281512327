// The few lines of /proc that Prometheus' users expect of every process.
#include "server/metrics/process_usage.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace agg {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file),
                     std::istreambuf_iterator<char>());
}

// The number in field `index` (from 0) of words; NaN if there is none.
double Field(absl::string_view text, size_t index) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  double value = kUnknown;
  if (index >= words.size() || !absl::SimpleAtod(words[index], &value)) {
    return kUnknown;
  }
  return value;
}

double CpuSeconds() {
  rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) != 0) return kUnknown;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) +
           1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double StartTimeSeconds() {
  // proc(5): starttime is field 22 of stat, in ticks after the boot. Field 2,
  // the program's name, is in parentheses and may hold spaces.
  const std::string stat = ReadFile("/proc/self/stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return kUnknown;
  const double ticks = Field(absl::string_view(stat).substr(name_end + 1), 19);
  const std::string kernel = ReadFile("/proc/stat");
  const size_t boot = kernel.find("\nbtime ");
  if (boot == std::string::npos) return kUnknown;
  return Field(absl::string_view(kernel).substr(boot), 1) +
         ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// The entries of /proc/self/fd, less the one that this look itself opens.
double OpenFiles() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return kUnknown;
  int num_files = 0;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.') ++num_files;
  }
  closedir(folder);
  return static_cast<double>(num_files - 1);
}

double MaxOpenFiles() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kUnknown;
  if (limit.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<double>::infinity();
  }
  return static_cast<double>(limit.rlim_cur);
}

}  // namespace

ProcessUsage ReadProcessUsage() {
  // It never changes, and /proc/stat is long where there are many CPUs.
  static const double start_time_seconds = StartTimeSeconds();
  ProcessUsage usage;
  const std::string memory = ReadFile("/proc/self/statm");
  const double page_bytes = static_cast<double>(sysconf(_SC_PAGESIZE));
  usage.virtual_bytes = Field(memory, 0) * page_bytes;
  usage.resident_bytes = Field(memory, 1) * page_bytes;
  usage.cpu_seconds = CpuSeconds();
  usage.start_time_seconds = start_time_seconds;
  usage.open_files = OpenFiles();
  usage.max_open_files = MaxOpenFiles();
  return usage;
}

}  // namespace agg
