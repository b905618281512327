// A fuzz target whose inputs are messages in protobuf's text format, so that
// people read, write and mend them. A target says, outside of namespaces,
//
//   static void Run(const agg::SomeMessage& input) { .. }
//   AGG_FUZZ_MESSAGE(agg::SomeMessage, Run)
#ifndef AGG_TESTS_FUZZ_FUZZ_MESSAGE_H_
#define AGG_TESTS_FUZZ_FUZZ_MESSAGE_H_

#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>

namespace agg {

// Whether the bytes are such a message; else it is empty.
bool ParseFuzzInput(const uint8_t* data, size_t size,
                    google::protobuf::Message* input);

// libFuzzer's two hooks, as it wants them: the new size of what is in `out`,
// which has room for `most` bytes.
size_t MutateFuzzInput(uint8_t* data, size_t size, size_t most, uint32_t seed,
                       google::protobuf::Message* scratch);
size_t CrossFuzzInputs(const uint8_t* a, size_t a_size, const uint8_t* b,
                       size_t b_size, uint8_t* out, size_t most, uint32_t seed,
                       google::protobuf::Message* scratch);

}  // namespace agg

#define AGG_FUZZ_MESSAGE(Type, run)                                         \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    Type input;                                                             \
    if (agg::ParseFuzzInput(data, size, &input)) run(input);                \
    return 0;                                                               \
  }                                                                         \
  extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,     \
                                            size_t most, unsigned seed) {   \
    Type scratch;                                                           \
    return agg::MutateFuzzInput(data, size, most, seed, &scratch);          \
  }                                                                         \
  extern "C" size_t LLVMFuzzerCustomCrossOver(                              \
      const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size,     \
      uint8_t* out, size_t most, unsigned seed) {                           \
    Type scratch;                                                           \
    return agg::CrossFuzzInputs(a, a_size, b, b_size, out, most, seed,      \
                                &scratch);                                  \
  }

#endif  // AGG_TESTS_FUZZ_FUZZ_MESSAGE_H_
