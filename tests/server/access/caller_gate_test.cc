#include "server/access/caller_gate.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using ::testing::SizeIs;

constexpr char kToken[] = "worker-token-0123";
constexpr char kPush[] = "agg.v1.Shard/Push";

class CallerGateTest : public ::testing::Test {
 protected:
  CallerGateTest() {
    AccessOptions options;
    options.identities = {{"trainer", {}, "/w", {Role::kWorker}}};
    options.denied_file = "/denied";
    auto made = Identities::Make(
        options, &clock_, [this](const std::string& path) -> std::string {
          return path == "/denied" ? denied_ : tokens_;
        });
    EXPECT_TRUE(made.ok()) << made.status();
    identities_ = *std::move(made);
    gate_ = std::make_unique<CallerGate>(
        CallerGate::Parts{identities_.get(), &audit_, &denials_,
                          /*limiter=*/nullptr, &open_});
  }

  absl::StatusOr<Caller> Admit(const std::string& token,
                               const std::string& method) {
    Credentials credentials;
    if (!token.empty()) credentials.token = token;
    return gate_->Admit(credentials, "ipv4:1.2.3.4:5", method);
  }

  // A call of the trainer that goes on, and the second that follows.
  std::shared_ptr<void> Begin(const std::string& method) {
    Credentials credentials;
    credentials.token = kToken;
    const auto caller = gate_->Admit(credentials, "ipv4:1.2.3.4:5", method);
    EXPECT_TRUE(caller.ok()) << caller.status();
    return gate_->KeepOpen(
        credentials, *caller, method,
        [this](const absl::Status& status) { ended_.push_back(status); });
  }
  void PassASecond() {
    clock_.Advance(absl::Seconds(1));
    gate_->Recheck();
  }

  std::string tokens_ = kToken;
  std::string denied_;
  std::vector<absl::Status> ended_;
  OpenCalls open_;
  FakeClock clock_;
  AuditTrail audit_{&clock_};
  DenialCounts denials_;
  std::unique_ptr<Identities> identities_;
  std::unique_ptr<CallerGate> gate_;
};

TEST_F(CallerGateTest, WhoMayIsLetInAndNothingIsKept) {
  const auto caller = Admit(kToken, kPush);
  ASSERT_TRUE(caller.ok()) << caller.status();
  EXPECT_EQ(caller->identity, "trainer");
  EXPECT_EQ(caller->from, "ipv4:1.2.3.4:5");
  EXPECT_THAT(gate_->Events(0), SizeIs(0));
}

TEST_F(CallerGateTest, ACallEndsWithTheTokenThatItWasMadeWith) {
  const auto push = Begin(kPush);
  ASSERT_NE(push, nullptr);
  EXPECT_EQ(Begin("agg.v1.Coordinator/GetStatus"),
            nullptr);  // answered at once
  PassASecond();
  EXPECT_THAT(ended_, SizeIs(0));
  tokens_ = std::string("another-token-012\n") + kToken;
  PassASecond();
  EXPECT_THAT(ended_, SizeIs(0));
  tokens_ = "another-token-012";
  PassASecond();
  ASSERT_THAT(ended_, SizeIs(1));
  EXPECT_TRUE(absl::IsUnauthenticated(ended_[0]));
  EXPECT_EQ(denials_.count(DenialReason::kBadToken), 1);
  const auto events = gate_->Events(0);
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].who, "trainer");
  EXPECT_EQ(events[0].detail, kPush);
  PassASecond();
  EXPECT_THAT(ended_, SizeIs(1));
}

TEST_F(CallerGateTest, ACallEndsWhenTheDenyListHasItsCaller) {
  const auto push = Begin(kPush);
  denied_ = "identity other\n";
  PassASecond();
  EXPECT_THAT(ended_, SizeIs(0));
  denied_ = "identity other\nidentity trainer\n";
  PassASecond();
  ASSERT_THAT(ended_, SizeIs(1));
  EXPECT_EQ(denials_.count(DenialReason::kDenied), 1);
  EXPECT_TRUE(absl::IsUnauthenticated(Admit(kToken, kPush).status()));
  denied_ = "";
  PassASecond();
  EXPECT_TRUE(Admit(kToken, kPush).ok());
}

// It was admitted just before, and is kept just after the list was looked at.
TEST_F(CallerGateTest, NoCallSlipsInBetween) {
  Credentials credentials;
  credentials.token = kToken;
  const auto caller = Admit(kToken, kPush);
  ASSERT_TRUE(caller.ok());
  denied_ = "identity trainer\n";
  PassASecond();
  const auto late = gate_->KeepOpen(
      credentials, *caller, kPush,
      [this](const absl::Status& status) { ended_.push_back(status); });
  PassASecond();
  EXPECT_THAT(ended_, SizeIs(1));
}

