// An entry is as old as its manifest: nobody has to say that it is done.
#include "server/rpc/manifest_book.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/manifest_message.h"
#include "proto/manifest_size.h"
#include "server/base/field_error.h"
#include "server/base/limit_error.h"
#include "server/base/status_macros.h"

namespace agg {

void ManifestBook::ForgetUnheld() {
  entries_.erase(
      std::remove_if(entries_.begin(), entries_.end(),
                     [](const Entry& one) { return one.manifest.expired(); }),
      entries_.end());
}

std::shared_ptr<const Manifest> ManifestBook::Find(absl::string_view message) {
  for (const Entry& one : entries_) {
    if (*one.message == message) return one.manifest.lock();
  }
  return nullptr;
}

absl::Status ManifestBook::CheckRoom(int64_t num_bytes,
                                     const std::string& identity) {
  int64_t all = 0;
  int64_t own = 0;
  for (const Entry& one : entries_) {
    all += one.num_bytes;
    if (one.identity == identity) own += one.num_bytes;
  }
  // One alone always fits: it may be the job's.
  if (own > 0 && own + num_bytes > max_own_bytes_) {
    return LimitError("bytes of manifests",
                      identity.empty()
                          ? "callers without an identity"
                          : absl::StrCat("identity ", Quoted(identity)),
                      absl::StrCat(own + num_bytes),
                      absl::StrCat(max_own_bytes_, " at a time"));
  }
  if (all > 0 && all + num_bytes > max_bytes_) {
    return LimitError("bytes of manifests", "all callers",
                      absl::StrCat(all + num_bytes),
                      absl::StrCat(max_bytes_, " at a time"));
  }
  return absl::OkStatus();
}

absl::StatusOr<SharedManifest> ManifestBook::Take(absl::string_view message,
                                                  const std::string& identity) {
  MutexLock lock(&mutex_);
  std::shared_ptr<const Manifest> known = Find(message);
  if (known != nullptr) return SharedManifest(std::move(known));
  ForgetUnheld();
  AGG_ASSIGN_OR_RETURN(const ManifestSize size, SizeOfMessage(message));
  if (size.tensors > kMostTensors) {
    return FieldError("manifest", absl::StrCat(size.tensors, " tensors"),
                      absl::StrCat("1 to ", kMostTensors, " tensors"));
  }
  Entry entry;
  entry.identity = identity;
  entry.num_bytes = ManifestBytes(size) + static_cast<int64_t>(message.size());
  AGG_RETURN_IF_ERROR(CheckRoom(entry.num_bytes, identity));
  SharedManifest manifest;
  {
    v1::Manifest parsed;
    if (!parsed.ParseFromArray(message.data(),
                               static_cast<int>(message.size()))) {
      return absl::InvalidArgumentError("malformed manifest");
    }
    manifest = SharedManifest(FromProto(parsed));
    // What else the message had is nobody's business.
    parsed.DiscardUnknownFields();
    entry.message =
        std::make_shared<const std::string>(parsed.SerializeAsString());
  }
  // Another client may have written the same manifest in another way.
  known = Find(*entry.message);
  if (known != nullptr) return SharedManifest(std::move(known));
  entry.manifest = manifest.share();
  entries_.push_back(std::move(entry));
  return manifest;
}

std::shared_ptr<const std::string> ManifestBook::MessageOf(
    const SharedManifest& manifest) {
  MutexLock lock(&mutex_);
  for (const Entry& one : entries_) {
    if (one.manifest.lock() == manifest.share()) return one.message;
  }
  ForgetUnheld();
  Entry entry;
  entry.manifest = manifest.share();
  entry.message = std::make_shared<const std::string>(
      ToProto(*manifest).SerializeAsString());
  entries_.push_back(entry);
  return entry.message;
}

}  // namespace agg
