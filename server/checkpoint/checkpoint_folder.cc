// CheckpointFolder: the order of the steps on the disk, in one place. What a
// part and a manifest contain is decided elsewhere.
#include "server/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/base/field_error.h"
#include "server/base/status_macros.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/durable_file.h"

namespace agg {
namespace {

bool IsFolderName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find('/') == std::string::npos;
}

// By the names of its files.
CheckpointState StateOf(const CheckpointId& id,
                        const std::vector<std::string>& names) {
  CheckpointState state;
  state.id = id;
  for (const std::string& name : names) {
    state.manifest |= name == kManifestFile;
    const absl::optional<PartName> part = ParsePartFileName(name);
    if (!part.has_value()) continue;
    // An old attempt with another K cannot be under the same epoch. If it is,
    // the first K counts, and the manifest says whether that is right.
    if (state.num_shards == 0) state.num_shards = part->num_shards;
    if (part->num_shards == state.num_shards) {
      state.parts.push_back(part->ordinal);
    }
  }
  return state;
}

// Keeps the first error.
void Keep(const absl::Status& status, absl::Status* first) {
  if (first->ok()) *first = status;
}

// Removing what another process has removed meanwhile is no error.
absl::Status RemoveIfThere(FileSystem* files, const std::string& path) {
  const absl::Status status = files->Remove(path);
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace

absl::StatusOr<CheckpointFolder> CheckpointFolder::Make(FileSystem* files,
                                                        const std::string& path,
                                                        const std::string& job,
                                                        uint64_t life) {
  if (!IsFolderName(job)) {
    return FieldError("job", Quoted(job),
                      "with checkpoints: a name of a folder");
  }
  return CheckpointFolder(files, path, job, life);
}

absl::StatusOr<CheckpointFolder> CheckpointFolder::Open(FileSystem* files,
                                                        const std::string& path,
                                                        const std::string& job,
                                                        uint64_t life) {
  absl::StatusOr<CheckpointFolder> folder = Make(files, path, job, life);
  if (!folder.ok()) return folder;
  AGG_RETURN_IF_ERROR(folder->Probe());
  return folder;
}

absl::Status CheckpointFolder::Probe() const {
  return files_->List(path_).status();
}

std::string CheckpointFolder::PathOf(const CheckpointId& id) const {
  return absl::StrCat(job_path_, "/", CheckpointFolderName(id));
}

absl::Status CheckpointFolder::MakeFolder(const std::string& folder) const {
  // Synced also if the folders are there: a process that was killed between
  // the two steps has left a name that a crash of the machine takes away.
  AGG_RETURN_IF_ERROR(files_->CreateFolder(job_path_));
  AGG_RETURN_IF_ERROR(files_->SyncFolder(path_));
  AGG_RETURN_IF_ERROR(files_->CreateFolder(folder));
  return files_->SyncFolder(job_path_);
}

absl::StatusOr<CheckpointPart> CheckpointFolder::WritePart(
    const CheckpointId& id, const PartSource& source) {
  const std::string folder = PathOf(id);
  AGG_RETURN_IF_ERROR(MakeFolder(folder));
  CheckpointPart part;
  part.file = PartFileName(source.ordinal, source.plan->num_shards);
  AGG_ASSIGN_OR_RETURN(const std::unique_ptr<DurableFile> file,
                       DurableFile::Create(files_, folder, part.file, life_));
  AGG_RETURN_IF_ERROR(AppendPart(source, file.get()));
  AGG_RETURN_IF_ERROR(file->Commit());
  part.num_bytes = file->num_bytes();
  part.crc32c = file->crc32c();
  return part;
}

absl::Status CheckpointFolder::Seal(const CheckpointManifest& manifest,
                                    int64_t max_bytes) {
  const std::string text = CheckpointManifestJson(manifest);
  if (static_cast<int64_t>(text.size()) > max_bytes) {
    return FieldError("the size of manifest.json",
                      absl::StrCat(text.size(), " bytes"),
                      absl::StrCat("at most ", max_bytes));
  }
  // Whatever is not written as it is (a name that is not UTF-8) is noticed
  // now, not when the job needs it.
  AGG_ASSIGN_OR_RETURN(const CheckpointManifest back,
                       ParseCheckpointManifest(text));
  AGG_RETURN_IF_ERROR(CompareManifests(manifest.tensors, back.tensors));

  const std::string folder = PathOf(manifest.id);
  AGG_RETURN_IF_ERROR(MakeFolder(folder));
  AGG_ASSIGN_OR_RETURN(
      const std::unique_ptr<DurableFile> file,
      DurableFile::Create(files_, folder, kManifestFile, life_));
  absl::Status status = file->Append(text);
  return status.ok() ? file->Commit() : status;
}

absl::Status CheckpointFolder::BeginAnew(uint64_t epoch) {
  // As in MakeFolder.
  AGG_RETURN_IF_ERROR(files_->CreateFolder(job_path_));
  AGG_RETURN_IF_ERROR(files_->SyncFolder(path_));
  AGG_ASSIGN_OR_RETURN(
      const std::unique_ptr<DurableFile> file,
      DurableFile::Create(files_, job_path_, BegunAnewName(epoch), life_));
  absl::Status status = file->Append(
      absl::StrCat("By an operator's word (aggctl restore none) the job began "
                   "anew in epoch ",
                   epoch,
                   ". Checkpoints with a lower first number are kept, and are "
                   "not gone on from, unless they are named (aggctl restore "
                   "MADE-VERSION). Without this file, in the folders of all "
                   "shards, they count again.\n"));
  return status.ok() ? file->Commit() : status;
}

absl::StatusOr<std::vector<CheckpointState>> CheckpointFolder::List(
    uint64_t* begun_anew) const {
  if (begun_anew != nullptr) *begun_anew = 0;
  std::vector<CheckpointState> states;
  const absl::StatusOr<std::vector<std::string>> names =
      files_->List(job_path_);
  if (absl::IsNotFound(names.status())) {
    // None yet, unless all of PATH is gone.
    AGG_RETURN_IF_ERROR(Probe());
    return states;
  }
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const absl::optional<uint64_t> began = ParseBegunAnewName(name);
    if (began.has_value() && begun_anew != nullptr) {
      *begun_anew = std::max(*begun_anew, *began);
    }
    const absl::optional<CheckpointId> id = ParseCheckpointFolderName(name);
    if (!id.has_value()) continue;
    const absl::StatusOr<std::vector<std::string>> files =
        files_->List(PathOf(*id));
    // Another process may have retired it meanwhile.
    if (absl::IsNotFound(files.status())) continue;
    if (!files.ok()) return files.status();
    states.push_back(StateOf(*id, *files));
  }
  std::sort(states.begin(), states.end(),
            [](const CheckpointState& a, const CheckpointState& b) {
              return a.id < b.id;
            });
  return states;
}

absl::Status CheckpointFolder::RemoveCheckpoint(
    const CheckpointState& state) const {
  const std::string folder = PathOf(state.id);
  absl::Status status;
  if (state.manifest) {
    status = RemoveIfThere(files_, absl::StrCat(folder, "/", kManifestFile));
    if (!status.ok()) return status;
  }
  // Gone from the disk before a part is: what has a manifest has all parts.
  // Also if there was none: another process may have removed it, unsynced.
  status = files_->SyncFolder(folder);
  if (absl::IsNotFound(status)) return absl::OkStatus();
  if (!status.ok()) return status;
  const absl::StatusOr<std::vector<std::string>> names = files_->List(folder);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  if (!names.ok()) return names.status();
  // Temporary files of processes that were killed are among them.
  for (const std::string& name : *names) {
    Keep(RemoveIfThere(files_, absl::StrCat(folder, "/", name)), &status);
  }
  if (status.ok()) status = RemoveIfThere(files_, folder);
  return status;
}

absl::Status CheckpointFolder::Retire(int keep, uint64_t line) {
  AGG_ASSIGN_OR_RETURN(const std::vector<CheckpointState> states, List());
  absl::Status status;
  std::set<uint64_t> versions;  // of sealed ones that stay
  for (auto state = states.rbegin(); state != states.rend(); ++state) {
    if (state->id.made < line) break;  // all that follow, too
    bool kept = versions.empty();
    if (state->manifest) {
      kept = static_cast<int>(versions.size()) < keep &&
             versions.insert(state->id.version).second;
    }
    if (!kept) Keep(RemoveCheckpoint(*state), &status);
  }
  return status;
}

bool CheckpointFolder::MayHavePart(const CheckpointId& id,
                                   const std::string& part_file) const {
  const absl::StatusOr<std::vector<std::string>> names =
      files_->List(PathOf(id));
  if (!names.ok()) return !absl::IsNotFound(names.status());
  return std::binary_search(names->begin(), names->end(), part_file);
}

absl::Status CheckpointFolder::Discard(const CheckpointId& id,
                                       const std::string& part_file) {
  const std::string folder = PathOf(id);
  AGG_RETURN_IF_ERROR(
      RemoveIfThere(files_, absl::StrCat(folder, "/", part_file)));
  // Others' parts go by themselves; the last one takes the folder along.
  const absl::StatusOr<std::vector<std::string>> names = files_->List(folder);
  if (names.ok() && names->empty()) return RemoveIfThere(files_, folder);
  return absl::OkStatus();
}

}  // namespace agg
