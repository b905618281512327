// The least and the most that each integer of the configuration can hold. That
// none of them overflows is for the cell with UndefinedBehaviorSanitizer to
// see.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/config.pb.h"
#include "server/config/options.h"

namespace agg {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using ::testing::HasSubstr;

// One that is accepted, with a message of every kind in it.
v1::JobConfig Complete() {
  v1::JobConfig config;
  config.set_workers(8);
  config.mutable_learning_rate()->set_rate(1.0);
  config.mutable_combination()->set_rule("multi_krum");
  config.mutable_combination()->mutable_krum();
  config.add_shadow_rules()->set_rule("geometric_median");
  config.mutable_shadow_rules(0)->mutable_geometric_median();
  config.mutable_metrics();
  config.mutable_round_log()->set_path("/log");
  config.mutable_round_log()->set_grams("per_tensor");
  config.mutable_checkpoint()->set_path("/checkpoints");
  v1::SecurityConfig* const security = config.mutable_security();
  security->set_shard_token_file("/shards");
  security->mutable_audit();
  security->mutable_limits();
  v1::IdentityConfig* const identity = security->add_identities();
  identity->set_name("a");
  identity->set_token_file("/a");
  identity->add_roles("worker");
  identity->mutable_limits();
  return config;
}

using Visit = std::function<void(const std::string& path, Message* message,
                                 const FieldDescriptor* field)>;

// Each integer of `message` and of the messages that are set in it. Who visits
// resets what it has changed.
void EachInteger(const std::string& path, Message* message,
                 const Visit& visit) {
  const Reflection& of = *message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* const field = message->GetDescriptor()->field(i);
    const std::string name = absl::StrCat(path, field->name());
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        if (!field->is_repeated() && of.HasField(*message, field)) {
          EachInteger(name + ".", of.MutableMessage(message, field), visit);
        }
        for (int n = 0;
             field->is_repeated() && n < of.FieldSize(*message, field); ++n) {
          EachInteger(absl::StrCat(name, "[", n, "]."),
                      of.MutableRepeatedMessage(message, field, n), visit);
        }
        break;
      case FieldDescriptor::CPPTYPE_INT32:
      case FieldDescriptor::CPPTYPE_INT64:
      case FieldDescriptor::CPPTYPE_UINT32:
      case FieldDescriptor::CPPTYPE_UINT64:
        ASSERT_FALSE(field->is_repeated()) << name;
        visit(name, message, field);
        break;
      default:
        break;
    }
  }
}

// Returns the value as it is printed; "": an unsigned field has no such one.
std::string SetExtreme(bool least, Message* message,
                       const FieldDescriptor* field) {
  const Reflection& of = *message->GetReflection();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
    const int32_t value = least ? std::numeric_limits<int32_t>::min()
                                : std::numeric_limits<int32_t>::max();
    of.SetInt32(message, field, value);
    return absl::StrCat(value);
  }
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
    const int64_t value = least ? std::numeric_limits<int64_t>::min()
                                : std::numeric_limits<int64_t>::max();
    of.SetInt64(message, field, value);
    return absl::StrCat(value);
  }
  if (least) return "";
  const uint64_t value = std::numeric_limits<uint64_t>::max();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64) {
    of.SetUInt64(message, field, value);
  } else {
    of.SetUInt32(message, field, std::numeric_limits<uint32_t>::max());
  }
  return absl::StrCat(value);
}

TEST(ExtremeNumbersTest, TheLeastIsRefusedByNameAndTheMostIsTakenOrRefused) {
  v1::JobConfig config = Complete();
  const auto complete = MakeServerOptions(WithDefaults(config));
  ASSERT_TRUE(complete.ok()) << complete.status();
  int visited = 0;
  EachInteger(
      "", &config,
      [&](const std::string& path, Message* message,
          const FieldDescriptor* field) {
        ++visited;
        for (const bool least : {true, false}) {
          const std::string value = SetExtreme(least, message, field);
          if (value.empty()) continue;
          const absl::Status status =
              MakeServerOptions(WithDefaults(config)).status();
          if (least || !status.ok()) {
            EXPECT_THAT(std::string(status.message()), HasSubstr(path + " is "))
                << value;
          }
        }
        message->GetReflection()->ClearField(message, field);
        if (path == "workers") config.set_workers(8);
      });
  EXPECT_GE(visited, 30);
}

TEST(ExtremeNumbersTest, WorkersAreNamedWithAllDigits) {
  v1::JobConfig config = Complete();
  config.set_max_workers(std::numeric_limits<int32_t>::min());
  EXPECT_THAT(
      std::string(MakeServerOptions(WithDefaults(config)).status().message()),
      HasSubstr("max_workers is -2147483648; allowed: workers (8) to "
                "512"));
}

}  // namespace
}  // namespace agg
