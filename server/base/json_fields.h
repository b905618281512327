// One list of a record's fields, from which both its JSON and what reads that
// JSON come.
//
// A list is a function `template <typename V> void XFields(V* v, X* x)` that
// names the members of X's object to a visitor, in their order:
//
//   v->Field("rank", &x->rank);
//   if (v->There("name", !x->name.empty())) v->Field("name", &x->name);
//
// Only sources include this: it takes nlohmann/json.hpp along.
#ifndef AGG_SERVER_BASE_JSON_FIELDS_H_
#define AGG_SERVER_BASE_JSON_FIELDS_H_

#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "server/base/field_error.h"
#include "server/base/json.h"

namespace agg {

// The visitor that makes a record's object. It changes nothing of the record,
// though lists get it as one that can be changed.
class JsonWriter {
 public:
  static constexpr bool kReads = false;

  // A text, a truth, an integer from 0 on, a double (LosslessNumber), or a list
  // of numbers. Of an optional that is not set: an empty one.
  template <typename T>
  void Field(const char* name, const T* value) {
    json_[name] = Value(*value);
  }
  // Bytes as their base64 text.
  void Bytes(const char* name, const std::string* bytes) {
    json_[name] = absl::Base64Escape(*bytes);
  }
  // An enumerator by its number, from 0 to `last`.
  template <typename E>
  void Enum(const char* name, E /*last*/, const E* value) {
    json_[name] = static_cast<int>(*value);
  }
  // A value by its name; `read` takes the name and returns an error or OK.
  template <typename Read>
  void Name(const char* name, absl::string_view text, const Read& /*read*/) {
    json_[name] = std::string(text);
  }
  // An object, whose members `fields` (v) lists.
  template <typename Fields>
  void Object(const char* name, const Fields& fields) {
    JsonWriter inner;
    fields(&inner);
    json_[name] = inner.Take();
  }
  // A list of objects, whose members `fields` (v, element) lists.
  template <typename T, typename Fields>
  void List(const char* name, std::vector<T>* elements, const Fields& fields) {
    Json list = Json::array();
    for (T& element : *elements) {
      JsonWriter inner;
      fields(&inner, &element);
      list.push_back(inner.Take());
    }
    json_[name] = std::move(list);
  }
  // A list of one object, or of none.
  template <typename T, typename Fields>
  void AtMostOne(const char* name, std::optional<T>* value,
                 const Fields& fields) {
    std::vector<T> elements;
    if (value->has_value()) elements.push_back(**value);
    List(name, &elements, fields);
  }
  // A list of objects that begin with the key.
  template <typename K, typename T, typename Fields>
  void Map(const char* name, const char* key, std::map<K, T>* map,
           const Fields& fields) {
    std::vector<std::pair<K, T>> entries(map->begin(), map->end());
    List(name, &entries, [&](JsonWriter* v, std::pair<K, T>* entry) {
      v->Field(key, &entry->first);
      fields(v, &entry->second);
    });
  }
  // Whether a member that may be left out is there: in a record where `is_set`.
  bool There(const char* /*name*/, bool is_set) const { return is_set; }
  // A reader has an error where `good` is false.
  void Check(bool /*good*/, const char* /*name*/, absl::string_view /*value*/,
             absl::string_view /*allowed*/) const {}

  Json Take() { return std::move(json_); }

 private:
  static Json Value(double value) { return LosslessNumber(value); }
  static Json Value(const std::vector<double>& values) {
    return LosslessNumbers(values);
  }
  template <typename T>
  static Json Value(const std::optional<T>& value) {
    return Value(value.value_or(T()));
  }
  template <typename T>
  static Json Value(const T& value) {
    return Json(value);
  }

  Json json_ = Json::object();
};

// The visitor that fills a record from an object. Errors as JsonMembers has
// them.
class JsonReader {
 public:
  static constexpr bool kReads = true;

  explicit JsonReader(const JsonMembers* members) : members_(members) {}

  template <typename T>
  void Field(const char* name, T* value) const {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      members_->TakeInteger(name, value);
    } else {
      members_->Take(name, value);
    }
  }
  template <typename T>
  void Field(const char* name, std::vector<T>* values) const {
    if constexpr (std::is_integral_v<T>) {
      members_->TakeIntegers(name, values);
    } else {
      members_->Take(name, values);
    }
  }
  template <typename T>
  void Field(const char* name, std::optional<T>* value) const {
    Field(name, &value->emplace());
  }
  void Bytes(const char* name, std::string* bytes) const {
    members_->TakeBytes(name, bytes);
  }
  template <typename E>
  void Enum(const char* name, E last, E* value) const {
    uint8_t number = 0;
    members_->TakeInteger(name, &number);
    if (number <= static_cast<uint8_t>(last)) {
      *value = static_cast<E>(number);
    } else {
      members_->Add(name, absl::StrCat(number),
                    absl::StrCat("0 to ", static_cast<int>(last)));
    }
  }
  template <typename Read>
  void Name(const char* name, absl::string_view /*text*/,
            const Read& read) const {
    std::string text;
    members_->Take(name, &text);
    const absl::Status status = read(text);
    if (!status.ok()) members_->Add(status);
  }
  template <typename Fields>
  void Object(const char* name, const Fields& fields) const {
    members_->TakeObject(name, [&](const JsonMembers& members) {
      JsonReader inner(&members);
      fields(&inner);
    });
  }
  template <typename T, typename Fields>
  void List(const char* name, std::vector<T>* elements,
            const Fields& fields) const {
    members_->TakeList(name, [&](const JsonMembers& members) {
      JsonReader inner(&members);
      elements->emplace_back();
      fields(&inner, &elements->back());
    });
  }
  template <typename T, typename Fields>
  void AtMostOne(const char* name, std::optional<T>* value,
                 const Fields& fields) const {
    std::vector<T> elements;
    List(name, &elements, fields);
    if (!elements.empty()) *value = std::move(elements.back());
  }
  template <typename K, typename T, typename Fields>
  void Map(const char* name, const char* key, std::map<K, T>* map,
           const Fields& fields) const {
    std::vector<std::pair<K, T>> entries;
    List(name, &entries, [&](JsonReader* v, std::pair<K, T>* entry) {
      v->Field(key, &entry->first);
      fields(v, &entry->second);
    });
    for (auto& [number, value] : entries) (*map)[number] = std::move(value);
  }
  bool There(const char* name, bool /*is_set*/) const {
    return members_->Has(name);
  }
  void Check(bool good, const char* name, absl::string_view value,
             absl::string_view allowed) const {
    if (!good) members_->Add(name, value, allowed);
  }

 private:
  const JsonMembers* const members_;
};

// The object of a record whose members `fields` (v, record) lists.
template <typename Record, typename Fields>
Json JsonOf(const Record& record, const Fields& fields) {
  JsonWriter writer;
  fields(&writer, const_cast<Record*>(&record));  // which it does not change
  return writer.Take();
}

// Reads what JsonOf has made into `*record`. DATA_LOSS with `not_json`: the
// text is no JSON object. INVALID_ARGUMENT: a line for each field that is
// missing, of another type or out of range; `path` is in front of their names.
template <typename Record, typename Fields>
absl::Status ReadJson(absl::string_view text, absl::string_view not_json,
                      const char* path, const Fields& fields, Record* record) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr,
                                /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::DataLossError(not_json);
  FieldErrors errors;
  const JsonMembers members(json, path, &errors);
  JsonReader reader(&members);
  fields(&reader, record);
  return errors.empty() ? absl::OkStatus() : errors.status();
}

}  // namespace agg

#endif  // AGG_SERVER_BASE_JSON_FIELDS_H_
