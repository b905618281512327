// Columns of text for a terminal.
#ifndef AGG_WORKER_CLIENT_TOOLS_TEXT_TABLE_H_
#define AGG_WORKER_CLIENT_TOOLS_TEXT_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace agg {

class TextTable {
 public:
  struct Column {
    std::string name;
    bool right = false;    // numbers
    size_t min_width = 0;  // in characters, so that batches align
  };

  explicit TextTable(std::vector<Column> columns);

  // One cell per column, as Shown (utf8.h) has it; an empty one is shown as
  // "-".
  void AddRow(const std::vector<std::string>& cells);

  // Two spaces between columns, none at the ends of lines; a line break after
  // each row.
  std::string ToString(bool header = true) const;

 private:
  std::string Line(const std::vector<std::string>& cells,
                   const std::vector<size_t>& widths) const;

  const std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_TEXT_TABLE_H_
