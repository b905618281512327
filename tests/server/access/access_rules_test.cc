#include "server/access/access_rules.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

Caller Known(const std::string& identity, Roles roles) {
  Caller caller;
  caller.identity = identity;
  caller.roles = roles;
  caller.known = true;
  return caller;
}

TEST(RolesTest, NamesAreReadAndWritten) {
  for (const char* name : {"worker", "observer", "admin", "shard", "metrics"}) {
    ASSERT_TRUE(ParseRole(name).has_value()) << name;
    EXPECT_EQ(RoleName(*ParseRole(name)), name);
  }
  EXPECT_FALSE(ParseRole("root").has_value());
  EXPECT_EQ((Roles{Role::kWorker, Role::kAdmin}).Text("or"), "worker or admin");
}

TEST(MayCallTest, EachRoleMayDoItsOwnAndNothingElse) {
  const Caller worker = Known("w", {Role::kWorker});
  const Caller observer = Known("o", {Role::kObserver});
  const Caller admin = Known("a", {Role::kAdmin});
  const Caller shard = Known("s", {Role::kShard});
  for (const char* method :
       {"agg.v1.Coordinator/Join", "agg.v1.Coordinator/Attend",
        "agg.v1.Coordinator/Commit", "agg.v1.Coordinator/WaitRound",
        "agg.v1.Coordinator/Leave", "agg.v1.Reductions/Reduce",
        "agg.v1.Shard/Push"}) {
    EXPECT_TRUE(MayCall(worker, method).ok()) << method;
    EXPECT_FALSE(MayCall(observer, method).ok()) << method;
    EXPECT_FALSE(MayCall(admin, method).ok()) << method;
    EXPECT_FALSE(MayCall(shard, method).ok()) << method;
  }
  for (const char* method :
       {"agg.v1.Coordinator/Observe", "agg.v1.Shard/Pull"}) {
    EXPECT_TRUE(MayCall(worker, method).ok()) << method;
    EXPECT_TRUE(MayCall(observer, method).ok()) << method;
    EXPECT_TRUE(MayCall(admin, method).ok()) << method;
    EXPECT_FALSE(MayCall(shard, method).ok()) << method;
  }
  for (const char* method : {"agg.v1.Admin/SetRule", "agg.v1.Admin/Drain",
                             "agg.v1.Admin/ListAudit"}) {
    EXPECT_FALSE(MayCall(worker, method).ok()) << method;
    EXPECT_FALSE(MayCall(observer, method).ok()) << method;
    EXPECT_TRUE(MayCall(admin, method).ok()) << method;
    EXPECT_FALSE(MayCall(shard, method).ok()) << method;
  }
  // A role for monitoring, which need not read the model.
  const Caller metrics = Known("m", {Role::kMetrics});
  EXPECT_TRUE(MayCall(metrics, kHttpMetrics).ok());
  EXPECT_TRUE(MayCall(observer, kHttpMetrics).ok());
  EXPECT_TRUE(MayCall(admin, kHttpMetrics).ok());
  EXPECT_FALSE(MayCall(worker, kHttpMetrics).ok());
  EXPECT_FALSE(MayCall(shard, kHttpMetrics).ok());
  for (const char* method :
       {"agg.v1.Shard/Pull", "agg.v1.Coordinator/Observe",
        "agg.v1.Coordinator/GetStatus", "agg.v1.Admin/ListTensors",
        "agg.v1.Admin/ListAudit", "agg.v1.Coordinator/Join", "http/pages"}) {
    EXPECT_FALSE(MayCall(metrics, method).ok()) << method;
  }
  EXPECT_TRUE(MayCall(observer, kHttpPages).ok());
  EXPECT_TRUE(MayCall(admin, kHttpPages).ok());
  EXPECT_FALSE(MayCall(worker, kHttpPages).ok());
  EXPECT_FALSE(MayCall(shard, kHttpPages).ok());
  EXPECT_TRUE(MayCall(observer, "agg.v1.Admin/ListRounds").ok());
  EXPECT_FALSE(MayCall(worker, "agg.v1.Admin/ListRounds").ok());
  EXPECT_TRUE(MayCall(shard, "agg.v1.ShardControl/Attach").ok());
  EXPECT_FALSE(MayCall(admin, "agg.v1.ShardControl/Attach").ok());
  EXPECT_TRUE(MayCall(shard, "agg.v1.Coordinator/GetStatus").ok());
}

TEST(MayCallTest, TheErrorNamesTheRoleThatIsMissing) {
  const absl::Status status =
      MayCall(Known("eve", {Role::kObserver}), "agg.v1.Shard/Push");
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(status.message(), HasSubstr("needs the role worker"));
  EXPECT_THAT(status.message(), HasSubstr("\"eve\""));
}

TEST(MayCallTest, NobodyMayCallWhatTheTableLacks) {
  const Caller all =
      Known("x", {Role::kWorker, Role::kObserver, Role::kAdmin, Role::kShard});
  EXPECT_EQ(MayCall(all, "agg.v1.Shard/Other").code(),
            absl::StatusCode::kPermissionDenied);
}

TEST(MayCallTest, WithoutIdentitiesEverybodyMay) {
  EXPECT_TRUE(MayCall(Caller(), "agg.v1.Admin/Drain").ok());
  EXPECT_TRUE(Caller().may(Role::kAdmin));
}

TEST(MayUseSessionTest, TheOwnerAndAdminsMay) {
  EXPECT_TRUE(MayUseSession(Known("a", {Role::kWorker}), "a"));
  EXPECT_FALSE(MayUseSession(Known("b", {Role::kWorker}), "a"));
  EXPECT_TRUE(MayUseSession(Known("b", {Role::kWorker, Role::kAdmin}), "a"));
  // Joined before anybody was asked.
  EXPECT_TRUE(MayUseSession(Known("b", {Role::kWorker}), ""));
  EXPECT_TRUE(MayUseSession(Caller(), "a"));
}

}  // namespace
}  // namespace agg
