// The fields of a configuration, each in one row: its path, what it is if left
// out, what it may be, and what it sets.
#ifndef AGG_SERVER_CONFIG_CONFIG_FIELDS_H_
#define AGG_SERVER_CONFIG_CONFIG_FIELDS_H_

#include <google/protobuf/message.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/field_error.h"

namespace agg {

// Conditions of numbers.
using NumberCheck = std::function<bool(double value)>;
NumberCheck AtLeast(double least);  // and finite
NumberCheck Between(double least, double most);
NumberCheck Positive();  // and finite

// Whether a text may be a file's path, or "": none.
inline bool IsFilePath(const std::string& text) {
  return text.empty() || text.back() != '/';
}

// Reads a message row by row. `*target` of a row has the default, which a field
// that is left out gets, in the message, too, so that people see it; a field
// that may be gets into `*target`, and for another one there is a FieldError.
// (Left out is what is 0, "", or not there where the field is optional.) Each
// row says whether the field may be. Thread-compatible.
class ConfigFields {
 public:
  // `prefix`: of the paths in errors, "" or "shadow_rules[2].". Message and
  // errors outlive it.
  ConfigFields(google::protobuf::Message* message, std::string prefix,
               FieldErrors* errors)
      : message_(message), prefix_(std::move(prefix)), errors_(errors) {}

  // REQUIRES everywhere: `name` leads to a field of the target's type, by way
  // of messages: "metrics.port". Those on the way are made.
  //
  // T: int32_t, int64_t, uint64_t, double.
  template <typename T>
  bool Number(absl::string_view name, T* target,
              const NumberCheck& may_be = nullptr,
              absl::string_view allowed = "");
  // Seconds, whose field is a double.
  bool Seconds(absl::string_view name, absl::Duration* target,
               const NumberCheck& may_be, absl::string_view allowed);
  bool Switch(absl::string_view name, bool* target);
  using TextCheck = std::function<bool(const std::string& text)>;
  bool Text(absl::string_view name, std::string* target,
            const TextCheck& may_be, absl::string_view allowed);

  // A text that stands for a value, of which there are a few.
  template <typename T>
  using Names = std::vector<std::pair<const char*, T>>;
  template <typename T>
  bool Choice(absl::string_view name, const Names<T>& names, T* target) {
    std::string text;
    std::string allowed;
    for (const auto& [of, value] : names) {
      if (value == *target && text.empty()) text = of;
      absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", Quoted(of));
    }
    const auto take = [&](const std::string& given) {
      for (const auto& [of, value] : names) {
        if (given != of) continue;
        *target = value;
        return true;
      }
      return false;
    };
    return Text(name, &text, take, allowed);
  }
  // A text that `parse` reads, which has errors of its own.
  template <typename T>
  bool Name(absl::string_view name, absl::string_view otherwise,
            absl::StatusOr<T> (*parse)(absl::string_view field,
                                       absl::string_view name),
            T* target) {
    std::string text(otherwise);
    Text(name, &text, nullptr, "");
    return errors_->Take(parse(absl::StrCat(prefix_, name), text), target);
  }

 private:
  google::protobuf::Message* const message_;
  const std::string prefix_;
  FieldErrors* const errors_;
};

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_CONFIG_FIELDS_H_
