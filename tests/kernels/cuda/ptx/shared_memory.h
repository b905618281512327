// A block's shared memory, with what has to be known of every byte to tell
// whether an access is allowed: is it some variable's, has it been written, is
// a copy to it under way, and who touched it since which barrier.
#ifndef AGG_TESTS_KERNELS_CUDA_PTX_SHARED_MEMORY_H_
#define AGG_TESTS_KERNELS_CUDA_PTX_SHARED_MEMORY_H_

#include <cstdint>
#include <vector>

namespace agg::ptx {

// Who accesses, and how many barriers of its warp and of its block it has
// behind it; one of the block counts as one of the warp, too.
struct Actor {
  int thread = 0;  // of the block
  uint32_t warp_barriers = 0;
  uint32_t block_barriers = 0;
};

// Two accesses of different threads to the same word of 4 bytes, one of them a
// write, are a race unless a barrier lies between them: the warp's is enough
// for threads of one warp. All that fails leaves memory as it was and returns
// what is wrong; null: nothing is.
class SharedMemory {
 public:
  // An address of the shared window; nothing is below.
  static constexpr uint32_t kBase = 1024;

  struct Range {
    uint32_t begin = 0;  // an address
    uint32_t num_bytes = 0;
  };
  // What lies outside of `variables` may not be touched.
  explicit SharedMemory(const std::vector<Range>& variables);

  // As a new block finds it: nothing has been written.
  void Reset();

  // The caller checks the alignment.
  const char* Load(const Actor& actor, uint64_t address, int num_bytes,
                   void* to);
  const char* Store(const Actor& actor, uint64_t address, int num_bytes,
                    const void* from);

  // An asynchronous copy: between both calls nobody may touch its bytes.
  const char* BeginCopy(const Actor& actor, uint64_t address, int num_bytes);
  void EndCopy(const Actor& actor, uint64_t address, int num_bytes,
               const void* from);

 private:
  enum Byte : uint8_t { kOutside, kUnwritten, kWritten, kOnTheWay };

  struct Word {
    int16_t writer = kNobody;
    int16_t reader = kNobody;       // a thread, or kSeveral of reader_warp
    int16_t reader_warp = kNobody;  // or kSeveral
    uint32_t write_warp_barriers = 0;
    uint32_t write_block_barriers = 0;
    uint32_t read_warp_barriers = 0;
    uint32_t read_block_barriers = 0;
  };
  static constexpr int16_t kNobody = -1;
  static constexpr int16_t kSeveral = -2;

  bool Covers(uint64_t address, int num_bytes) const;
  static bool AfterWrite(const Word& word, const Actor& actor);
  static bool AfterReads(const Word& word, const Actor& actor);
  static void NoteRead(const Actor& actor, Word* word);
  static void NoteWrite(const Actor& actor, Word* word);
  const char* CheckWrite(const Actor& actor, uint64_t address,
                         int num_bytes) const;
  void Write(const Actor& actor, uint64_t address, int num_bytes,
             const void* from);

  std::vector<char> data_;   // from kBase on
  std::vector<Byte> fresh_;  // of a new block
  std::vector<Byte> bytes_;
  std::vector<Word> words_;
};

}  // namespace agg::ptx

#endif  // AGG_TESTS_KERNELS_CUDA_PTX_SHARED_MEMORY_H_
