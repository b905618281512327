// What becomes of a shard's word that it does not know this coordinator.
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/access/caller_gate.h"
#include "server/access/identities.h"
#include "server/base/clock.h"
#include "server/rpc/remote_shard_peer.h"
#include "tests/server/rpc/loopback_shard.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

TEST(RefusedCoordinatorTest, IsNoAnswerToAWorker) {
  FakeClock clock;
  AccessOptions access;
  access.shard_token_file = "/s";
  access.identities = {{"seer", {}, "/o", {Role::kObserver}}};
  const auto identities = Identities::Make(
      access, &clock,
      [](const std::string& path) -> absl::StatusOr<std::string> {
        return path == "/s" ? "shard-token-01234" : "observer-token-01";
      });
  ASSERT_TRUE(identities.ok()) << identities.status();
  const CallerGate gate({identities->get(), nullptr, nullptr});
  LoopbackShard shard(1, 2);
  shard.set_gate(&gate);
  shard.Serve();
  RemoteShardOptions options;
  options.ordinal = 1;
  options.num_shards = 2;
  options.address = shard.address();
  options.fingerprint = kFingerprint;
  options.clock = &clock;
  for (const char* token : {"another-token-012", "observer-token-01"}) {
    options.token = [token] { return std::string(token); };
    RemoteShardPeer peer(options);
    for (const absl::Status& status :
         {peer.Promise().status(), peer.Attach(kEpoch, nullptr).status()}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("shard 1 (", shard.address(),
                                         ") refuses this coordinator: ")));
    }
  }
}

}  // namespace
}  // namespace agg
