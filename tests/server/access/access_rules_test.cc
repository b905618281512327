#include "server/access/access_rules.h"

#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/access/identities.h"
#include "server/base/clock.h"
#include "tests/server/base/hanging_disk.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Caller Known(const std::string& identity, Roles roles) {
  Caller caller;
  caller.identity = identity;
  caller.roles = roles;
  caller.known = true;
  return caller;
}

TEST(RolesTest, NamesAreReadAndWritten) {
  for (const char* name :
       {"worker", "observer", "admin", "shard", "metrics", "rule"}) {
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
  for (const char* method :
       {"agg.v1.Admin/SetRule", "agg.v1.Admin/Drain", "agg.v1.Admin/Describe",
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
  // Whoever decides how rows are combined need not read the model.
  const Caller rule = Known("r", {Role::kRule});
  EXPECT_TRUE(MayCall(rule, "agg.v1.ExternalRules/ServeRule").ok());
  for (const Caller& other : {worker, observer, admin, shard, metrics}) {
    EXPECT_FALSE(MayCall(other, "agg.v1.ExternalRules/ServeRule").ok());
  }
  for (const char* method :
       {"agg.v1.Shard/Pull", "agg.v1.Coordinator/Join",
        "agg.v1.Coordinator/GetStatus", "agg.v1.Admin/SetRule", "http/pages"}) {
    EXPECT_FALSE(MayCall(rule, method).ok()) << method;
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

const std::string kDigits(64, 'a');

TEST(DenyRulesTest, AreLines) {
  const auto good = ParseDenyRules(absl::StrCat(
      "# stolen on Friday\n\n identity  worker-7 \nsan spiffe://agg/w/7\n",
      "san\tspiffe://old/*\ncertificate ", kDigits, "\r\n"));
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_THAT(good->identities, ElementsAre("worker-7"));
  EXPECT_THAT(good->sans, ElementsAre("spiffe://agg/w/7", "spiffe://old/*"));
  EXPECT_THAT(good->certificates, ElementsAre(kDigits));
}

TEST(DenyRulesTest, FingerprintsMayHaveColonsAndCapitals) {
  std::string colons;
  for (int i = 0; i < 32; ++i) absl::StrAppend(&colons, i ? ":" : "", "AA");
  const auto rules = ParseDenyRules(absl::StrCat("certificate ", colons));
  ASSERT_TRUE(rules.ok()) << rules.status();
  EXPECT_THAT(rules->certificates, ElementsAre(kDigits));
}

TEST(DenyRulesTest, AMistakeNamesItsLine) {
  for (const char* bad : {"identity", "token x", "san a*b", "certificate abc",
                          "Identity x", "worker-7"}) {
    const absl::Status status =
        ParseDenyRules(absl::StrCat("identity a\n", bad)).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad;
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr("line 2 is none of these; allowed: \"identity NAME\""));
  }
}

TEST(DenyFileTest, IsReadAgainAndKeepsWhatItHadWhereItCannotBe) {
  FakeClock clock;
  absl::StatusOr<std::string> text = std::string("identity a\n");
  const auto file =
      DenyFile::Open("/deny", &clock, [&](const std::string&) { return text; });
  ASSERT_TRUE(file.ok()) << file.status();
  const DenyFile::Rules first = (*file)->rules();
  EXPECT_THAT(first->identities, ElementsAre("a"));
  text = std::string("identity b\n");
  EXPECT_EQ((*file)->rules(), first);
  clock.Advance(absl::Seconds(1));
  EXPECT_THAT((*file)->rules()->identities, ElementsAre("b"));
  for (const absl::StatusOr<std::string>& bad :
       {absl::StatusOr<std::string>("identity\n"),
        absl::StatusOr<std::string>(absl::UnavailableError("gone"))}) {
    text = bad;
    clock.Advance(absl::Seconds(1));
    EXPECT_THAT((*file)->rules()->identities, ElementsAre("b"));
  }
  text = std::string();
  clock.Advance(absl::Seconds(1));
  EXPECT_TRUE((*file)->rules()->identities.empty());
}

// Who comes by when it is time for a look waits for a while, and nobody else.
TEST(DenyFileTest, ADiskThatHangsHoldsUpNobodyForLong) {
  FakeClock clock;
  const auto disk = std::make_shared<HangingDisk>();
  disk->SetText("identity a\n");
  const auto file = DenyFile::Open(
      "/deny", &clock, [disk](const std::string&) { return disk->Read(); });
  ASSERT_TRUE(file.ok()) << file.status();
  disk->Hang(true);
  clock.Advance(absl::Seconds(1));
  std::thread first([&] { (*file)->rules(); });
  disk->AwaitReads(2);  // the first thread's has begun
  EXPECT_THAT((*file)->rules()->identities, ElementsAre("a"));
  first.join();
  // Looks that are due are not begun, and change nothing.
  clock.Advance(absl::Seconds(1));
  EXPECT_THAT((*file)->rules()->identities, ElementsAre("a"));
  EXPECT_EQ(disk->num_reads(), 2);
  disk->SetText("identity b\n");
  disk->Hang(false);
  // The thread that was left behind ends at some time.
  while ((*file)->rules()->identities.count("b") == 0) {
    clock.Advance(absl::Seconds(1));
    std::this_thread::yield();
  }
}

TEST(DenyFileTest, OneThatIsNotThereIsAnErrorAtStart) {
  FakeClock clock;
  const absl::Status status = DenyFile::Open("/no/such/file", &clock).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("\"/no/such/file\": No such file"));
}

}  // namespace
}  // namespace agg
