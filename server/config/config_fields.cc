// Finds fields by protobuf's reflection, so that a row needs no more than the
// name.
#include "server/config/config_fields.h"

#include <google/protobuf/descriptor.h>

#include <cstdint>

#include "absl/strings/str_split.h"
#include "server/base/dcheck.h"

namespace agg {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

struct Place {
  Message* message;
  const FieldDescriptor* field;
};

Place Find(Message* message, absl::string_view name) {
  const FieldDescriptor* field = nullptr;
  for (absl::string_view part : absl::StrSplit(name, '.')) {
    if (field != nullptr) {
      message = message->GetReflection()->MutableMessage(message, field);
    }
    field = message->GetDescriptor()->FindFieldByName(std::string(part));
    AGG_DCHECK(field != nullptr);
  }
  return {message, field};
}

// Reads a field into *value, and writes it.
void Get(const Place& at, int32_t* value) {
  *value = at.message->GetReflection()->GetInt32(*at.message, at.field);
}
void Get(const Place& at, int64_t* value) {
  *value = at.message->GetReflection()->GetInt64(*at.message, at.field);
}
void Get(const Place& at, uint64_t* value) {
  *value = at.message->GetReflection()->GetUInt64(*at.message, at.field);
}
void Get(const Place& at, double* value) {
  *value = at.message->GetReflection()->GetDouble(*at.message, at.field);
}
void Get(const Place& at, bool* value) {
  *value = at.message->GetReflection()->GetBool(*at.message, at.field);
}
void Get(const Place& at, std::string* value) {
  *value = at.message->GetReflection()->GetString(*at.message, at.field);
}
void Set(const Place& at, int32_t value) {
  at.message->GetReflection()->SetInt32(at.message, at.field, value);
}
void Set(const Place& at, int64_t value) {
  at.message->GetReflection()->SetInt64(at.message, at.field, value);
}
void Set(const Place& at, uint64_t value) {
  at.message->GetReflection()->SetUInt64(at.message, at.field, value);
}
void Set(const Place& at, double value) {
  at.message->GetReflection()->SetDouble(at.message, at.field, value);
}
void Set(const Place& at, bool value) {
  at.message->GetReflection()->SetBool(at.message, at.field, value);
}
void Set(const Place& at, const std::string& value) {
  at.message->GetReflection()->SetString(at.message, at.field, value);
}

// The field's value, or the default, which it then has.
template <typename T>
T Completed(Message* message, absl::string_view name, const T& otherwise) {
  const Place at = Find(message, name);
  T value{};
  Get(at, &value);
  const bool is_left_out =
      at.field->has_presence()
          ? !at.message->GetReflection()->HasField(*at.message, at.field)
          : value == T{};
  if (!is_left_out) return value;
  Set(at, otherwise);
  return otherwise;
}

}  // namespace

NumberCheck AtLeast(double least) {
  return [least](double value) { return IsFiniteAtLeast(value, least); };
}

NumberCheck Between(double least, double most) {
  return
      [least, most](double value) { return value >= least && value <= most; };
}

NumberCheck Positive() {
  return [](double value) { return IsFinitePositive(value); };
}

template <typename T>
bool ConfigFields::Number(absl::string_view name, T* target,
                          const NumberCheck& may_be,
                          absl::string_view allowed) {
  const T value = Completed(message_, name, *target);
  if (may_be != nullptr && !may_be(static_cast<double>(value))) {
    errors_->Add(
        FieldError(absl::StrCat(prefix_, name), absl::StrCat(value), allowed));
    return false;
  }
  *target = value;
  return true;
}

template bool ConfigFields::Number(absl::string_view, int32_t*,
                                   const NumberCheck&, absl::string_view);
template bool ConfigFields::Number(absl::string_view, int64_t*,
                                   const NumberCheck&, absl::string_view);
template bool ConfigFields::Number(absl::string_view, uint64_t*,
                                   const NumberCheck&, absl::string_view);
template bool ConfigFields::Number(absl::string_view, double*,
                                   const NumberCheck&, absl::string_view);

bool ConfigFields::Seconds(absl::string_view name, absl::Duration* target,
                           const NumberCheck& may_be,
                           absl::string_view allowed) {
  double seconds = absl::ToDoubleSeconds(*target);
  if (!Number(name, &seconds, may_be, allowed)) return false;
  *target = absl::Seconds(seconds);
  return true;
}

bool ConfigFields::Switch(absl::string_view name, bool* target) {
  *target = Completed(message_, name, *target);
  return true;
}

bool ConfigFields::Text(absl::string_view name, std::string* target,
                        const TextCheck& may_be, absl::string_view allowed) {
  *target = Completed(message_, name, *target);
  if (may_be == nullptr || may_be(*target)) return true;
  errors_->Add(
      FieldError(absl::StrCat(prefix_, name), Quoted(*target), allowed));
  return false;
}

}  // namespace agg
