#include "tests/kernels/cuda/ptx/kernel_modules.h"

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/kernels/cuda/ptx/decoder.h"
#include "tests/kernels/cuda/ptx/module.h"
#include "tests/kernels/cuda/ptx/parser.h"
#include "tests/kernels/cuda/ptx/program.h"

namespace agg::ptx {
namespace {

absl::StatusOr<Module> ReadModule(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return absl::NotFoundError(absl::StrCat("no file '", path, "' of AGG_PTX"));
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  auto module = Parse(text);
  if (module.ok()) return module;
  return absl::Status(module.status().code(),
                      absl::StrCat(path, ": ", module.status().message()));
}

struct Modules {
  std::mutex mutex;
  absl::Status status;
  std::vector<std::unique_ptr<const Module>> modules;
  // By target, and name without hashes.
  std::map<std::pair<int, std::string>, std::pair<const Module*, const Entry*>>
      entries;
  std::map<std::pair<int, std::string>, Program> programs;
};

Modules& AllModules() {
  static Modules* const all = [] {
    auto* const made = new Modules;
    const char* const paths = std::getenv("AGG_PTX");
    for (const auto& path :
         absl::StrSplit(paths == nullptr ? "" : paths, ' ')) {
      auto module = ReadModule(std::string(path));
      made->status.Update(module.status());
      if (!module.ok()) continue;
      made->modules.push_back(
          std::make_unique<const Module>(*std::move(module)));
      const Module* const kept = made->modules.back().get();
      for (const auto& [name, entry] : kept->entries) {
        made->entries[{kept->target, WithoutHashes(name)}] = {kept, &entry};
      }
    }
    return made;
  }();
  return *all;
}

}  // namespace

std::string WithoutHashes(std::string name) {
  size_t at = 0;
  for (const absl::string_view before : {"_GLOBAL__N__", "_cu_"}) {
    at = name.find(std::string(before), at);
    if (at == std::string::npos) break;
    at += before.size();
    for (const size_t end = at + 8; at < end && at < name.size(); ++at) {
      if (absl::ascii_isxdigit(name[at])) name[at] = '0';
    }
  }
  return name;
}

absl::StatusOr<const Program*> FindKernel(int target, const std::string& name) {
  Modules& all = AllModules();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (!all.status.ok()) return all.status;
  const auto known = all.programs.find({target, name});
  if (known != all.programs.end()) return &known->second;
  const auto found = all.entries.find({target, name});
  if (found == all.entries.end()) {
    return absl::NotFoundError(
        absl::StrCat("no kernel ", name, " for sm_", target));
  }
  auto program = Decode(*found->second.first, *found->second.second);
  if (!program.ok()) return program.status();
  return &(all.programs[{target, name}] = *std::move(program));
}

}  // namespace agg::ptx
