// Feeds every file of the given files and folders to a fuzz target, and the
// empty input first: makes the corpus an ordinary test for any compiler.
// Arguments that begin with '-' (libFuzzer's options) are ignored.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t num_bytes);

namespace {

void RunFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string input((std::istreambuf_iterator<char>(file)),
                          std::istreambuf_iterator<char>());
  std::printf("%s (%zu bytes)\n", path.c_str(), input.size());
  std::fflush(stdout);  // Names the culprit if the target crashes.
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()),
                         input.size());
}

}  // namespace

int main(int argc, char** argv) {
  const uint8_t nothing = 0;
  LLVMFuzzerTestOneInput(&nothing, 0);
  int num_files = 0;
  for (int i = 1; i < argc; ++i) {
    if (argv[i][0] == '-') continue;
    if (!std::filesystem::is_directory(argv[i])) {
      RunFile(argv[i]);
      ++num_files;
      continue;
    }
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(argv[i])) {
      if (entry.is_directory()) continue;
      RunFile(entry.path());
      ++num_files;
    }
  }
  std::printf("%d inputs and the empty one\n", num_files);
  return num_files > 0 ? 0 : 1;
}
