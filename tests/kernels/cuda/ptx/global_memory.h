// The memory outside of blocks that a launch may touch, at its addresses on the
// host. Everything else is out of bounds, to the byte.
#ifndef AGG_TESTS_KERNELS_CUDA_PTX_GLOBAL_MEMORY_H_
#define AGG_TESTS_KERNELS_CUDA_PTX_GLOBAL_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace agg::ptx {

// For one launch. Blocks run in any order and know nothing of each other, so
// what one thread writes no other may touch, except to write the same value
// (which kernels do to set a flag). Told apart by 2 bytes, the smallest that
// kernels store. All that fails returns what is wrong, and changes nothing.
class GlobalMemory {
 public:
  // Neither overlaps another.
  void Add(const void* begin, int64_t num_bytes, bool writable);

  // `thread`: of the launch, from 0 on.
  const char* Load(int64_t thread, uint64_t address, int num_bytes, void* to);
  const char* Store(int64_t thread, uint64_t address, int num_bytes,
                    const void* from);

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  // Who has touched 2 bytes: thread + 1, or 0, or kSeveral.
  struct Touch {
    uint32_t writer;
    uint32_t reader;
  };
  static constexpr uint32_t kSeveral = 0xffffffffu;

  struct Region {
    uint64_t begin = 0;
    uint64_t num_bytes = 0;
    bool writable = false;
    std::unique_ptr<Touch[], Free> touches;  // when first needed
  };

  Region* Find(uint64_t address, int num_bytes);
  static const char* NoteRead(uint32_t thread, Touch* touch);
  static const char* NoteWrite(uint32_t thread, bool same, Touch* touch);
  static Touch* TouchesAt(Region* region, uint64_t address);

  std::vector<Region> regions_;
  size_t last_ = 0;  // the region that was found last
};

}  // namespace agg::ptx

#endif  // AGG_TESTS_KERNELS_CUDA_PTX_GLOBAL_MEMORY_H_
