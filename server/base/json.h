// JSON as our programs write it and read it back: nlohmann/json, and the few
// rules that all outputs share. Headers include this one (or json_fwd.hpp);
// only sources that build or read values include nlohmann/json.hpp, which takes
// seconds to compile.
#ifndef AGG_SERVER_BASE_JSON_H_
#define AGG_SERVER_BASE_JSON_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json_fwd.hpp"
#include "server/base/field_error.h"

namespace agg {

// Members keep the order in which they were added.
using Json = nlohmann::ordered_json;

// Numbers. Both write integers without a fraction (3, not 3.0), and null
// for NaN and infinities, which JSON does not have.
//
// The fewest digits that read back as the same double.
Json ExactNumber(double value);
// Six significant digits: enough for pictures, and much shorter.
Json RoundedNumber(double value);

// Each element of a list likewise.
Json ExactNumbers(const std::vector<double>& values);
Json RoundedNumbers(const std::vector<double>& values);

// Texts. Both are well-formed UTF-8: bytes of strings that are not become
// U+FFFD. Control characters and others that are not shown (utf8.h) are
// escaped.
//
// Without spaces, and safe inside a <script> element: <, > and & are escaped.
std::string CompactJson(const Json& value);
// One line, with a space after each comma and colon, for people and logs. No
// newline at the end.
std::string JsonLine(const Json& value);

// A double as JSON that reads back with its value: NaN and the infinities, for
// which JSON has no numbers, are "NaN", "Infinity", "-Infinity", as in
// protobuf's JSON. (ExactNumber writes null, for people and browsers.)
Json LosslessNumber(double value);
Json LosslessNumbers(const std::vector<double>& values);

// Reads a JSON object member by member, and collects what is wrong with it: for
// files that come back to the server, in which anything may stand. No
// exceptions: each value's type is asked for before it is read.
//
// A Take leaves its output as it was and adds a FieldError if the member is
// missing, has another type or is out of range. Members that nobody takes are
// ignored. Thread-compatible; object and errors outlive it.
class JsonMembers {
 public:
  // REQUIRES: `object` is a JSON object. `path`: in front of each member's
  // name in errors, "" or "parts[2].".
  JsonMembers(const Json& object, std::string path, FieldErrors* errors);

  // Whether the member is there: for those that may be left out.
  bool Has(const char* name) const;
  void Take(const char* name, std::string* text) const;
  void Take(const char* name, bool* truth) const;
  // Reads what LosslessNumber has made.
  void Take(const char* name, double* number) const;
  void Take(const char* name, std::vector<double>* numbers) const;
  // Reads bytes from their base64 text.
  void TakeBytes(const char* name, std::string* bytes) const;
  // Reads an integer from 0 to the most that T holds, or a list of them.
  template <typename T>
  void TakeInteger(const char* name, T* number) const {
    uint64_t wide = 0;
    if (TakeUpTo(name, Most<T>(), &wide)) *number = static_cast<T>(wide);
  }
  template <typename T>
  void TakeIntegers(const char* name, std::vector<T>* numbers) const {
    std::vector<uint64_t> wide;
    if (TakeUpTo(name, Most<T>(), &wide)) {
      numbers->assign(wide.begin(), wide.end());
    }
  }
  // Calls `read` with the members of an object, or of each object of a list, in
  // order, up to the first error.
  using Read = std::function<void(const JsonMembers& members)>;
  void TakeObject(const char* name, const Read& read) const;
  void TakeList(const char* name, const Read& read) const;

  // Adds an error that a Take cannot find by itself.
  void Add(const char* name, absl::string_view value,
           absl::string_view allowed) const;
  void Add(const absl::Status& error) const { errors_->Add(error); }

 private:
  template <typename T>
  static constexpr uint64_t Most() {
    return static_cast<uint64_t>(std::numeric_limits<T>::max());
  }
  bool TakeUpTo(const char* name, uint64_t most, uint64_t* number) const;
  bool TakeUpTo(const char* name, uint64_t most,
                std::vector<uint64_t>* numbers) const;
  // The member; or null, and an error.
  const Json* Find(const char* name, absl::string_view allowed) const;
  void AddJson(const char* name, const Json& value,
               absl::string_view allowed) const;

  const Json& object_;
  const std::string path_;
  FieldErrors* const errors_;
};

}  // namespace agg

#endif  // AGG_SERVER_BASE_JSON_H_