// What a call was begun with is all that is known of it later.
TEST_F(CallerGateTest, ACallEndsWhenTheFirstCertificateIsDenied) {
  Credentials credentials;
  credentials.token = kToken;
  if (gate_->wants_fingerprints()) {
    credentials.fingerprint = std::string(64, 'a');
  }
  const auto caller = gate_->Admit(credentials, "ipv4:1.2.3.4:5", kPush);
  ASSERT_TRUE(caller.ok());
  const auto push = gate_->KeepOpen(
      credentials, *caller, kPush,
      [this](const absl::Status& status) { ended_.push_back(status); });
  denied_ = "certificate " + std::string(64, 'a');
  PassASecond();
  EXPECT_THAT(ended_, SizeIs(1));
}

TEST_F(CallerGateTest, CertificatesAreDeniedByNameAndByFingerprint) {
  const std::string digits(64, 'a');
  const auto admit = [&](const std::string& san, const std::string& digest) {
    Credentials credentials;
    credentials.token = kToken;
    credentials.sans = {san};
    credentials.fingerprint = digest;
    return gate_->Admit(credentials, "", kPush).ok();
  };
  EXPECT_TRUE(admit("spiffe://a/7", digits));
  denied_ = "san spiffe://a/*\n";
  PassASecond();
  EXPECT_FALSE(admit("spiffe://a/7", ""));
  EXPECT_TRUE(admit("spiffe://b/7", ""));
  denied_ = "certificate " + digits;
  PassASecond();
  EXPECT_FALSE(admit("spiffe://a/7", digits));
  EXPECT_TRUE(admit("spiffe://a/7", std::string(64, 'b')));
}

TEST_F(CallerGateTest, RefusalsAreCountedByReasonAndAudited) {
  EXPECT_TRUE(absl::IsUnauthenticated(Admit("", kPush).status()));
  EXPECT_TRUE(
      absl::IsUnauthenticated(Admit("wrong-token-01234", kPush).status()));
  EXPECT_TRUE(
      absl::IsPermissionDenied(Admit(kToken, "agg.v1.Admin/Drain").status()));
  const auto caller = Admit(kToken, kPush);
  ASSERT_TRUE(caller.ok());
  EXPECT_TRUE(
      gate_->CheckSession(*caller, std::string("trainer"), kPush, 7).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(
      gate_->CheckSession(*caller, std::string("other"), kPush, 7)));
  EXPECT_TRUE(absl::IsNotFound(gate_->CheckSession(
      *caller, absl::NotFoundError("no such session"), kPush, 7)));
  EXPECT_EQ(denials_.count(DenialReason::kNoCredential), 1);
  EXPECT_EQ(denials_.count(DenialReason::kBadToken), 1);
  EXPECT_EQ(denials_.count(DenialReason::kRole), 1);
  EXPECT_EQ(denials_.count(DenialReason::kSession), 1);
  const auto events = gate_->Events(0);
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_EQ(events[0].who, "");
  EXPECT_EQ(events[2].who, "trainer");
  EXPECT_EQ(events[2].detail, "agg.v1.Admin/Drain");
  EXPECT_EQ(events[3].session, 7);
  for (const AuditEvent& event : events) {
    EXPECT_EQ(event.outcome.find("wrong-token"), std::string::npos);
  }
}

TEST_F(CallerGateTest, WhatALimitRefusesIsCountedAndAudited) {
  CallLimits few;
  few.max_streams = 1;
  few.max_bytes_in_flight = int64_t{1} << 30;
  CallLimits none = few;
  none.max_sessions = 3;
  CallLimiter limiter(few, {{"trainer", none}}, &clock_);
  const CallerGate gate(
      CallerGate::Parts{identities_.get(), &audit_, &denials_, &limiter});
  Credentials credentials;
  credentials.token = kToken;
  std::shared_ptr<void> first, second;
  const auto caller = gate.Admit(credentials, "ipv4:1.2.3.4:5", kPush, &first);
  ASSERT_TRUE(caller.ok()) << caller.status();
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(gate.max_sessions(*caller), 3);
  const auto refused =
      gate.Admit(credentials, "ipv4:1.2.3.4:5", kPush, &second);
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_EQ(denials_.count(DenialReason::kStreams), 1);
  const auto events = gate.Events(0);
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].who, "trainer");
  EXPECT_EQ(events[0].detail, kPush);
  first = nullptr;
  EXPECT_TRUE(gate.Admit(credentials, "", kPush, &second).ok());
}

TEST_F(CallerGateTest, WhatWasDoneSaysWhoAndFromWhere) {
  const auto caller = Admit(kToken, kPush);
  ASSERT_TRUE(caller.ok());
  AuditEvent event;
  event.action = "join";
  event.rank = 2;
  gate_->NoteDone(*caller, event, absl::OkStatus());
  const auto events = gate_->Events(0);
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].who, "trainer");
  EXPECT_EQ(events[0].from, "ipv4:1.2.3.4:5");
  EXPECT_EQ(events[0].outcome, "OK");
}

TEST(OpenCallerGateTest, LetsEverybodyIn) {
  const auto caller = CallerGate::Open()->Admit({}, "x", "agg.v1.Admin/Drain");
  ASSERT_TRUE(caller.ok());
  EXPECT_FALSE(caller->known);
  EXPECT_TRUE(CallerGate::Open()
                  ->CheckSession(*caller, std::string("other"), kPush, 1)
                  .ok());
}

}  // namespace
}  // namespace agg
