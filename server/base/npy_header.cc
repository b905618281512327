// .npy headers, read and written. A parser of its own, because the header is a
// Python literal, and a file from elsewhere may say anything in it.
#include "server/base/npy_header.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace agg {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kVersionEnd = 8;  // magic, then major and minor version
// NumPy itself writes less than 200 bytes and refuses more than 10000.
constexpr uint64_t kMaxDictionaryBytes = 65536;
constexpr size_t kAlignment = 64;

// Takes the Python literal {'descr': '<f4', 'fortran_order': False,
// 'shape': (2, 3), } apart. Each Parse* returns false at the first surprise:
// what NumPy does not write may be anything, so nothing is guessed.
class HeaderParser {
 public:
  explicit HeaderParser(absl::string_view text) : text_(text) {}

  bool Parse(NpyLayout* layout) {
    if (!Take("{")) return false;
    int seen = 0;
    while (!Take("}")) {
      std::string key;
      if (!ParseString(&key) || !Take(":")) return false;
      const int bit = key == "descr"           ? 1
                      : key == "fortran_order" ? 2
                      : key == "shape"         ? 4
                                               : 0;
      if (bit == 0 || (seen & bit) != 0) return false;
      seen |= bit;
      if (bit == 1 && !ParseString(&layout->type)) return false;
      if (bit == 2 && !ParseBool(&layout->fortran_order)) return false;
      if (bit == 4 && !ParseShape(&layout->shape)) return false;
      if (!Take(",") && !Peek("}")) return false;
    }
    SkipSpace();
    return seen == 7 && text_.empty();
  }

 private:
  void SkipSpace() { text_ = absl::StripLeadingAsciiWhitespace(text_); }

  bool Peek(absl::string_view token) {
    SkipSpace();
    return text_.substr(0, token.size()) == token;
  }

  bool Take(absl::string_view token) {
    if (!Peek(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }

  bool ParseString(std::string* value) {
    const absl::string_view quote = Peek("'") ? "'" : "\"";
    if (!Take(quote)) return false;
    const size_t end = text_.find(quote);
    if (end == absl::string_view::npos) return false;
    *value = std::string(text_.substr(0, end));
    text_.remove_prefix(end + 1);
    return true;
  }

  bool ParseBool(bool* value) {
    *value = Peek("True");
    return Take("True") || Take("False");
  }

  bool ParseShape(std::vector<int64_t>* shape) {
    if (!Take("(")) return false;
    while (!Take(")")) {
      SkipSpace();
      size_t length = 0;
      while (length < text_.size() && absl::ascii_isdigit(text_[length])) {
        ++length;
      }
      int64_t dimension = 0;
      if (!absl::SimpleAtoi(text_.substr(0, length), &dimension)) return false;
      text_.remove_prefix(length);
      shape->push_back(dimension);
      if (!Take(",") && !Peek(")")) return false;
    }
    return true;
  }

  absl::string_view text_;
};

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(what);
}

// The little-endian number that these bytes are.
uint64_t NumberOf(absl::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    number = number << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return number;
}

}  // namespace

absl::StatusOr<NpyLayout> ParseNpyHeader(absl::string_view bytes,
                                         size_t* data_offset) {
  if (bytes.size() < kVersionEnd || !absl::StartsWith(bytes, kMagic)) {
    return Malformed("not a .npy file (bad magic)");
  }
  const int major = static_cast<unsigned char>(bytes[6]);
  const int minor = static_cast<unsigned char>(bytes[7]);
  if (major < 1 || major > 3 || minor != 0) {
    return Malformed(absl::StrCat(".npy format ", major, ".", minor,
                                  " is not one of 1.0, 2.0, 3.0"));
  }
  const size_t length_bytes = major == 1 ? 2 : 4;
  const size_t begin = kVersionEnd + length_bytes;
  if (bytes.size() < begin) return Malformed("truncated in the header");
  const uint64_t length = NumberOf(bytes.substr(kVersionEnd, length_bytes));
  if (length > kMaxDictionaryBytes) {
    return Malformed(absl::StrCat("header of ", length, " bytes, at most ",
                                  kMaxDictionaryBytes, " allowed"));
  }
  if (bytes.size() - begin < length) {
    return Malformed("truncated in the header");
  }
  NpyLayout layout;
  if (!HeaderParser(bytes.substr(begin, length)).Parse(&layout)) {
    return Malformed("the header is not a valid .npy dictionary");
  }
  *data_offset = begin + length;
  return layout;
}

std::string FormatNpyHeader(absl::string_view type,
                            absl::Span<const int64_t> shape) {
  std::string dictionary =
      absl::StrCat("{'descr': '", type, "', 'fortran_order': False, 'shape': (",
                   absl::StrJoin(shape, ", "),
                   // Python's tuple of one.
                   shape.size() == 1 ? "," : "", "), }");
  const size_t used = kVersionEnd + 2 + dictionary.size() + 1;
  dictionary.append((kAlignment - used % kAlignment) % kAlignment, ' ');
  dictionary.push_back('\n');
  std::string header = absl::StrCat(kMagic, absl::string_view("\1\0", 2));
  header.push_back(static_cast<char>(dictionary.size() % 256));
  header.push_back(static_cast<char>(dictionary.size() / 256));
  return header + dictionary;
}

}  // namespace agg
