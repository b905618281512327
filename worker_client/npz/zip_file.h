// Zip archives, as far as .npz files need them (APPNOTE 6.3.10): stored
// entries are written, stored and deflated ones read; Zip64 where 4 GiB are
// exceeded. No encryption, no spanning, no streaming entries without sizes.
#ifndef AGG_WORKER_CLIENT_NPZ_ZIP_FILE_H_
#define AGG_WORKER_CLIENT_NPZ_ZIP_FILE_H_

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace agg {

// Writes "PATH.part" and renames it to PATH at the end, so that PATH is never
// half written. Thread-compatible.
class ZipWriter {
 public:
  explicit ZipWriter(std::string path);
  // Removes what Finish has not completed.
  ~ZipWriter();
  ZipWriter(const ZipWriter&) = delete;
  ZipWriter& operator=(const ZipWriter&) = delete;

  // The entry's contents are the concatenation of the pieces.
  void Add(absl::string_view name, absl::Span<const absl::string_view> pieces);

  // UNKNOWN naming the path if anything could not be written. Call once.
  absl::Status Finish();

 private:
  struct Entry {
    std::string name;
    uint32_t crc32 = 0;
    uint64_t bytes = 0;
    uint64_t offset = 0;
  };

  std::string LocalHeader(const Entry& entry) const;
  std::string CentralHeader(const Entry& entry) const;
  std::string EndRecords(uint64_t directory_offset,
                         uint64_t directory_bytes) const;
  void Write(absl::string_view bytes);

  const std::string path_;
  const std::string part_path_;
  std::ofstream out_;
  uint64_t offset_ = 0;
  std::vector<Entry> entries_;
  bool finished_ = false;
};

// Reads entries one at a time. Thread-compatible.
class ZipReader {
 public:
  // NOT_FOUND: cannot be opened. INVALID_ARGUMENT: no zip file, or one with
  // features of which the comment above says that they are not read.
  static absl::StatusOr<ZipReader> Open(const std::string& path);

  int num_entries() const { return static_cast<int>(entries_.size()); }
  const std::string& name(int entry) const { return entries_[entry].name; }
  // INVALID_ARGUMENT if the contents do not fit their size or checksum.
  absl::StatusOr<std::string> Read(int entry);

 private:
  struct Entry {
    std::string name;
    uint16_t method = 0;
    uint32_t crc32 = 0;
    uint64_t stored_bytes = 0;
    uint64_t bytes = 0;
    uint64_t offset = 0;
  };

  explicit ZipReader(std::string path);

  absl::Status ReadDirectory();
  absl::Status ParseEntries(absl::string_view directory, uint64_t count);
  absl::StatusOr<std::string> ReadAt(uint64_t offset, uint64_t bytes);
  absl::Status Malformed(absl::string_view what) const;

  std::string path_;
  std::ifstream in_;
  uint64_t file_bytes_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_NPZ_ZIP_FILE_H_
