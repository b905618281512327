// Unpacks the file, checks every number in it, and shuffles with a generator
// of its own, so that all machines see the same order.
#include "worker_client/examples/digits_data.h"

#include <zlib.h>

#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "server/base/status_macros.h"

namespace agg {
namespace {

constexpr int kMaxPixel = 16;
constexpr size_t kMaxFileBytes = size_t{64} << 20;

absl::StatusOr<std::string> ReadText(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) {
    return absl::NotFoundError(absl::StrCat("cannot open ", path));
  }
  std::string text;
  std::vector<char> piece(1 << 16);
  int bytes = 0;
  do {
    bytes = gzread(file, piece.data(), static_cast<unsigned>(piece.size()));
    if (bytes > 0) text.append(piece.data(), bytes);
  } while (bytes > 0 && text.size() < kMaxFileBytes);
  // zlib notices a file that was cut off only when it is closed.
  if (gzclose(file) != Z_OK || bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is damaged: it does not unpack"));
  }
  return text;
}

bool ParseLine(absl::string_view line, DigitsData* data) {
  int fields = 0;
  for (absl::string_view field : absl::StrSplit(line, ',')) {
    int value;
    const bool is_label = fields == kDigitPixels;
    const int limit = is_label ? kDigitClasses - 1 : kMaxPixel;
    if (fields > kDigitPixels || !absl::SimpleAtoi(field, &value) ||
        value < 0 || value > limit) {
      return false;
    }
    if (is_label) {
      data->labels.push_back(value);
    } else {
      data->pixels.push_back(static_cast<float>(value) / kMaxPixel);
    }
    ++fields;
  }
  return fields == kDigitPixels + 1;
}

}  // namespace

DigitsData DigitsData::Range(int begin, int end) const {
  DigitsData part;
  part.pixels.assign(pixels.begin() + begin * kDigitPixels,
                     pixels.begin() + end * kDigitPixels);
  part.labels.assign(labels.begin() + begin, labels.begin() + end);
  return part;
}

absl::StatusOr<DigitsData> ReadDigits(const std::string& path) {
  AGG_ASSIGN_OR_RETURN(std::string text, ReadText(path));
  DigitsData data;
  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    if (line.empty()) continue;
    if (!ParseLine(line, &data)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ", line ", line_number, ": allowed are ", kDigitPixels,
          " pixels 0..", kMaxPixel, " and a label 0..", kDigitClasses - 1));
    }
  }
  return data;
}

std::vector<int> EpochOrder(int num_examples, uint64_t seed, int epoch) {
  std::vector<int> order(num_examples);
  std::iota(order.begin(), order.end(), 0);
  SplitMix random(seed, static_cast<uint64_t>(epoch) + 1);
  for (int i = num_examples - 1; i > 0; --i) {
    std::swap(order[i], order[random.Below(static_cast<uint32_t>(i) + 1)]);
  }
  return order;
}

}  // namespace agg
