#include "server/access/identities.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/token_file.h"
#include "tests/server/base/hanging_disk.h"

namespace agg {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kWorker[] = "worker-token-0123";
constexpr char kAdmin[] = "admin-token-01234";
constexpr char kShard[] = "shard-token-01234";

TEST(BearerTokenTest, IsBehindItsScheme) {
  EXPECT_EQ(BearerToken("Bearer abc"), "abc");
  EXPECT_EQ(BearerToken("bearer  abc "), "abc");
  EXPECT_EQ(BearerToken("Basic abc"), std::nullopt);
  EXPECT_EQ(BearerToken(""), std::nullopt);
}

TEST(HttpTokenTest, IsBearersOrTheBrowsersPassword) {
  EXPECT_EQ(HttpToken("Bearer abc"), "abc");
  // printf 'anybody:abc:d' | base64
  EXPECT_EQ(HttpToken("Basic YW55Ym9keTphYmM6ZA=="), "abc:d");
  EXPECT_EQ(HttpToken("basic  OmFiYw== "), "abc");  // ":abc"
  for (const char* bad : {"", "Basic", "Basic ", "Basic !", "Basic YWJj",
                          "Digest username=\"x\"", "abc"}) {
    EXPECT_EQ(HttpToken(bad), std::nullopt) << bad;
  }
}

TEST(SanMatchesTest, AStarAtTheEndIsEveryEnd) {
  EXPECT_TRUE(SanMatches("spiffe://agg/worker/*", "spiffe://agg/worker/3"));
  EXPECT_FALSE(SanMatches("spiffe://agg/worker/*", "spiffe://agg/worke"));
  EXPECT_TRUE(SanMatches("w.example", "w.example"));
  EXPECT_FALSE(SanMatches("w.example", "w.example.evil"));
  EXPECT_FALSE(SanMatches("w.example", "W.example"));
}

class IdentitiesTest : public ::testing::Test {
 protected:
  IdentitiesTest() {
    options_.identities = {
        {"trainer", {"spiffe://agg/worker/*"}, "/w", {Role::kWorker}},
        {"root", {}, "/a", {Role::kAdmin}},
        {"seer", {"seer.example"}, "", {Role::kObserver}}};
    options_.shard_token_file = "/s";
  }

  std::unique_ptr<Identities> Make() {
    auto made = Identities::Make(
        options_, &clock_,
        [this](const std::string& path) -> absl::StatusOr<std::string> {
          const auto found = files_.find(path);
          if (found == files_.end()) return absl::NotFoundError("not there");
          return found->second;
        });
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }

