// Writes one JSON document, nested, in the order of the calls.
#ifndef AGG_SERVER_BASE_JSON_WRITER_H_
#define AGG_SERVER_BASE_JSON_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace agg {

// Whatever the strings hold, the document is well-formed UTF-8 and may stand
// in a <script> element: bytes that are not UTF-8 are replaced, and <, > and &
// are escaped. NaN and infinities, which JSON does not have, become null.
// Calls must nest as JSON does; nothing checks it.
class JsonWriter {
 public:
  JsonWriter& BeginObject();
  JsonWriter& EndObject();
  JsonWriter& BeginArray();
  JsonWriter& EndArray();
  // Before each value in an object. `name` is a literal of ours.
  JsonWriter& Key(absl::string_view name);

  JsonWriter& String(absl::string_view value);
  JsonWriter& Bool(bool value);
  JsonWriter& Null();
  JsonWriter& Integer(int64_t value);
  // Six significant digits: for pictures.
  JsonWriter& Number(double value);
  JsonWriter& Numbers(const std::vector<double>& values);
  // `json` is a whole value.
  JsonWriter& Raw(absl::string_view json);

  // The document so far; the writer is empty again.
  std::string Take();

 private:
  void Separate();

  std::string text_;
  bool comma_ = false;  // the next value or key follows another one
};

}  // namespace agg

#endif  // AGG_SERVER_BASE_JSON_WRITER_H_
