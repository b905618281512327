// The manifests that workers bring: each is there once, however many bring it,
// and what they take is bounded before it is taken (P46).
#ifndef AGG_SERVER_RPC_MANIFEST_BOOK_H_
#define AGG_SERVER_RPC_MANIFEST_BOOK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/shared_manifest.h"
#include "server/base/mutex.h"

namespace agg {

// Thread-safe. Bytes are parsed by one call at a time.
class ManifestBook {
 public:
  // What manifests that differ from each other may take while somebody holds
  // them, of all callers and of one identity. Two of the largest fit into the
  // latter: 100,000 tensors with names of 80 bytes.
  static constexpr int64_t kMaxBytes = int64_t{128} << 20;
  static constexpr int64_t kMaxOwnBytes = int64_t{64} << 20;

  explicit ManifestBook(int64_t max_bytes = kMaxBytes,
                        int64_t max_own_bytes = kMaxOwnBytes)
      : max_bytes_(max_bytes), max_own_bytes_(max_own_bytes) {}

  // The manifest of these bytes (a v1::Manifest), which `identity` has sent:
  // the same object for the same manifest, as long as somebody holds it. Bytes
  // that were seen are not parsed again. INVALID_ARGUMENT: they are malformed,
  // or have more tensors than a manifest may have. A limit error
  // (limit_error.h) if there is no room for it.
  absl::StatusOr<SharedManifest> Take(absl::string_view message,
                                      const std::string& identity);
  // Its bytes, which all who ask for it share while somebody holds it.
  std::shared_ptr<const std::string> MessageOf(const SharedManifest& manifest);

 private:
  struct Entry {
    std::weak_ptr<const Manifest> manifest;
    std::shared_ptr<const std::string> message;
    std::string identity;
    int64_t num_bytes = 0;
  };

  void ForgetUnheld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null: nobody holds one with these bytes.
  std::shared_ptr<const Manifest> Find(absl::string_view message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckRoom(int64_t num_bytes, const std::string& identity)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t max_bytes_;
  const int64_t max_own_bytes_;
  Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // few
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_MANIFEST_BOOK_H_
