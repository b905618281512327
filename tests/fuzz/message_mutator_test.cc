#include "tests/fuzz/message_mutator.h"

#include <google/protobuf/util/message_differencer.h>

#include <set>
#include <string>

#include "gtest/gtest.h"
#include "proto/agg.pb.h"
#include "proto/control.pb.h"

namespace agg {
namespace {

using google::protobuf::util::MessageDifferencer;

// As libFuzzer's, but poor: sets the first byte, or adds one.
size_t AddOne(uint8_t* data, size_t size, size_t most) {
  if (size > 0) data[0] = 0xff;
  if (size < most) data[size++] = 'x';
  return size;
}

TEST(MessageMutatorTest, TheSameSeedMakesTheSameChanges) {
  v1::JoinRequest a, b, other;
  bool differs = false;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    MessageMutator(seed, AddOne).Mutate(&a);
    MessageMutator(seed, AddOne).Mutate(&b);
    MessageMutator(seed + 1000, AddOne).Mutate(&other);
    ASSERT_EQ(a.SerializeAsString(), b.SerializeAsString()) << seed;
    differs = differs || a.SerializeAsString() != other.SerializeAsString();
  }
  EXPECT_TRUE(differs);
}

TEST(MessageMutatorTest, EveryFieldIsSetSometimesAndEveryPhaseComes) {
  std::set<int> fields, phases;
  v1::PhaseRequest request;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    MessageMutator(seed, AddOne).Mutate(&request);
    phases.insert(request.phase_case());
    const auto* const type = request.GetDescriptor();
    for (int i = 0; i < type->field_count(); ++i) {
      const auto* const field = type->field(i);
      const auto* const reflection = request.GetReflection();
      if (field->is_repeated() ? reflection->FieldSize(request, field) > 0
                               : reflection->HasField(request, field)) {
        fields.insert(field->number());
      }
    }
  }
  EXPECT_EQ(static_cast<int>(fields.size()),
            v1::PhaseRequest::descriptor()->field_count());
  // The message without a phase may have come, or not.
  phases.erase(0);
  EXPECT_EQ(static_cast<int>(phases.size()),
            v1::PhaseRequest::descriptor()->oneof_decl(0)->field_count());
}

TEST(MessageMutatorTest, MessagesStayWellFormedAndBounded) {
  v1::JoinRequest request;
  for (uint32_t seed = 0; seed < 5000; ++seed) {
    MessageMutator(seed, AddOne).Mutate(&request);
  }
  v1::JoinRequest parsed;
  // Fails for a string that is not UTF-8.
  ASSERT_TRUE(parsed.ParseFromString(request.SerializeAsString()));
  EXPECT_LE(parsed.manifest().tensors_size(), 64);
}

TEST(MessageMutatorTest, APartOfTheOtherComesOver) {
  v1::Manifest from, to;
  from.add_tensors()->set_name("of the other");
  to.add_tensors()->set_name("own");
  int taken = 0, added = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    v1::Manifest crossed = to;
    MessageMutator(seed, AddOne).CrossOver(from, &crossed);
    if (crossed.tensors_size() == 2) {
      ++added;
      EXPECT_TRUE(
          MessageDifferencer::Equals(crossed.tensors(1), from.tensors(0)));
    } else if (crossed.tensors(0).name() == "of the other") {
      ++taken;
    }
  }
  EXPECT_GT(taken, 0);
  EXPECT_GT(added, 0);
}

}  // namespace
}  // namespace agg
