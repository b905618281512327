// DurableFile: the steps from the first byte to a name that stays.
#include "server/checkpoint/durable_file.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "server/base/status_macros.h"

namespace agg {

absl::StatusOr<std::unique_ptr<DurableFile>> DurableFile::Create(
    FileSystem* files, const std::string& folder, const std::string& name,
    uint64_t life) {
  const std::string path = absl::StrCat(folder, "/", name);
  std::unique_ptr<DurableFile> file = absl::WrapUnique(new DurableFile(
      files, folder, path, absl::StrCat(path, ".", absl::Hex(life), ".tmp")));
  AGG_ASSIGN_OR_RETURN(file->file_, files->Create(file->temporary_));
  file->temporary_exists_ = true;
  return file;
}

DurableFile::~DurableFile() {
  if (file_ != nullptr) {
    (void)Fail(absl::CancelledError(absl::StrCat(path_, " was given up")));
  }
}

absl::Status DurableFile::Fail(const absl::Status& error) {
  status_ = error;
  file_ = nullptr;
  // Frees the room on a full disk. What cannot be removed now goes with the
  // checkpoint's folder.
  if (temporary_exists_) (void)files_->Remove(temporary_);
  temporary_exists_ = false;
  return status_;
}

absl::Status DurableFile::Append(absl::string_view bytes) {
  if (!status_.ok()) return status_;
  const absl::Status written = file_->Append(bytes);
  if (!written.ok()) return Fail(written);
  num_bytes_ += static_cast<int64_t>(bytes.size());
  crc_ = ExtendCrc32c(crc_, bytes);
  return absl::OkStatus();
}

absl::Status DurableFile::CloseAndRename() {
  // The data before the name: else a crash could leave the name without them.
  AGG_RETURN_IF_ERROR(file_->Sync());
  AGG_RETURN_IF_ERROR(file_->Close());
  return files_->Rename(temporary_, path_);
}

absl::Status DurableFile::Commit() {
  if (!status_.ok()) return status_;
  absl::Status status = CloseAndRename();
  if (!status.ok()) return Fail(status);
  file_ = nullptr;
  temporary_exists_ = false;
  status = files_->SyncFolder(folder_);
  return status.ok() ? status : Fail(status);
}

absl::StatusOr<std::string> ReadSmallFile(FileSystem* files,
                                          const std::string& path,
                                          int64_t max_bytes) {
  AGG_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file,
                       files->Open(path));
  if (file->num_bytes() > max_bytes) {
    return absl::DataLossError(absl::StrCat(path, " has ", file->num_bytes(),
                                            " bytes; allowed: at most ",
                                            max_bytes));
  }
  std::string bytes(static_cast<size_t>(file->num_bytes()), '\0');
  AGG_RETURN_IF_ERROR(file->Read(0, absl::MakeSpan(bytes)));
  return bytes;
}

}  // namespace agg
