// Joins the copies of many small slices of a row into few large ones, and keeps
// which copy brought which bytes, as long as nobody has waited for it. Pure.
#ifndef AGG_KERNELS_CUDA_COPY_JOURNAL_H_
#define AGG_KERNELS_CUDA_COPY_JOURNAL_H_

#include <cstdint>
#include <optional>
#include <vector>

namespace agg::cuda {

// Bytes [begin, end) of a row.
struct ByteSpan {
  int64_t begin = 0;
  int64_t end = 0;
};

// A copy of this size reaches the bus's rate; below it, the cost of starting
// one (some microseconds) shows.
inline constexpr int64_t kEnoughBytes = int64_t{1} << 20;

// Keeps at most one span back. Slices arrive in any order; those that follow
// each other, with nothing but the padding of a slice between them, are joined.
class CopyCoalescer {
 public:
  // What is to be copied now that `span` is there: up to two spans.
  // `alignment`: bytes whose multiples slices start at.
  std::vector<ByteSpan> Add(const ByteSpan& span, int64_t alignment);

  // What was kept back, if anything.
  std::optional<ByteSpan> Take();

 private:
  std::optional<ByteSpan> pending_;
};

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
