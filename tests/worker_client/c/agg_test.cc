// The C ABI against a job in this process: rounds from C, mistakes, structs of
// other releases, forks.
#include "worker_client/c/agg.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shard_plan.h"
#include "tests/worker_client/c/agg_calls.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/device_shard.h"
#include "tests/worker_client/device_tensors.h"
#include "tests/worker_client/fake_job.h"
#include "worker_client/c/agg_types.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

Manifest OneTensor() { return {{Spec("x", {2})}}; }

agg_options OptionsOfRank0(const FakeJob& job, const agg_spec* spec) {
  agg_options options;
  agg_options_init(&options, sizeof(options));
  static std::string coordinator;
  coordinator = job.coordinator();
  options.coordinator = coordinator.c_str();
  options.specs = spec;
  options.num_specs = 1;
  return options;
}

class AggTest : public ::testing::Test {
 protected:
  AggTest() : job_(OneTensor(), {}) {
    client_ = agg_new(&options_);
    EXPECT_EQ(agg_connect(client_), AGG_OK) << agg_error();
  }
  ~AggTest() override { agg_free(client_); }

  const int64_t shape_[1] = {2};
  const agg_spec spec_ = {"x", nullptr, shape_, 1, 0};
  FakeJob job_;
  agg_options options_ = OptionsOfRank0(job_, &spec_);
  agg_client* client_ = nullptr;
  float x_[2] = {1, 2};
  const agg_target target_ = {x_, 2};
  const agg_view view_ = {x_, 2, AGG_F32, 0};
};

TEST(AggRoundsTest, AWorkerInC) {
  FakeJob::Options options;
  options.num_shards = 2;
  FakeJob job({{Spec("a", {2, 2}), Spec("b", {}, true)}}, options);
  const char* const wrong = RunRounds(job.coordinator().c_str());
  EXPECT_EQ(wrong, nullptr) << wrong;
  EXPECT_EQ(job.leaves(), 1);
}

TEST(AggOptionsTest, MistakesNameTheField) {
  agg_options options;
  agg_options_init(&options, sizeof(options));
  options.round_timeout = -1;
  EXPECT_EQ(agg_new(&options), nullptr);
  EXPECT_THAT(agg_error(), HasSubstr("round_timeout is -1; allowed: "));
  agg_options_init(&options, sizeof(options));
  options.call_timeout = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(agg_new(&options), nullptr);
  EXPECT_THAT(agg_error(), HasSubstr("call_timeout is nan"));
  agg_options_init(&options, sizeof(options));
  options.num_specs = 1;
  EXPECT_EQ(agg_new(&options), nullptr);
  EXPECT_THAT(agg_error(), HasSubstr("specs is NULL"));
  EXPECT_EQ(agg_new(nullptr), nullptr);
  EXPECT_THAT(agg_error(), HasSubstr("agg_options is NULL"));
  options.size = 1 << 20;
  EXPECT_EQ(agg_new(&options), nullptr);
  EXPECT_THAT(agg_error(), HasSubstr("agg_options.size is 1048576"));
}

TEST(AggOptionsTest, AreCheckedWhenTheClientConnects) {
  agg_options options;
  agg_options_init(&options, sizeof(options));
  agg_client* const client = agg_new(&options);
  EXPECT_EQ(agg_connect(client), AGG_INVALID_ARGUMENT) << "no tensors";
  EXPECT_EQ(agg_push(client, nullptr, 0), AGG_FAILED_PRECONDITION);
  EXPECT_EQ(agg_leave(client), AGG_OK);
  EXPECT_EQ(agg_connect(nullptr), AGG_INVALID_ARGUMENT);
  agg_free(client);
  agg_free(nullptr);
}

TEST_F(AggTest, ReadsAndWritesStructsOfOtherReleases) {
  ASSERT_EQ(agg_seed_or_pull(client_, &target_, 1), AGG_OK) << agg_error();
  // An older one ends before `rule`; what is behind it stays as it is.
  agg_outcome outcome;
  std::memset(&outcome, 0x5a, sizeof(outcome));
  outcome.size = offsetof(agg_outcome, rule);
  ASSERT_EQ(agg_push_pull(client_, &view_, 1, nullptr, &target_, 1, &outcome),
            AGG_OK);
  EXPECT_EQ(outcome.version, 1u);
  EXPECT_EQ(outcome.size, offsetof(agg_outcome, rule));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(outcome.rule), 0x5a5a5a5a5a5a5a5au);
  // A newer one is longer.
  struct {
    agg_state state;
    int more = 3;
  } newer;
  newer.state.size = sizeof(newer);
  ASSERT_EQ(agg_get_state(client_, &newer.state), AGG_OK);
  EXPECT_EQ(newer.state.version, 1u);
  EXPECT_EQ(newer.more, 3);
  outcome.size = 0;
  EXPECT_EQ(agg_wait(client_, 1, &outcome), AGG_INVALID_ARGUMENT);
}

