// Sizes of the pieces, and what malloc adds to each.
#include "proto/manifest_size.h"

namespace agg {

ManifestSize SizeOf(const Manifest& manifest) {
  ManifestSize size;
  size.tensors = static_cast<int64_t>(manifest.tensors.size());
  for (const TensorSpec& tensor : manifest.tensors) {
    size.dimensions += static_cast<int64_t>(tensor.shape.size());
    size.text_bytes +=
        static_cast<int64_t>(tensor.name.size() + tensor.group.size());
  }
  return size;
}

int64_t ManifestBytes(const ManifestSize& size) {
  // Its header, and half of what it is rounded up to.
  constexpr int64_t kPiece = 16;
  // A tensor's name, group and shape are pieces of their own.
  constexpr int64_t kTensor = int64_t{sizeof(TensorSpec)} + 3 * kPiece;
  return size.tensors * kTensor + size.dimensions * int64_t{sizeof(int64_t)} +
         size.text_bytes;
}

}  // namespace agg
