// Options of callers of this release and of older ones.
#include "worker_client/c/c_structs.h"

#include <cstddef>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

TEST(OptionsOfTest, DefaultsAreTheClients) {
  const agg_options defaults = DefaultOptions();
  const auto options = OptionsOf(&defaults);
  ASSERT_TRUE(options.ok()) << options.status();
  const ClientOptions expected;
  EXPECT_EQ(options->shared_memory, expected.shared_memory);
  EXPECT_EQ(options->local_sockets, expected.local_sockets);
  EXPECT_EQ(options->error_feedback, expected.error_feedback);
  EXPECT_EQ(options->round_timeout, expected.round_timeout);
  EXPECT_EQ(options->copy_threads, expected.copy_threads);
  EXPECT_EQ(options->cuda_rows, expected.cuda_rows);
  EXPECT_EQ(options->recovery_window, expected.recovery_window);
  EXPECT_EQ(options->coordinator, expected.coordinator);
  EXPECT_EQ(options->client_name, "");
  EXPECT_FALSE(options->tune_malloc);
}

TEST(OptionsOfTest, TimesAndTextsAreTaken) {
  agg_options from = DefaultOptions();
  from.connect_timeout = 1;
  from.call_timeout = 2;
  from.transfer_timeout = 3;
  from.round_timeout = 4;
  from.reconnect_window = 5;
  from.recovery_window = 6;
  from.client_name = "name";
  from.audit_log = "log";
  from.token_file = "token";
  from.tls_ca = "ca";
  from.tls_certificate = "certificate";
  from.tls_key = "key";
  from.tls_server_name = "server";
  const auto options = OptionsOf(&from);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->connect_timeout, absl::Seconds(1));
  EXPECT_EQ(options->call_timeout, absl::Seconds(2));
  EXPECT_EQ(options->transfer_timeout, absl::Seconds(3));
  EXPECT_EQ(options->round_timeout, absl::Seconds(4));
  EXPECT_EQ(options->reconnect_window, absl::Seconds(5));
  EXPECT_EQ(options->recovery_window, absl::Seconds(6));
  EXPECT_EQ(options->client_name, "name");
  EXPECT_EQ(options->audit_log, "log");
  EXPECT_EQ(options->token_file, "token");
  EXPECT_EQ(options->tls.ca, "ca");
  EXPECT_EQ(options->tls.certificate, "certificate");
  EXPECT_EQ(options->tls.key, "key");
  EXPECT_EQ(options->tls.server_name, "server");
}

TEST(OptionsOfTest, NumbersAndSwitchesAreTaken) {
  agg_options from = DefaultOptions();
  from.rank = 3;
  from.observer = 1;
  from.channels_per_shard = 2;
  from.local_sockets = 0;
  from.tune_malloc = 1;
  from.copy_threads = 5;
  const auto options = OptionsOf(&from);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->rank, 3);
  EXPECT_TRUE(options->observer);
  EXPECT_EQ(options->channels_per_shard, 2);
  EXPECT_FALSE(options->local_sockets);
  EXPECT_TRUE(options->tune_malloc);
  EXPECT_EQ(options->copy_threads, 5);
}

TEST(OptionsOfTest, SharedMemoryAndErrorFeedbackAreTaken) {
  agg_options from = DefaultOptions();
  from.shared_memory = 0;
  from.error_feedback = 1;
  from.cuda_rows = 0;
  auto options = OptionsOf(&from);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_FALSE(options->shared_memory);
  EXPECT_FALSE(options->cuda_rows);
  EXPECT_EQ(options->error_feedback, absl::optional<bool>(true));
  from.error_feedback = 0;
  options = OptionsOf(&from);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->error_feedback, absl::optional<bool>(false));
}

// What lies behind its struct is not read.
TEST(OptionsOfTest, AnOlderCallerHasTheDefaults) {
  agg_options from = DefaultOptions();
  from.shared_memory = 0;
  from.error_feedback = 99;
  from.size = offsetof(agg_options, shared_memory);
  const auto options = OptionsOf(&from);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(options->shared_memory);
  EXPECT_EQ(options->error_feedback, absl::nullopt);
}

}  // namespace
}  // namespace agg
