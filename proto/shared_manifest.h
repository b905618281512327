// A job's manifest, which everybody who needs it shares: with many tensors it
// takes tens of MiB, and one that joins need not bring a copy of its own.
#ifndef AGG_PROTO_SHARED_MANIFEST_H_
#define AGG_PROTO_SHARED_MANIFEST_H_

#include <memory>
#include <utility>

#include "proto/shard_plan.h"

namespace agg {

// Copies share one manifest, which nobody changes. Thread-compatible; copies of
// one may be used by several threads.
class SharedManifest {
 public:
  // One without tensors.
  SharedManifest() : SharedManifest(Manifest()) {}
  SharedManifest(Manifest manifest)  // NOLINT: a manifest is one
      : manifest_(std::make_shared<const Manifest>(std::move(manifest))) {}
  explicit SharedManifest(std::shared_ptr<const Manifest> manifest)
      : manifest_(std::move(manifest)) {}

  const Manifest& operator*() const { return *manifest_; }
  const Manifest* operator->() const { return manifest_.get(); }
  const std::shared_ptr<const Manifest>& share() const { return manifest_; }
  // Whether both are the same object.
  bool Shares(const SharedManifest& other) const {
    return manifest_ == other.manifest_;
  }

 private:
  std::shared_ptr<const Manifest> manifest_;  // never null
};

}  // namespace agg

#endif  // AGG_PROTO_SHARED_MANIFEST_H_
