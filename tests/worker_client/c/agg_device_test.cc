// What agg_get_job says of tensors on a device of a shard of this host.
#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "proto/shard_plan.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/device_shard.h"
#include "tests/worker_client/device_tensors.h"
#include "tests/worker_client/fake_job.h"
#include "worker_client/c/agg.h"
#include "worker_client/c/agg_types.h"

namespace agg {
namespace {

TEST(AggDeviceTest, TransportsAreThoseOfNow) {
  const Manifest manifest{{Spec("a", {8})}};
  DeviceShard shard(manifest);
  FakeJob job(manifest, shard.Options());
  const DeviceTensors parameters(Values(manifest, 1));
  const std::string coordinator = job.coordinator();
  const int64_t shape[] = {8};
  const agg_spec spec = {"a", nullptr, shape, 1, 0};
  agg_options options;
  agg_options_init(&options, sizeof(options));
  options.coordinator = coordinator.c_str();
  options.specs = &spec;
  options.num_specs = 1;
  agg_client* const client = agg_new(&options);
  ASSERT_NE(client, nullptr) << agg_error();
  ASSERT_EQ(agg_connect(client), AGG_OK) << agg_error();
  agg_job before, after;
  before.size = after.size = sizeof(agg_job);
  ASSERT_EQ(agg_get_job(client, &before), AGG_OK) << agg_error();
  EXPECT_STREQ(before.transports[0], "shm");
  const agg_target target = {parameters.at(0), 8};
  ASSERT_EQ(agg_seed_or_pull(client, &target, 1), AGG_OK) << agg_error();
  const agg_view row = {parameters.at(0), 8, AGG_F32, 0};
  ASSERT_EQ(agg_push(client, &row, 1), AGG_OK) << agg_error();
  ASSERT_EQ(agg_get_job(client, &after), AGG_OK) << agg_error();
  EXPECT_STREQ(after.transports[0], "cuda");
  // Good until agg_free.
  EXPECT_STREQ(before.transports[0], "shm");
  EXPECT_STREQ(before.job, after.job);
  agg_free(client);
}

}  // namespace
}  // namespace agg
