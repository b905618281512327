// Any bytes as a worker's log, beside a round log that is good, and as the
// round log: refused, or findings.
#include <google/protobuf/stubs/logging.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/round_log.pb.h"
#include "server/tools/round_audit.h"

namespace {

// A file in memory, as long as it lives.
class File {
 public:
  explicit File(const std::string& bytes) : fd_(memfd_create("audit", 0)) {
    if (fd_ < 0 || write(fd_, bytes.data(), bytes.size()) !=
                       static_cast<ssize_t>(bytes.size())) {
      __builtin_trap();
    }
  }
  ~File() { close(fd_); }
  std::string path() const { return absl::StrCat("/proc/self/fd/", fd_); }

 private:
  const int fd_;
};

std::string Delimited(const agg::v1::RoundLogRecord& record) {
  const std::string bytes = record.SerializeAsString();
  std::string length;
  for (size_t rest = bytes.size();; rest >>= 7) {
    length += static_cast<char>((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0));
    if (rest <= 0x7f) break;
  }
  return length + bytes;
}

// Two rounds with a row of rank 0 each.
std::string GoodLog() {
  std::string log;
  for (uint64_t round = 0; round < 2; ++round) {
    agg::v1::RoundLogRecord record;
    if (round == 0) record.mutable_run()->set_job("job");
    record.set_epoch(5);
    record.set_round(round);
    record.set_version(round + 1);
    record.set_applied(true);
    agg::v1::LoggedRow* const row = record.add_rows();
    row->set_session(7);
    row->add_row_crc32c(9);
    log += Delimited(record);
  }
  return log;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // protobuf has a line for each text that is not UTF-8.
  google::protobuf::SetLogHandler(nullptr);
  static const std::string* const good = new std::string(GoodLog());
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const File any(bytes);
  const File log(*good);
  const auto of_worker = agg::AuditFiles({log.path()}, {any.path()});
  // The round log is good: a worker's file without a row is all that may be
  // wrong.
  if (!of_worker.ok() && !absl::IsFailedPrecondition(of_worker.status())) {
    __builtin_trap();
  }
  (void)agg::AuditFiles({any.path()}, {});
  (void)agg::AuditFiles({log.path(), any.path()}, {any.path()});
  return 0;
}
