// A later toolkit than the table knows is named by its major version.
#include "kernels/cuda/driver_need.h"

#include "absl/strings/str_cat.h"

namespace agg::cuda {
namespace {

std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

std::string LeastDriver(int major) {
  switch (major) {
    case 12:
      return "a driver of release 525 or newer";
    case 13:
      return "a driver of release 580 or newer";
    default:
      return absl::StrCat("a driver for CUDA ", major);
  }
}

}  // namespace

std::string DriverNeed(int runtime, int driver) {
  return absl::StrCat("this binary has CUDA ", VersionText(runtime),
                      ", which needs ", LeastDriver(runtime / 1000), "; ",
                      driver == 0 ? "there is no driver here"
                                  : absl::StrCat("the driver here is for CUDA ",
                                                 VersionText(driver)));
}

}  // namespace agg::cuda
