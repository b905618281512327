// Any bytes as an .npz archive, and as the only member of one that is well
// made: refused, or tensors that are written as a file that reads back.
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/checkpoint/part_layout.h"
#include "worker_client/npz/npz.h"

namespace {

const std::string& Folder() {
  static const std::string* const folder = [] {
    const char* const base = getenv("TEST_TMPDIR");
    std::string pattern =
        absl::StrCat(base != nullptr ? base : "/tmp", "/npz_fuzz_XXXXXX");
    if (mkdtemp(&pattern[0]) == nullptr) __builtin_trap();
    return new std::string(pattern);
  }();
  return *folder;
}

bool Same(const agg::NpzTensor& a, const agg::NpzTensor& b) {
  return a.name == b.name && a.shape == b.shape &&
         a.values.size() == b.values.size() &&
         (a.values.empty() ||
          std::memcmp(a.values.data(), b.values.data(),
                      a.values.size() * sizeof(float)) == 0);
}

void Try(absl::string_view bytes) {
  const std::string path = Folder() + "/x.npz";
  std::ofstream(path, std::ios::binary).write(bytes.data(), bytes.size());
  const auto tensors = agg::ReadNpz(path);
  if (!tensors.ok()) return;
  const std::string copy = Folder() + "/copy.npz";
  // Two of one name, or none, can be read.
  if (!agg::WriteNpz(copy, *tensors).ok()) return;
  const auto again = agg::ReadNpz(copy);
  if (!again.ok() || again->size() != tensors->size()) __builtin_trap();
  for (size_t i = 0; i < tensors->size(); ++i) {
    if (!Same((*tensors)[i], (*again)[i])) __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  Try(bytes);
  // What follows the first '!' is the member's bytes, what is before its name.
  const size_t end = bytes.find('!');
  if (end == absl::string_view::npos) return 0;
  agg::ZipEntry entry;
  entry.name = std::string(bytes.substr(0, end));
  const absl::string_view body = bytes.substr(end + 1);
  entry.crc32 = agg::ExtendCrc32(0, body);
  entry.num_bytes = static_cast<uint32_t>(body.size());
  if (entry.name.size() > 1000) return 0;
  const std::string local = agg::ZipLocalHeader(entry);
  const std::string directory = agg::ZipDirectoryEntry(entry);
  Try(absl::StrCat(
      local, body, directory,
      agg::ZipEnd(1, local.size() + body.size(), directory.size())));
  return 0;
}
