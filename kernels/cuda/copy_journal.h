// Which copy brought which bytes of a row, as long as nobody has waited for
// it. Pure.
#ifndef AGG_KERNELS_CUDA_COPY_JOURNAL_H_
#define AGG_KERNELS_CUDA_COPY_JOURNAL_H_

#include <cstdint>
#include <vector>

#include "kernels/cuda/copy_coalescer.h"

namespace agg::cuda {

// Copies are numbered from 1 in the order in which they are made.
class CopyJournal {
 public:
  void Add(const ByteSpan& span, int64_t copy);

  // The last copy that brought a byte of `span`; 0: none that is noted here.
  int64_t LastCopyOf(const ByteSpan& span) const;

  // Forgets copies up to `copy`: they have been waited for.
  void ForgetUpTo(int64_t copy);

 private:
  struct Entry {
    ByteSpan span;
    int64_t copy;
  };
  std::vector<Entry> entries_;  // ascending copy
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_COPY_JOURNAL_H_
