// What a worker pays whose tensors are on a card, where its shard computes on
// the host.
#ifndef AGG_TESTS_BENCH_HOST_WAY_H_
#define AGG_TESTS_BENCH_HOST_WAY_H_

#include <memory>

#include "kernels/device_memory/device_context.h"
#include "server/base/json.h"
#include "tests/bench/device_fill.h"

namespace agg {

// Ten rounds of one worker with rows of 64 Mi float32, in turns with copies of
// as many bytes between the card and pinned memory; `smoke`: small and short.
// With members "elements", "transport" (JobDescription's), "repetitions", and
// spreads of seconds and of their shares: "push_s", "copy_to_host_s",
// "push_over_copy", "pull_s", "copy_to_device_s", "pull_over_copy". Ends the
// process with a message if something fails.
Json MeasureHostWay(const std::shared_ptr<const DeviceContext>& context,
                    bool smoke, DeviceFill* fill);

// On stdout.
void PrintHostWay(const Json& measured);

}  // namespace agg

#endif  // AGG_TESTS_BENCH_HOST_WAY_H_
