// Builds one line of JSON, member by member.
#ifndef AGG_SERVER_BASE_JSON_LINE_H_
#define AGG_SERVER_BASE_JSON_LINE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace agg {

// Numbers have the fewest digits that read back as the same double; NaN and
// infinities, which JSON does not have, become null. Names and strings are
// escaped. Members keep their order.
class JsonLine {
 public:
  void Add(absl::string_view name, double value);
  void Add(absl::string_view name, int value);
  void AddBool(absl::string_view name, bool value);
  void AddString(absl::string_view name, absl::string_view value);
  void AddNull(absl::string_view name);
  void AddList(absl::string_view name, absl::Span<const double> values);
  void AddMatrix(absl::string_view name,
                 const std::vector<std::vector<double>>& rows);

  // The object, without a newline.
  std::string Finish() const;

 private:
  void AddRaw(absl::string_view name, absl::string_view value);

  std::string members_;
};

}  // namespace agg

#endif  // AGG_SERVER_BASE_JSON_LINE_H_
