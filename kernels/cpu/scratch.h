// Working memory of the threads of one call.
#ifndef AGG_KERNELS_CPU_SCRATCH_H_
#define AGG_KERNELS_CPU_SCRATCH_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace agg {

// `num_doubles` doubles per thread, 64-byte aligned and each thread's a page
// away from the next one's, not initialised.
class ThreadScratch {
 public:
  ThreadScratch(int num_threads, int64_t num_doubles)
      : stride_((num_doubles + kPageDoubles - 1) / kPageDoubles * kPageDoubles),
        data_(static_cast<double*>(
            ::operator new (num_threads* stride_ * sizeof(double),
                            std::align_val_t{kPageBytes}))) {}

  double* of_thread(int thread) const { return data_.get() + thread * stride_; }

 private:
  static constexpr size_t kPageBytes = 4096;
  static constexpr int64_t kPageDoubles = kPageBytes / sizeof(double);

  struct Free {
    void operator()(double* data) const {
      ::operator delete (data, std::align_val_t{kPageBytes});
    }
  };

  int64_t stride_;
  std::unique_ptr<double, Free> data_;
};

}  // namespace agg

#endif  // AGG_KERNELS_CPU_SCRATCH_H_
