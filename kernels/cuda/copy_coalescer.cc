// Keeps at most one copy back, and joins the next span to it if only padding
// is between the two.
#include "kernels/cuda/copy_coalescer.h"

namespace agg::cuda {

std::vector<ByteSpan> CopyCoalescer::Add(const ByteSpan& span,
                                         int64_t alignment) {
  std::vector<ByteSpan> ready;
  if (span.begin >= span.end) return ready;
  if (pending_.has_value()) {
    const int64_t next =
        (pending_->end + alignment - 1) / alignment * alignment;
    if (span.begin == next) {
      pending_->end = span.end;
    } else {
      ready.push_back(*pending_);
      pending_ = span;
    }
  } else {
    pending_ = span;
  }
  if (pending_->end - pending_->begin >= kEnoughBytes) {
    ready.push_back(*pending_);
    pending_.reset();
  }
  return ready;
}

std::optional<ByteSpan> CopyCoalescer::Take() {
  const std::optional<ByteSpan> taken = pending_;
  pending_.reset();
  return taken;
}

}  // namespace agg::cuda
