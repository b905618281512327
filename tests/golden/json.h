// A small JSON reader for tests: golden values and JSON lines.
#ifndef AGG_TESTS_GOLDEN_JSON_H_
#define AGG_TESTS_GOLDEN_JSON_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace agg {

// One JSON value. Accessors of the wrong kind or an absent member end the test
// process with a message: a test has nothing to go on with.
class Json {
 public:
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  // Strict JSON, plus the literals NaN, Infinity and -Infinity as Python's
  // json module writes them. Strings: no \u escapes.
  static absl::StatusOr<Json> Parse(absl::string_view text);
  // Reads and parses a file, or ends the process.
  static Json FromFile(const std::string& path);

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool boolean() const;
  double number() const;
  const std::string& string() const;
  const std::vector<Json>& array() const;
  // In the order of the text.
  const std::vector<std::pair<std::string, Json>>& members() const;

  bool Has(absl::string_view name) const;
  const Json& operator[](absl::string_view name) const;
  const Json& operator[](int index) const;

  std::vector<double> numbers() const;              // of numbers
  std::vector<std::vector<double>> matrix() const;  // of arrays of numbers

 private:
  friend class JsonParser;

  Kind kind_ = Kind::kNull;
  bool boolean_ = false;
  double number_ = 0.0;
  std::string string_;
  std::vector<Json> array_;
  std::vector<std::pair<std::string, Json>> members_;
};

}  // namespace agg

#endif  // AGG_TESTS_GOLDEN_JSON_H_
