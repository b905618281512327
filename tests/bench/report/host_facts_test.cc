#include "tests/bench/report/host_facts.h"

#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace agg {
namespace {

constexpr char kSmi[] =
    "name, driver_version, memory.total [MiB], ecc.mode.current, "
    "mig.mode.current, clocks.max.sm [MHz], pci.bus_id\n"
    "NVIDIA A, 580.65.06, 143771 MiB, Enabled, [N/A], 1980 MHz, "
    "00000000:41:00.0\n"
    "NVIDIA B, 580.65.06, 143771 MiB, Enabled, Disabled, 1980 MHz, "
    "00000000:C1:00.0\n";

TEST(HostFactsTest, ReadsProc) {
  const Json facts = HostFacts(
      "processor\t: 0\nmodel name\t: Some CPU @ 2.0GHz\n\n"
      "processor\t: 1\nmodel name\t: Some CPU @ 2.0GHz\n",
      "MemTotal:       1024 kB\nMemFree:  1 kB\n");
  EXPECT_EQ(JsonLine(facts),
            "{\"cpu\": \"Some CPU @ 2.0GHz\", \"cores\": 2, "
            "\"memory_bytes\": 1048576}");
}

TEST(HostFactsTest, WhatProcDoesNotSayIsNull) {
  EXPECT_EQ(JsonLine(HostFacts("", "MemTotal: much kB\n")),
            "{\"cpu\": null, \"cores\": null, \"memory_bytes\": null}");
}

TEST(HostFactsTest, TheSystemSaysWhatItIs) {
  const Json facts = SystemFacts();
  EXPECT_EQ(facts["kernel"].get<std::string>().substr(0, 6), "Linux ");
  EXPECT_EQ(facts["glibc"].get<std::string>().substr(0, 2), "2.");
}

TEST(CardOfTest, TheLineOfTheDevicesBusIsTaken) {
  const Json card = CardOf(
      {{"name", "from CUDA"}, {"pci_bus_id", "0000:c1:00.0"}, {"ecc", 1}}, kSmi,
      "");
  EXPECT_EQ(card["name"], "from CUDA");
  EXPECT_EQ(card["driver"], "580.65.06");
  EXPECT_EQ(card["ecc"], 1);
  EXPECT_EQ(card["cards"], 2);
  EXPECT_EQ(card["nvidia_smi"]["name"], "NVIDIA B");
  EXPECT_EQ(card["nvidia_smi"]["memory.total"], "143771 MiB");
}

TEST(CardOfTest, WithoutWhatCudaSaysTheFirstLineServes) {
  const Json card = CardOf(nullptr, kSmi, "");
  EXPECT_EQ(card["name"], "NVIDIA A");
  EXPECT_EQ(card["nvidia_smi"]["mig.mode.current"], nullptr);
}

TEST(CardOfTest, WithoutNvidiaSmiTheDriversFileServes) {
  const Json card =
      CardOf({{"name", "from CUDA"}}, "",
             "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.12  Sun Jul\n"
             "GCC version:  gcc version 12.2.0\n");
  EXPECT_EQ(card["driver"], "570.12");
  EXPECT_EQ(card["nvidia_smi"], nullptr);
  EXPECT_EQ(card["cards"], nullptr);
}

TEST(CardOfTest, WhatIsNoTableIsNoCard) {
  EXPECT_EQ(CardOf(nullptr, "", ""), nullptr);
  EXPECT_EQ(CardOf(nullptr, "NVIDIA-SMI has failed\n", ""), nullptr);
  EXPECT_EQ(CardOf(nullptr, "Field \"a\" is unknown.\nName: b, c\n", ""),
            nullptr);
}

}  // namespace
}  // namespace agg