  FakeClock clock_;
  AccessOptions options_;
  std::map<std::string, std::string> files_ = {
      {"/w", kWorker}, {"/a", kAdmin}, {"/s", kShard}};
  DenialReason reason_ = DenialReason::kRole;
};

Credentials Token(const std::string& token) {
  Credentials credentials;
  credentials.token = token;
  return credentials;
}

Credentials Certificate(const std::string& san) {
  Credentials credentials;
  credentials.sans = {"other.example", san};
  return credentials;
}

TEST_F(IdentitiesTest, ATokenOrACertificateSaysWhoCalls) {
  const auto identities = Make();
  auto caller = identities->Resolve(Token(kAdmin), &reason_);
  ASSERT_TRUE(caller.ok()) << caller.status();
  EXPECT_EQ(caller->identity, "root");
  EXPECT_TRUE(caller->known);
  EXPECT_EQ(caller->roles, Roles{Role::kAdmin});
  caller = identities->Resolve(Certificate("spiffe://agg/worker/7"), &reason_);
  ASSERT_TRUE(caller.ok()) << caller.status();
  EXPECT_EQ(caller->identity, "trainer");
  caller = identities->Resolve(Token(kShard), &reason_);
  ASSERT_TRUE(caller.ok()) << caller.status();
  EXPECT_EQ(caller->roles, Roles{Role::kShard});
  EXPECT_EQ(identities->own_token()->first(), kShard);
}

TEST_F(IdentitiesTest, WhoIsUnknownHasNoRole) {
  const auto identities = Make();
  const auto none = identities->Resolve({}, &reason_);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(reason_, DenialReason::kNoCredential);
  const auto bad = identities->Resolve(Token("not-a-token-012345"), &reason_);
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(reason_, DenialReason::kBadToken);
  EXPECT_THAT(bad.status().message(), Not(HasSubstr("not-a-token")));
  const auto peer = identities->Resolve(Certificate("x.example"), &reason_);
  EXPECT_EQ(peer.status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(reason_, DenialReason::kUnknownPeer);
  EXPECT_FALSE(identities->Resolve(Token(""), &reason_).ok());
  EXPECT_FALSE(
      identities->Resolve(Token(std::string(10000, 'x')), &reason_).ok());
}

// A bad token is not made good by a certificate beside it.
// The HTTP port takes tokens alone.
TEST_F(IdentitiesTest, ReadersAreObserversAndAdminsWithATokenFile) {
  EXPECT_TRUE(Make()->has_reader());
  options_.identities[1].roles = {Role::kWorker};
  EXPECT_FALSE(Make()->has_reader());  // "seer" has a certificate alone
}

TEST_F(IdentitiesTest, ATokenCountsBeforeACertificate) {
  const auto identities = Make();
  Credentials both = Certificate("seer.example");
  both.token = kAdmin;
  EXPECT_EQ(identities->Resolve(both, &reason_)->identity, "root");
  both.token = "wrong-token-0123456";
  EXPECT_FALSE(identities->Resolve(both, &reason_).ok());
}

TEST_F(IdentitiesTest, TokensAreReplacedWithoutAGap) {
  const auto identities = Make();
  constexpr char kNew[] = "worker-token-new-1";
  files_["/w"] = absl::StrCat(kNew, "\n", kWorker);
  clock_.Advance(TokenFile::kLook);
  EXPECT_TRUE(identities->Resolve(Token(kWorker), &reason_).ok());
  EXPECT_TRUE(identities->Resolve(Token(kNew), &reason_).ok());
  files_["/w"] = kNew;
  clock_.Advance(TokenFile::kLook);
  EXPECT_FALSE(identities->Resolve(Token(kWorker), &reason_).ok());
  EXPECT_TRUE(identities->Resolve(Token(kNew), &reason_).ok());
}

TEST_F(IdentitiesTest, ATokenIsThatOfOneIdentity) {
  for (const auto& [path, field] :
       {std::pair<const char*, const char*>{"/a", "identities[1].token_file"},
        {"/s", "shard_token_file"}}) {
    auto files = files_;
    files[path] = absl::StrCat("unshared-token-01\n", kWorker);
    const auto made = Identities::Make(
        options_, &clock_,
        [&](const std::string& name) -> absl::StatusOr<std::string> {
          return files.at(name);
        });
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(made.status().message(),
                HasSubstr(absl::StrCat(
                    "security.", field, " is \"", path,
                    "\", which has a token of "
                    "security.identities[0].token_file \"/w\"; allowed: ")));
    EXPECT_THAT(made.status().message(), Not(HasSubstr(kWorker)));
  }
}

TEST_F(IdentitiesTest, AFileThatIsNotThereIsNamedWithItsField) {
  files_.erase("/a");
  const auto made =
      Identities::Make(options_, &clock_, [this](const std::string& path) {
        const auto found = files_.find(path);
        return found == files_.end()
                   ? absl::StatusOr<std::string>(absl::NotFoundError("gone"))
                   : found->second;
      });
  EXPECT_THAT(made.status().message(),
              HasSubstr("security.identities[1].token_file is \"/a\": gone; "
                        "allowed: "));
}

TEST_F(IdentitiesTest, SomeCanShowACertificateAlone) {
  EXPECT_TRUE(Make()->needs_certificates());
  options_.identities.pop_back();
  EXPECT_FALSE(Make()->needs_certificates());
}

// Else a caller would wait for each file behind the other, and each file would
// keep a thread.
TEST_F(IdentitiesTest, ADiskThatHangsIsWaitedForOnce) {
  const auto disk = std::make_shared<HangingDisk>();
  const auto made = Identities::Make(
      options_, &clock_,
      [disk,
       files = files_](const std::string& path) -> absl::StatusOr<std::string> {
        (void)disk->Read();
        return files.at(path);
      });
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(disk->num_reads(), 3);
  disk->Hang(true);
  clock_.Advance(TokenFile::kLook);
  EXPECT_TRUE((*made)->Resolve(Token(kShard), &reason_).ok());
  EXPECT_EQ(disk->num_reads(), 4);
  disk->Hang(false);
}

}  // namespace
}  // namespace agg
