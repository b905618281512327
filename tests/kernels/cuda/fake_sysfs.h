// A folder that tells of NUMA nodes what a test wants, in place of /sys.
#ifndef AGG_TESTS_KERNELS_CUDA_FAKE_SYSFS_H_
#define AGG_TESTS_KERNELS_CUDA_FAKE_SYSFS_H_

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace agg {

// `nodes` as the kernel lists those with memory ("0-1"), `numa_node` of the
// device with that id; empty: no such file. Returns the folder.
inline std::string MakeSysfs(const std::string& name, const std::string& nodes,
                             const std::string& pci_bus_id,
                             const std::string& numa_node) {
  const std::filesystem::path root =
      std::filesystem::path(testing::TempDir()) / name;
  const auto write = [&root](const std::string& path, const std::string& line) {
    if (line.empty()) return;
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << line << "\n";
  };
  std::filesystem::remove_all(root);
  write("devices/system/node/has_memory", nodes);
  write("bus/pci/devices/" + pci_bus_id + "/numa_node", numa_node);
  return root.string();
}

}  // namespace agg

#endif  // AGG_TESTS_KERNELS_CUDA_FAKE_SYSFS_H_
