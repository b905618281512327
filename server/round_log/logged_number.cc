// Finds fields by their names, through protobuf's reflection: a list of them
// here would have to be kept equal to the table of numbers.
#include "server/round_log/logged_number.h"

#include <limits>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace agg {
namespace {

using google::protobuf::FieldDescriptor;

// Null: the number is in `numbers`.
const FieldDescriptor* OwnField(const RoundNumber& number) {
  const FieldDescriptor* field =
      v1::RoundLogRecord::descriptor()->FindFieldByName(number.name);
  const bool is_number = field != nullptr && !field->is_repeated() &&
                         field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
  return is_number ? field : nullptr;
}

}  // namespace

void LogNumber(const RoundNumber& number, double value,
               v1::RoundLogRecord* record) {
  const FieldDescriptor* field = OwnField(number);
  if (field == nullptr) {
    (*record->mutable_numbers())[number.name] = value;
  } else {
    record->GetReflection()->SetDouble(record, field, value);
  }
}

double LoggedNumber(const RoundNumber& number,
                    const v1::RoundLogRecord& record) {
  const FieldDescriptor* field = OwnField(number);
  if (field != nullptr) return record.GetReflection()->GetDouble(record, field);
  const auto entry = record.numbers().find(number.name);
  return entry == record.numbers().end()
             ? std::numeric_limits<double>::quiet_NaN()
             : entry->second;
}

}  // namespace agg
