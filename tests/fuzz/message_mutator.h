// Changes protobuf messages at random, by their descriptors: what a fuzz target
// tries are messages, and not bytes that no parser takes.
#ifndef AGG_TESTS_FUZZ_MESSAGE_MUTATOR_H_
#define AGG_TESTS_FUZZ_MESSAGE_MUTATOR_H_

#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>

namespace agg {

// Makes the same changes with the same seed of the same bytes. Not thread-safe.
class MessageMutator {
 public:
  // Changes some of `data`, and its size up to `most`; returns the new size.
  // LLVMFuzzerMutate is one.
  using MutateBytes =
      std::function<size_t(uint8_t* data, size_t size, size_t most)>;

  MessageMutator(uint32_t seed, MutateBytes mutate_bytes)
      : random_(seed), mutate_bytes_(std::move(mutate_bytes)) {}

  // One change, somewhere in the message: a field set, cleared or changed, or
  // an element of a list added, removed, repeated or moved. Strings stay UTF-8.
  void Mutate(google::protobuf::Message* message);
  // A part of `other` takes the place of one of its type in *message, or is
  // added to a list of that type. REQUIRES: both are of one type.
  void CrossOver(const google::protobuf::Message& other,
                 google::protobuf::Message* message);

 private:
  using Message = google::protobuf::Message;
  using Field = google::protobuf::FieldDescriptor;

  // 0 to `end` - 1; `end` is at least 1.
  uint32_t Below(uint32_t end);
  bool OneIn(uint32_t n) { return Below(n) == 0; }

  void ChangeField(const Field* field, Message* message);
  void ChangeList(const Field* field, Message* message);
  void SetValue(const Field* field, bool add, Message* message);
  // Gives the fields of a message that is new values, some of them.
  void Fill(Message* message, int depth);

  int64_t Integer(int64_t old);
  double Real(double old);
  std::string Bytes(std::string old, bool is_text);

  std::mt19937 random_;
  const MutateBytes mutate_bytes_;
};

}  // namespace agg

#endif  // AGG_TESTS_FUZZ_MESSAGE_MUTATOR_H_
