// Joins spans that are neighbours, and keeps a list in the order of the copies.
// The list stays short: copies that have been waited for leave it.
#include "kernels/cuda/copy_journal.h"

#include <algorithm>

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

void CopyJournal::Add(const ByteSpan& span, int64_t copy) {
  entries_.push_back({span, copy});
}

int64_t CopyJournal::LastCopyOf(const ByteSpan& span) const {
  const auto overlaps = [&](const Entry& entry) {
    return entry.span.begin < span.end && span.begin < entry.span.end;
  };
  const auto last = std::find_if(entries_.rbegin(), entries_.rend(), overlaps);
  return last == entries_.rend() ? 0 : last->copy;
}

void CopyJournal::ForgetUpTo(int64_t copy) {
  const auto kept =
      std::find_if(entries_.begin(), entries_.end(),
                   [&](const Entry& entry) { return entry.copy > copy; });
  entries_.erase(entries_.begin(), kept);
}

}  // namespace agg::cuda
