// Well-formed UTF-8, where names and texts come from other processes.
#ifndef AGG_SERVER_BASE_UTF8_H_
#define AGG_SERVER_BASE_UTF8_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace agg {

// Bytes of the well-formed sequence at the start of `text` (The Unicode
// Standard, table 3-7), 1 to 4; 0 if `text` does not start with one: a stray
// byte, an overlong form, a surrogate, a code point above U+10FFFF, a sequence
// that is cut short. REQUIRES: `text` is not empty.
size_t Utf8SequenceBytes(absl::string_view text);

// `value` with every byte that is not part of well-formed UTF-8 replaced by
// U+FFFD. One bad byte in a label value would make Prometheus refuse the
// complete scrape.
std::string ValidUtf8(absl::string_view value);

// Texts that came from other processes, where people or programs read them:
// logs, audit, tables, JSON, labels. One list says what is not shown: control
// characters (U+0000 to U+001F, U+007F to U+009F), which terminals obey, and
// what has no shape of its own and changes how other characters look: format
// characters (overrides of direction, joiners, tags), separators of lines and
// paragraphs, fillers, and noncharacters.
//
// `text` with these, and bytes that are no UTF-8, as their escapes: "\n",
// "\x1b" for a byte, "\u202e", "\U000e0001". Spaces and all else stay. With
// `keep_lines` newlines stay, too.
std::string Shown(absl::string_view text, bool keep_lines = false);
// Replaces the same characters in a JSON text, whose strings may have them, by
// JSON's escapes. REQUIRES: `json` is well-formed UTF-8, and its control
// characters below U+0020 are layout.
std::string ShownInJson(absl::string_view json);

}  // namespace agg

#endif  // AGG_SERVER_BASE_UTF8_H_
