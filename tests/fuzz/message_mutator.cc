#include "tests/fuzz/message_mutator.h"

#include <google/protobuf/descriptor.h>

#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "server/base/utf8.h"

namespace agg {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Deep enough for every message of proto/.
constexpr int kMaxDepth = 4;
// Lists and texts that grow further only make an input slow.
constexpr int kMaxElements = 64;
constexpr size_t kMaxNewBytes = 32;

// The message and all within it.
void Collect(Message* message, std::vector<Message*>* all) {
  all->push_back(message);
  const Reflection* const reflection = message->GetReflection();
  std::vector<const FieldDescriptor*> set;
  reflection->ListFields(*message, &set);
  for (const FieldDescriptor* field : set) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      Collect(reflection->MutableMessage(message, field), all);
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
      Collect(reflection->MutableRepeatedMessage(message, field, i), all);
    }
  }
}

// Of all types that are integers for a mutation, enums and bool too.
int64_t IntegerOf(const Message& message, const FieldDescriptor* field) {
  const Reflection* const r = message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return r->GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return r->GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return r->GetUInt32(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return static_cast<int64_t>(r->GetUInt64(message, field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return r->GetBool(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return r->GetEnumValue(message, field);
    default:
      return 0;
  }
}

void PutInteger(const FieldDescriptor* field, bool add, int64_t value,
                Message* m) {
  const Reflection* const r = m->GetReflection();
  const auto i32 = static_cast<int32_t>(value);
  const auto u32 = static_cast<uint32_t>(value);
  const auto u64 = static_cast<uint64_t>(value);
  // Enums of proto3 may have any number; the next one is more often one.
  const int named = field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM
                        ? field->enum_type()->value_count()
                        : 1;
  const int number = value % 8 == 7 ? i32 : static_cast<int>(u64 % named);
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return add ? r->AddInt32(m, field, i32) : r->SetInt32(m, field, i32);
    case FieldDescriptor::CPPTYPE_INT64:
      return add ? r->AddInt64(m, field, value) : r->SetInt64(m, field, value);
    case FieldDescriptor::CPPTYPE_UINT32:
      return add ? r->AddUInt32(m, field, u32) : r->SetUInt32(m, field, u32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return add ? r->AddUInt64(m, field, u64) : r->SetUInt64(m, field, u64);
    case FieldDescriptor::CPPTYPE_BOOL:
      return add ? r->AddBool(m, field, value % 2 != 0)
                 : r->SetBool(m, field, value % 2 != 0);
    case FieldDescriptor::CPPTYPE_ENUM:
      return add ? r->AddEnumValue(m, field, number)
                 : r->SetEnumValue(m, field, number);
    default:
      return;
  }
}

}  // namespace

uint32_t MessageMutator::Below(uint32_t end) { return random_() % end; }

void MessageMutator::Mutate(Message* message) {
  std::vector<Message*> all;
  Collect(message, &all);
  for (int i = 0; i < 20; ++i) {  // some messages have no field
    Message* const chosen = all[Below(static_cast<uint32_t>(all.size()))];
    const Descriptor* const type = chosen->GetDescriptor();
    if (type->field_count() == 0) continue;
    const FieldDescriptor* const field =
        type->field(static_cast<int>(Below(type->field_count())));
    if (field->is_repeated()) return ChangeList(field, chosen);
    return ChangeField(field, chosen);
  }
}

void MessageMutator::ChangeField(const Field* field, Message* message) {
  const Reflection* const reflection = message->GetReflection();
  // The last step of an input's call must not become none again and again.
  const bool set = reflection->HasField(*message, field);
  if (set && field->containing_oneof() == nullptr && OneIn(3)) {
    return reflection->ClearField(message, field);
  }
  SetValue(field, /*add=*/false, message);
}

void MessageMutator::ChangeList(const Field* field, Message* message) {
  const Reflection* const reflection = message->GetReflection();
  const int size = reflection->FieldSize(*message, field);
  const uint32_t what = size == 0 ? 0 : Below(4);
  if (what == 0 || what == 1) {
    if (size >= kMaxElements) return reflection->RemoveLast(message, field);
    const bool repeats =
        what == 1 && field->cpp_type() == Field::CPPTYPE_MESSAGE;
    const int from = size == 0 ? 0 : static_cast<int>(Below(size));
    if (repeats) {
      const std::string bytes =
          reflection->GetRepeatedMessage(*message, field, from)
              .SerializePartialAsString();
      reflection->AddMessage(message, field)->ParsePartialFromString(bytes);
    } else {
      SetValue(field, /*add=*/true, message);
    }
    // Anywhere in the list.
    for (int i = size; i > 0 && !OneIn(size + 1); --i) {
      reflection->SwapElements(message, field, i, i - 1);
    }
  } else if (what == 2) {
    reflection->SwapElements(message, field, static_cast<int>(Below(size)),
                             size - 1);
    reflection->RemoveLast(message, field);
  } else {
    reflection->SwapElements(message, field, static_cast<int>(Below(size)),
                             static_cast<int>(Below(size)));
  }
}

void MessageMutator::Fill(Message* message, int depth) {
  const Descriptor* const type = message->GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* const field = type->field(i);
    if (!OneIn(3)) continue;
    if (field->cpp_type() != Field::CPPTYPE_MESSAGE) {
      SetValue(field, field->is_repeated(), message);
    } else if (depth < kMaxDepth) {
      const Reflection* const reflection = message->GetReflection();
      Fill(field->is_repeated() ? reflection->AddMessage(message, field)
                                : reflection->MutableMessage(message, field),
           depth + 1);
    }
  }
}

// Sets a field, or adds to a list.
void MessageMutator::SetValue(const Field* field, bool add, Message* message) {
  const Reflection* const reflection = message->GetReflection();
  switch (field->cpp_type()) {
    case Field::CPPTYPE_MESSAGE:
      return Fill(add ? reflection->AddMessage(message, field)
                      : reflection->MutableMessage(message, field),
                  0);
    case Field::CPPTYPE_STRING: {
      const std::string value =
          Bytes(add ? "" : reflection->GetString(*message, field),
                field->type() == Field::TYPE_STRING);
      return add ? reflection->AddString(message, field, value)
                 : reflection->SetString(message, field, value);
    }
    case Field::CPPTYPE_DOUBLE: {
      const double value =
          Real(add ? 0.0 : reflection->GetDouble(*message, field));
      return add ? reflection->AddDouble(message, field, value)
                 : reflection->SetDouble(message, field, value);
    }
    case Field::CPPTYPE_FLOAT: {
      const auto value = static_cast<float>(
          Real(add ? 0.0 : reflection->GetFloat(*message, field)));
      return add ? reflection->AddFloat(message, field, value)
                 : reflection->SetFloat(message, field, value);
    }
    default:
      PutInteger(field, add, Integer(add ? 0 : IntegerOf(*message, field)),
                 message);
  }
}

int64_t MessageMutator::Integer(int64_t old) {
  constexpr int64_t kEnds[] = {0,
                               1,
                               2,
                               -1,
                               std::numeric_limits<int32_t>::max(),
                               std::numeric_limits<int32_t>::min(),
                               std::numeric_limits<uint32_t>::max(),
                               std::numeric_limits<int64_t>::max(),
                               std::numeric_limits<int64_t>::min()};
  const auto bits = static_cast<uint64_t>(old);
  switch (Below(6)) {
    case 0:
      return kEnds[Below(sizeof(kEnds) / sizeof(kEnds[0]))];
    case 1:
      return static_cast<int64_t>(bits + 1);
    case 2:
      return static_cast<int64_t>(bits - 1);
    case 3:
      return static_cast<int64_t>(bits ^ (uint64_t{1} << Below(64)));
    case 4:
      return Below(8);
    default:
      return Below(1 << 20);
  }
}

double MessageMutator::Real(double old) {
  using Limits = std::numeric_limits<double>;
  const double ends[] = {0.0,
                         -0.0,
                         1.0,
                         -1.0,
                         Limits::infinity(),
                         -Limits::infinity(),
                         Limits::quiet_NaN(),
                         Limits::max(),
                         Limits::denorm_min(),
                         std::numeric_limits<float>::max(),
                         std::numeric_limits<float>::denorm_min()};
  if (OneIn(2)) return ends[Below(sizeof(ends) / sizeof(ends[0]))];
  if (OneIn(2)) return OneIn(2) ? 2.0 * old : -0.5 * old;
  uint64_t bits;
  std::memcpy(&bits, &old, sizeof(bits));
  bits ^= uint64_t{1} << Below(64);
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

std::string MessageMutator::Bytes(std::string old, bool is_text) {
  const size_t size = old.size();
  const size_t most = size + kMaxNewBytes;
  old.resize(most);
  old.resize(mutate_bytes_(reinterpret_cast<uint8_t*>(&old[0]), size, most));
  return is_text ? ValidUtf8(old) : old;
}

// --- Two messages ------------------------------------------------------------

void MessageMutator::CrossOver(const Message& other, Message* message) {
  std::unique_ptr<Message> source(other.New());
  source->CopyFrom(other);
  std::vector<Message*> parts;
  Collect(source.get(), &parts);
  const Message& part = *parts[Below(static_cast<uint32_t>(parts.size()))];
  std::vector<Message*> places;
  std::vector<Message*> all;
  Collect(message, &all);
  for (Message* candidate : all) {
    if (candidate->GetDescriptor() == part.GetDescriptor()) {
      places.push_back(candidate);
    }
  }
  // A list of such messages may also grow.
  for (Message* candidate : all) {
    const Descriptor* const type = candidate->GetDescriptor();
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor* const field = type->field(i);
      if (!field->is_repeated() ||
          field->message_type() != part.GetDescriptor() ||
          candidate->GetReflection()->FieldSize(*candidate, field) >=
              kMaxElements ||
          (!places.empty() && OneIn(2))) {
        continue;
      }
      return candidate->GetReflection()
          ->AddMessage(candidate, field)
          ->CopyFrom(part);
    }
  }
  if (places.empty()) return;
  places[Below(static_cast<uint32_t>(places.size()))]->CopyFrom(part);
}

}  // namespace agg
