// Widths count characters, not bytes. What is not printable is shown
// escaped: names come from the network.
#include "worker_client/tools/text_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/utf8.h"

namespace agg {
namespace {

// `text` is printable, hence well-formed UTF-8: a character has one byte that
// does not continue another one.
size_t NumCharacters(absl::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

TextTable::TextTable(std::vector<Column> columns)
    : columns_(std::move(columns)) {}

void TextTable::AddRow(const std::vector<std::string>& cells) {
  std::vector<std::string> row;
  for (const std::string& cell : cells) {
    row.push_back(cell.empty() ? "-" : Shown(cell));
  }
  row.resize(columns_.size());
  rows_.push_back(std::move(row));
}

std::string TextTable::Line(const std::vector<std::string>& cells,
                            const std::vector<size_t>& widths) const {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(widths[i] - NumCharacters(cells[i]), ' ');
    absl::StrAppend(&line, i == 0 ? "" : "  ", columns_[i].right ? padding : "",
                    cells[i], columns_[i].right ? "" : padding);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string TextTable::ToString(bool header) const {
  std::vector<std::string> names;
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    names.push_back(columns_[i].name);
    size_t width = std::max(columns_[i].min_width, columns_[i].name.size());
    for (const std::vector<std::string>& row : rows_) {
      width = std::max(width, NumCharacters(row[i]));
    }
    widths.push_back(width);
  }
  std::string text = header ? Line(names, widths) : "";
  for (const std::vector<std::string>& row : rows_) {
    absl::StrAppend(&text, Line(row, widths));
  }
  return text;
}

}  // namespace agg
