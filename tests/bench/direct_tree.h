// Adasum as Horovod computes it, for comparison: a tree of vectors, each node
// stored in float32, with dot products and norms in double.
//
// It has what a fair opponent should have: SIMD, all threads, one pass for the
// three scalars of a pair and one for the scaled addition, in place, and
// barriers that do not sleep. It is not
// used by the server: its cost is 5 P d elements of traffic and a barrier per
// level, and it needs a tensor's elements in one place.
#ifndef AGG_TESTS_BENCH_DIRECT_TREE_H_
#define AGG_TESTS_BENCH_DIRECT_TREE_H_

#include <cstdint>
#include <vector>

#include "kernels/cpu/thread_pool.h"

namespace agg {

// Replaces rows[0] by the tree over all rows, tensor by tensor; the other rows
// are used up. REQUIRES: num_elements is a multiple of tensor_elements, which
// is one of 32 * pool->num_threads().
void DirectAdasumTree(ThreadPool* pool, const std::vector<float*>& rows,
                      int64_t num_elements, int64_t tensor_elements);

}  // namespace agg

#endif  // AGG_TESTS_BENCH_DIRECT_TREE_H_
