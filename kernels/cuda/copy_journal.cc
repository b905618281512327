// A list in the order of the copies. It stays short: copies that have been
// waited for leave it.
#include "kernels/cuda/copy_journal.h"

#include <algorithm>

namespace agg::cuda {

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
