#include "worker_client/npz/npz.h"

#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "worker_client/npz/zip_bytes.h"
#include "worker_client/npz/zip_file.h"

namespace agg {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);
constexpr absl::string_view kSuffix = ".npy";
constexpr size_t kAlignment = 64;
constexpr size_t kPreambleBytes = 10;  // magic, version 1.0, header length

// The .npy header of format version 1.0, padded as numpy pads it.
std::string NpyHeader(const std::vector<int64_t>& shape) {
  std::string dictionary = absl::StrCat(
      "{'descr': '<f4', 'fortran_order': False, 'shape': (",
      absl::StrJoin(shape, ", "), shape.size() == 1 ? "," : "", "), }");
  const size_t used = kPreambleBytes + dictionary.size() + 1;
  dictionary.append((kAlignment - used % kAlignment) % kAlignment, ' ');
  dictionary.push_back('\n');
  std::string header = absl::StrCat(kMagic, absl::string_view("\1\0", 2));
  AppendLittleEndian<uint16_t>(static_cast<uint16_t>(dictionary.size()),
                               &header);
  return header + dictionary;
}

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(what);
}

// The text after "'key':", or empty.
absl::string_view ValueOf(absl::string_view dictionary, absl::string_view key) {
  const size_t at = dictionary.find(absl::StrCat("'", key, "'"));
  if (at == absl::string_view::npos) return absl::string_view();
  absl::string_view rest = dictionary.substr(at + key.size() + 2);
  rest = absl::StripLeadingAsciiWhitespace(rest);
  if (!absl::ConsumePrefix(&rest, ":")) return absl::string_view();
  return absl::StripLeadingAsciiWhitespace(rest);
}

// Reads "(2, 3)" and returns the number of elements.
absl::StatusOr<int64_t> ParseShape(absl::string_view text,
                                   std::vector<int64_t>* shape) {
  const size_t end = text.find(')');
  if (!absl::ConsumePrefix(&text, "(") || end == absl::string_view::npos) {
    return Bad("its header has no shape");
  }
  int64_t num_elements = 1;
  for (absl::string_view part :
       absl::StrSplit(text.substr(0, end - 1), ',', absl::SkipWhitespace())) {
    int64_t dimension;
    if (!absl::SimpleAtoi(part, &dimension) || dimension < 0 ||
        __builtin_mul_overflow(num_elements, dimension, &num_elements)) {
      return Bad("its shape is no list of sizes");
    }
    shape->push_back(dimension);
  }
  return num_elements;
}

// Splits a .npy file into header text and data.
absl::Status SplitNpy(absl::string_view file, absl::string_view* header,
                      absl::string_view* data) {
  if (!absl::StartsWith(file, kMagic) || file.size() < 12) {
    return Bad("it is no .npy file");
  }
  const int major = file[6];
  const size_t length_bytes = major == 1 ? 2 : 4;
  const uint64_t length = major == 1 ? LittleEndianAt<uint16_t>(file, 8)
                                     : LittleEndianAt<uint32_t>(file, 8);
  const size_t start = 8 + length_bytes;
  if (length > file.size() - start) return Bad("its header is cut");
  *header = file.substr(start, length);
  *data = file.substr(start + length);
  return absl::OkStatus();
}

absl::Status ParseNpy(absl::string_view file, NpzTensor* tensor) {
  absl::string_view header, data;
  absl::Status status = SplitNpy(file, &header, &data);
  if (!status.ok()) return status;
  if (!absl::StartsWith(ValueOf(header, "descr"), "'<f4'")) {
    return Bad("its dtype is not little-endian float32; convert it first");
  }
  if (!absl::StartsWith(ValueOf(header, "fortran_order"), "False")) {
    return Bad("it is in Fortran order; allowed: C order");
  }
  absl::StatusOr<int64_t> num_elements =
      ParseShape(ValueOf(header, "shape"), &tensor->shape);
  if (!num_elements.ok()) return num_elements.status();
  if (data.size() % sizeof(float) != 0 ||
      data.size() / sizeof(float) != static_cast<uint64_t>(*num_elements)) {
    return Bad(absl::StrCat("its shape needs ", *num_elements,
                            " float32, but it holds ", data.size(), " bytes"));
  }
  tensor->values.resize(*num_elements);
  if (!data.empty()) {
    std::memcpy(tensor->values.data(), data.data(), data.size());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteNpz(const std::string& path,
                      const std::vector<NpzTensor>& tensors) {
  ZipWriter writer(path);
  for (const NpzTensor& tensor : tensors) {
    const std::string header = NpyHeader(tensor.shape);
    const absl::string_view data(
        reinterpret_cast<const char*>(tensor.values.data()),
        tensor.values.size() * sizeof(float));
    writer.Add(absl::StrCat(tensor.name, kSuffix), {header, data});
  }
  return writer.Finish();
}

absl::StatusOr<std::vector<NpzTensor>> ReadNpz(const std::string& path) {
  absl::StatusOr<ZipReader> reader = ZipReader::Open(path);
  if (!reader.ok()) return reader.status();
  std::vector<NpzTensor> tensors;
  for (int i = 0; i < reader->num_entries(); ++i) {
    absl::StatusOr<std::string> contents = reader->Read(i);
    if (!contents.ok()) return contents.status();
    NpzTensor tensor;
    tensor.name = std::string(absl::StripSuffix(reader->name(i), kSuffix));
    absl::Status status = ParseNpy(*contents, &tensor);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": entry \"", reader->name(i), "\": ", status.message()));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::vector<TensorView> Views(const std::vector<NpzTensor>& tensors) {
  std::vector<TensorView> views;
  for (const NpzTensor& tensor : tensors) views.push_back(tensor.view());
  return views;
}

std::vector<MutableTensorView> MutableViews(std::vector<NpzTensor>* tensors) {
  std::vector<MutableTensorView> views;
  for (NpzTensor& tensor : *tensors) views.push_back(tensor.mutable_view());
  return views;
}

}  // namespace agg
