// What measured numbers depend on besides the program: the host and its card.
#ifndef AGG_TESTS_BENCH_REPORT_HOST_FACTS_H_
#define AGG_TESTS_BENCH_REPORT_HOST_FACTS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "server/base/json.h"

namespace agg {

// {"cpu", "cores", "memory_bytes"} of /proc/cpuinfo and /proc/meminfo: the
// first model's name, the processors (threads of cores, too), MemTotal; null
// for what is not there. Pure.
Json HostFacts(absl::string_view cpuinfo, absl::string_view meminfo);

// The system's release and the C library's: {"kernel", "glibc"}.
Json SystemFacts();

// One card: what CUDA's runtime has told a benchmark (`facts`, of
// card_facts.h, or null), with "driver" and "nvidia_smi" added and the name and
// the bus taken from nvidia-smi if need be.
//
// `smi`: of `nvidia-smi --query-gpu=name,..,pci.bus_id --format=csv`, "" for
// none. The line of the same bus, else the first one, becomes the object
// "nvidia_smi", with texts as nvidia-smi has them, and null for "[N/A]".
// "cards" is how many there are, null where nvidia-smi did not say.
// `driver_version`: /proc/driver/nvidia/version, where nvidia-smi is missing.
// Null if nothing is known. Pure.
Json CardOf(const Json& facts, absl::string_view smi,
            absl::string_view driver_version);

}  // namespace agg

#endif  // AGG_TESTS_BENCH_REPORT_HOST_FACTS_H_
