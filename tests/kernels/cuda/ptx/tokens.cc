#include "tests/kernels/cuda/ptx/tokens.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace agg::ptx {
namespace {

bool IsOfWord(char c) {
  return absl::ascii_isalnum(c) || c == '_' || c == '$' || c == '%' || c == '.';
}

// How long the comment, the space or the line of debugging information is that
// the text begins with; 0: none.
size_t SkippedLength(absl::string_view text) {
  if (absl::ascii_isspace(text[0])) return 1;
  if (absl::StartsWith(text, "//") || absl::StartsWith(text, ".loc") ||
      absl::StartsWith(text, ".file")) {
    return std::min(text.find('\n'), text.size());
  }
  if (!absl::StartsWith(text, "/*")) return 0;
  const size_t end = text.find("*/", 2);
  return end == absl::string_view::npos ? text.size() : end + 2;
}

size_t TokenLength(absl::string_view text) {
  if (text[0] == '"') {
    const size_t end = text.find('"', 1);
    return end == absl::string_view::npos ? text.size() : end + 1;
  }
  if (!IsOfWord(text[0])) return 1;
  return std::find_if_not(text.begin(), text.end(), IsOfWord) - text.begin();
}

}  // namespace

std::vector<Token> Tokenize(absl::string_view text) {
  std::vector<Token> tokens;
  int line = 1;
  while (!text.empty()) {
    const size_t skipped = SkippedLength(text);
    const size_t length = skipped > 0 ? skipped : TokenLength(text);
    if (skipped == 0) tokens.push_back({text.substr(0, length), line});
    line +=
        static_cast<int>(std::count(text.begin(), text.begin() + length, '\n'));
    text.remove_prefix(length);
  }
  tokens.push_back({"", line});
  return tokens;
}

}  // namespace agg::ptx
