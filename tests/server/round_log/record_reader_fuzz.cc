// Any bytes as a round log: read to their end, or refused. A log that can be
// gone on with has what it had before, and then the record that was appended.
#include <google/protobuf/stubs/logging.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/round_log.pb.h"
#include "server/round_log/record_file.h"

namespace {

// How many records there are; -1: it is no round log, or damaged.
int Count(const std::string& path, int64_t size) {
  auto reader = agg::RecordReader::Open(path);
  if (!reader.ok()) __builtin_trap();
  agg::v1::RoundLogRecord record;
  for (int count = 0;; ++count) {
    const absl::StatusOr<bool> next = reader->Next(&record);
    if (!next.ok()) return -1;
    if (reader->end_offset() + reader->truncated_bytes() > size) {
      __builtin_trap();
    }
    if (!*next) return count;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // protobuf has a line for each text that is not UTF-8.
  google::protobuf::SetLogHandler(nullptr);
  const int fd = memfd_create("log", 0);
  const std::string path = absl::StrCat("/proc/self/fd/", fd);
  if (fd < 0 || write(fd, data, size) != static_cast<ssize_t>(size)) {
    __builtin_trap();
  }
  const int before = Count(path, static_cast<int64_t>(size));
  {
    auto file = agg::RecordFile::Open(path);
    // An empty file is a log that begins.
    if (before < 0 && file.ok()) __builtin_trap();
    agg::v1::RoundLogRecord record;
    record.mutable_run()->set_job("j");
    if (file.ok() && (*file)->Append(record.SerializeAsString()).ok()) {
      const auto now = static_cast<int64_t>(lseek(fd, 0, SEEK_END));
      if (Count(path, now) != before + 1) __builtin_trap();
    }
  }
  close(fd);
  return 0;
}
