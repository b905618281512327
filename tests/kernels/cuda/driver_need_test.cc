#include "kernels/cuda/driver_need.h"

#include "gtest/gtest.h"

namespace agg::cuda {
namespace {

TEST(DriverNeedTest, NamesBothVersionsAndTheRelease) {
  EXPECT_EQ(DriverNeed(13000, 12040),
            "this binary has CUDA 13.0, which needs a driver of release 580 or "
            "newer; the driver here is for CUDA 12.4");
  EXPECT_EQ(DriverNeed(12080, 11070),
            "this binary has CUDA 12.8, which needs a driver of release 525 or "
            "newer; the driver here is for CUDA 11.7");
}

TEST(DriverNeedTest, SaysWhereThereIsNoDriver) {
  EXPECT_EQ(DriverNeed(13010, 0),
            "this binary has CUDA 13.1, which needs a driver of release 580 or "
            "newer; there is no driver here");
}

TEST(DriverNeedTest, KnowsOfLaterToolkitsTheMajorVersionAlone) {
  EXPECT_EQ(DriverNeed(14020, 13000),
            "this binary has CUDA 14.2, which needs a driver for CUDA 14; the "
            "driver here is for CUDA 13.0");
}

}  // namespace
}  // namespace agg::cuda
