// Reads at most a fixed number of bytes, whatever kind of file the path
// names.
#include "server/config/config_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/field_error.h"

namespace agg {
namespace {

// Far more than 1024 shards and all groups need. Without an end, /dev/zero
// would be read until the memory is full.
constexpr size_t kMaxConfigBytes = size_t{16} << 20;

absl::Status Refuse(const std::string& path, absl::string_view what) {
  return FieldError("--config", absl::StrCat(Quoted(path), " (", what, ")"),
                    "a file with the job's configuration, or - for standard "
                    "input");
}

// Reads to the end, or one byte more than is allowed. False: see errno.
bool ReadAll(int fd, std::string* text) {
  char buffer[65536];
  while (text->size() <= kMaxConfigBytes) {
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    if (count == 0) return true;
    text->append(buffer, static_cast<size_t>(count));
  }
  return true;
}

}  // namespace

absl::StatusOr<std::string> ReadConfigFile(const std::string& path) {
  const bool is_stdin = path == "-";
  const int fd =
      is_stdin ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Refuse(path, std::strerror(errno));
  std::string text;
  struct stat info;
  const bool is_folder = fstat(fd, &info) == 0 && S_ISDIR(info.st_mode);
  const bool read = !is_folder && ReadAll(fd, &text);
  const int error = errno;
  if (!is_stdin) close(fd);
  if (is_folder) return Refuse(path, "a folder");
  if (!read) return Refuse(path, std::strerror(error));
  if (text.size() > kMaxConfigBytes) {
    return Refuse(path, absl::StrCat("more than ", kMaxConfigBytes, " bytes"));
  }
  if (absl::StripAsciiWhitespace(text).empty()) {
    return Refuse(path,
                  "empty; the smallest configuration is `workers: 1 "
                  "learning_rate { rate: 0.1 }`");
  }
  return text;
}

}  // namespace agg
