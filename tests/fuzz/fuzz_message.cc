#include "tests/fuzz/fuzz_message.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <cstring>
#include <memory>
#include <string>

#include "tests/fuzz/message_mutator.h"

// libFuzzer's; where it is not linked nobody mutates.
extern "C" __attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t* data,
                                                         size_t size,
                                                         size_t most);

namespace agg {
namespace {

using google::protobuf::Message;
using google::protobuf::TextFormat;

// protobuf would print each error.
class Silent : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, int, const std::string&) override {}
  void AddWarning(int, int, const std::string&) override {}
};

size_t Print(const Message& message, uint8_t* out, size_t most, size_t else_) {
  std::string text;
  TextFormat::PrintToString(message, &text);
  if (text.size() > most) return else_;
  std::memcpy(out, text.data(), text.size());
  return text.size();
}

MessageMutator MakeMutator(uint32_t seed) {
  return MessageMutator(seed, LLVMFuzzerMutate);
}

}  // namespace

bool ParseFuzzInput(const uint8_t* data, size_t size, Message* input) {
  google::protobuf::io::ArrayInputStream stream(data, static_cast<int>(size));
  Silent silent;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&silent);
  parser.SetRecursionLimit(32);
  parser.AllowPartialMessage(true);
  if (parser.Parse(&stream, input)) return true;
  input->Clear();
  return false;
}

size_t MutateFuzzInput(uint8_t* data, size_t size, size_t most, uint32_t seed,
                       Message* scratch) {
  ParseFuzzInput(data, size, scratch);
  MessageMutator mutator = MakeMutator(seed);
  // Often one change is nothing that a server notices.
  for (uint32_t i = 0; i <= seed % 3; ++i) mutator.Mutate(scratch);
  return Print(*scratch, data, most, size);
}

size_t CrossFuzzInputs(const uint8_t* a, size_t a_size, const uint8_t* b,
                       size_t b_size, uint8_t* out, size_t most, uint32_t seed,
                       Message* scratch) {
  const std::unique_ptr<Message> other(scratch->New());
  ParseFuzzInput(a, a_size, scratch);
  ParseFuzzInput(b, b_size, other.get());
  MakeMutator(seed).CrossOver(*other, scratch);
  return Print(*scratch, out, most, 0);
}

}  // namespace agg
