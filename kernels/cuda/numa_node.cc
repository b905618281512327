// The system calls themselves: libnuma may not be installed.
#include "kernels/cuda/numa_node.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace agg::cuda {
namespace {

constexpr int kMaxNode = 1023;  // of Linux

// Empty if it cannot be read.
std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return std::string(absl::StripAsciiWhitespace(line));
}

}  // namespace

std::unique_ptr<const NumaNode> NumaNode::OfDevice(absl::string_view pci_bus_id,
                                                   const std::string& sysfs) {
  // "0" alone, or a list as "0-1,4".
  const std::string nodes =
      ReadLine(absl::StrCat(sysfs, "/devices/system/node/has_memory"));
  const bool has_several = nodes.find_first_of("-,") != std::string::npos;
  int number = -1;
  if (!has_several ||
      !absl::SimpleAtoi(ReadLine(absl::StrCat(sysfs, "/bus/pci/devices/",
                                              absl::AsciiStrToLower(pci_bus_id),
                                              "/numa_node")),
                        &number) ||
      number > kMaxNode) {
    number = -1;
  }
  return std::make_unique<NumaNode>(number);
}

void NumaNode::Prefer(char* memory, int64_t num_bytes) const {
  if (number_ < 0) return;
  constexpr int kBits = 64;  // of the kernel's words
  std::vector<uint64_t> nodes(number_ / kBits + 1);
  nodes.back() = uint64_t{1} << (number_ % kBits);
  // One bit more than there are, or the kernel leaves the last one out.
  if (syscall(SYS_mbind, memory, num_bytes, MPOL_PREFERRED, nodes.data(),
              nodes.size() * kBits + 1, int64_t{0}) == 0 ||
      has_complained_.exchange(true)) {
    return;
  }
  Complain(absl::StrCat("mbind to NUMA node ", number_,
                        ", which is the card's: ", std::strerror(errno),
                        "; host memory is wherever the system puts it"));
}

}  // namespace agg::cuda
