#include "tests/kernels/cuda/ptx/kernel_modules.h"

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
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
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
    }
    return made;
  }();
  return *all;
}

}  // namespace

absl::StatusOr<const Program*> FindKernel(int target, const std::string& name) {
  Modules& all = AllModules();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (!all.status.ok()) return all.status;
  const auto known = all.programs.find({target, name});
  if (known != all.programs.end()) return &known->second;
  for (const auto& module : all.modules) {
    const auto entry = module->entries.find(name);
    if (module->target != target || entry == module->entries.end()) continue;
    auto program = Decode(*module, entry->second);
    if (!program.ok()) return program.status();
    return &(all.programs[{target, name}] = *std::move(program));
  }
  return absl::NotFoundError(
      absl::StrCat("no kernel ", name, " for sm_", target));
}

}  // namespace agg::ptx