TEST_F(AggTest, MistakesInListsAreErrors) {
  const agg_view wrong_type = {x_, 2, 7, 0};
  EXPECT_EQ(agg_push(client_, &wrong_type, 1), AGG_INVALID_ARGUMENT);
  EXPECT_THAT(agg_error(), HasSubstr("views[0].dtype is 7"));
  EXPECT_EQ(agg_push(client_, nullptr, 1), AGG_INVALID_ARGUMENT);
  EXPECT_EQ(agg_pull(client_, 0, nullptr, 1, 0), AGG_INVALID_ARGUMENT);
  EXPECT_EQ(agg_seed_file(client_, nullptr, nullptr), AGG_INVALID_ARGUMENT);
  EXPECT_EQ(agg_wait(client_, 0, nullptr), AGG_INVALID_ARGUMENT);
}

TEST_F(AggTest, EventsAreQueuedAndErrorsAreTheThreads) {
  job_.Send(v1::JobEvent::WAITING, "for nobody");
  agg_event event;
  event.size = sizeof(event);
  ASSERT_EQ(agg_next_event(client_, 30, &event), AGG_OK) << agg_error();
  EXPECT_EQ(event.kind, AGG_EVENT_WAITING);
  EXPECT_STREQ(event.message, "for nobody");
  EXPECT_EQ(event.num_dropped, 0u);
  EXPECT_EQ(agg_next_event(client_, 0, &event), AGG_NOT_FOUND);
  EXPECT_STRNE(agg_error(), "");
  std::thread([] { EXPECT_STREQ(agg_error(), ""); }).join();
}

TEST_F(AggTest, LeaveEndsACommitOfAnotherThread) {
  ASSERT_EQ(agg_seed_or_pull(client_, &target_, 1), AGG_OK) << agg_error();
  ASSERT_EQ(agg_push(client_, &view_, 1), AGG_OK);
  job_.HoldCommits();
  std::thread waits([this] {
    const int32_t code = agg_commit(client_, nullptr, nullptr);
    EXPECT_TRUE(code == AGG_CANCELLED || code == AGG_ABORTED) << code;
  });
  job_.AwaitCommits(1);
  EXPECT_EQ(agg_leave(client_), AGG_OK);
  waits.join();
}

TEST_F(AggTest, AForkedChildCannotConnectAnother) {
  const pid_t child = fork();
  if (child == 0) {
    const pid_t grandchild = fork();
    agg_client* const other = agg_new(&options_);
    bool refused = agg_connect(other) == AGG_FORKED &&
                   std::strstr(agg_error(), "is a fork of ") != nullptr &&
                   std::strstr(agg_error(), "spawn") != nullptr;
    agg_free(other);
    if (grandchild != 0) {
      int status = -1;
      waitpid(grandchild, &status, 0);
      refused = refused && status == 0;
    }
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// RFC 3720 has the sum of these nine bytes.
TEST(AggCrc32cTest, IsThatOfThePiecesOneBehindTheOther) {
  const char* const text = "123456789";
  const void* const pieces[] = {text, nullptr, text + 4};
  const size_t sizes[] = {4, 0, 5};
  EXPECT_EQ(agg_crc32c(pieces, sizes, 3), 0xe3069283u);
  EXPECT_EQ(agg_crc32c(nullptr, nullptr, 0), 1u);  // 0 would say nothing
}

TEST_F(AggTest, ACommitSaysWhatTheRowWasComputedOn) {
  ASSERT_EQ(agg_seed_or_pull(client_, &target_, 1), AGG_OK) << agg_error();
  agg_push_info info = {};
  info.size = sizeof(info);
  info.parameters_digest = 77;
  ASSERT_EQ(agg_push_pull(client_, &view_, 1, &info, &target_, 1, nullptr),
            AGG_OK)
      << agg_error();
  EXPECT_EQ(job_.commit().parameters_digest(), 77u);
  // A caller of an older release has no such field.
  info.size = offsetof(agg_push_info, parameters_digest);
  ASSERT_EQ(agg_push_pull(client_, &view_, 1, &info, &target_, 1, nullptr),
            AGG_OK)
      << agg_error();
  EXPECT_EQ(job_.commit().parameters_digest(), 0u);
}

TEST_F(AggTest, AForkedChildHasNoClient) {
  ASSERT_EQ(agg_seed_or_pull(client_, &target_, 1), AGG_OK) << agg_error();
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = agg_push(client_, &view_, 1) == AGG_FORKED &&
                         agg_leave(client_) == AGG_FORKED &&
                         agg_next_event(client_, 0, nullptr) == AGG_FORKED;
    agg_free(client_);
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(job_.leaves(), 0);
  EXPECT_EQ(agg_push_pull(client_, &view_, 1, nullptr, &target_, 1, nullptr),
            AGG_OK)
      << agg_error();
}

// What agg_get_job says of tensors on a device of a shard of this host.

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
