// How long a call that an epoch's end has failed waits for the reason.
#include "worker_client/membership.h"

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>  // NOLINT
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/agg.grpc.pb.h"
#include "proto/status_conversion.h"
#include "server/base/clock.h"
#include "server/base/field_error.h"
#include "server/base/file_descriptor.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/fake_job.h"
#include "tests/worker_client/recovery_fixture.h"
#include "worker_client/channel.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Stands still; who calls Persist may do something each time that it looks.
class LookedAtClock : public Clock {
 public:
  absl::Time Now() const override {
    if (std::this_thread::get_id() == watched_ && on_look_) on_look_();
    return clock_.Now();
  }
  void Advance(absl::Duration duration) { clock_.Advance(duration); }
  // REQUIRES: Persist is not called meanwhile.
  void Watch(std::function<void()> on_look) { on_look_ = std::move(on_look); }

 private:
  const std::thread::id watched_ = std::this_thread::get_id();
  FakeClock clock_;
  std::function<void()> on_look_;
};

class MembershipTest : public RecoveryTest {
 protected:
  void Open() {
    ClientOptions options = Options();
    options.recovery_window = absl::ZeroDuration();
    auto opened = Membership::Open(options, &clock);
    ASSERT_TRUE(opened.ok()) << opened.status();
    membership = *std::move(opened);
  }

  absl::Status Persist() {
    return membership->Persist(
        absl::InfiniteFuture(),
        [](const Membership::View&) { return absl::AbortedError("stale"); });
  }

  LookedAtClock clock;  // outlives the membership
  std::unique_ptr<Membership> membership;
  int looks = 0;
};

TEST_F(MembershipTest, TheReasonThatComesMeanwhileIsSaid) {
  ASSERT_NO_FATAL_FAILURE(Open());
  job.End(kReason, /*said=*/false);
  clock.Watch([this] {
    // When the call began, when the wait did, and then in it.
    if (++looks == 3) job.End(kReason);
    // Without a reason this ends, too, but far later than it can come.
    clock.Advance(absl::Milliseconds(1));
  });
  const absl::Status status = Persist();
  clock.Watch(nullptr);
  EXPECT_THAT(std::string(status.message()), HasSubstr(kReason));
  EXPECT_GE(looks, 3);
}

TEST_F(MembershipTest, WithoutAReasonTheCallFailsAfterTwoSeconds) {
  ASSERT_NO_FATAL_FAILURE(Open());
  job.End(kReason, /*said=*/false);
  clock.Watch([this] {
    if (++looks > 2) clock.Advance(absl::Milliseconds(500));
  });
  EXPECT_EQ(Persist(), absl::AbortedError("stale"));
  clock.Watch(nullptr);
  EXPECT_EQ(looks, 2 + 4);  // at 0.5, 1, 1.5 and 2 s
}

TEST_F(MembershipTest, ACallWhoseEpochGoesOnWaitsForNothing) {
  ASSERT_NO_FATAL_FAILURE(Open());
  clock.Watch([this] { ++looks; });
  EXPECT_EQ(Persist(), absl::AbortedError("stale"));
  clock.Watch(nullptr);
  EXPECT_EQ(looks, 1);
}

constexpr absl::Time kStart = absl::UnixEpoch();

TEST(WaitReportTest, SaysAReasonAtOnceAndAChangedOneLater) {
  std::vector<std::string> said;
  ClientOptions options;
  options.on_event = [&said](const ClientEvent& event) {
    said.push_back(event.message);
  };
  WaitReport report(options, ClientEvent::Kind::kWaiting);
  EXPECT_TRUE(report.Due(kStart));
  report.Say("a", kStart);
  const absl::Time early = kStart + WaitReport::kSayAgain - absl::Seconds(1);
  EXPECT_FALSE(report.Due(early));
  report.Say("b", early);
  EXPECT_THAT(said, ElementsAre("a"));
  const absl::Time next = kStart + WaitReport::kSayAgain;
  EXPECT_TRUE(report.Due(next));
  report.Say("b", next);
  EXPECT_THAT(said, ElementsAre("a", "b"));
}

// To find the reason may take a second.
TEST(WaitReportTest, AReasonThatHasNotChangedIsNotAskedForAllTheTime) {
  int times = 0;
  ClientOptions options;
  options.on_event = [&times](const ClientEvent&) { ++times; };
  WaitReport report(options, ClientEvent::Kind::kWaiting);
  report.Say("a", kStart);
  const absl::Time next = kStart + WaitReport::kSayAgain;
  report.Say("a", next);
  EXPECT_FALSE(report.Due(next + absl::Seconds(1)));
  EXPECT_EQ(times, 1);
}

TEST(WaitReportTest, WhereNobodyListensNothingIsDue) {
  const ClientOptions options;
  const WaitReport report(options, ClientEvent::Kind::kWaiting);
  EXPECT_FALSE(report.Due(kStart));
}

// The lease follows the stream's clock and not the system's: what a process
// spent frozen must not end its session (P31).

// Stands still, and counts who asks.
class CountingClock : public Clock {
 public:
  absl::Time Now() const override {
    std::lock_guard<std::mutex> lock(mutex_);
    ++calls_;
    changed_.notify_all();
    return now_;
  }
  void Advance(absl::Duration duration) {
    std::lock_guard<std::mutex> lock(mutex_);
    now_ += duration;
  }
  void AwaitCalls(int more) {
    std::unique_lock<std::mutex> lock(mutex_);
    const int wanted = calls_ + more;
    changed_.wait(lock, [&] { return calls_ >= wanted; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int calls_ = 0;
  absl::Time now_ = absl::FromUnixSeconds(1000000000);
};

class Lost {
 public:
  void Set(absl::Status status) {
    std::lock_guard<std::mutex> lock(mutex_);
    status_ = std::move(status);
    changed_.notify_all();
  }
  bool IsSet() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return !status_.ok();
  }
  absl::Status Await() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return !status_.ok(); });
    return status_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status status_;
};

TEST(LeaseKeeperTest, OnlyTheClocksTimeEndsALease) {
  // Answers the first renewal and no other.
  FakeJob job(TwoTensors(), FakeJob::Options());
  CountingClock clock;
  Lost lost;
  LeaseOptions options;
  options.coordinator = {0, job.coordinator()};
  options.lease.channel = MakeChannel(job.coordinator());
  // Renewed each 10 ms of the system's time.
  options.lease.duration = absl::Milliseconds(30);
  options.reconnect_window = absl::Seconds(1);
  options.clock = &clock;
  options.on_event = [](const v1::JobEvent&) {};
  options.on_lost = [&](absl::Status status) {
    lost.Set(std::move(status));
    return absl::nullopt;
  };
  const LeaseKeeper keeper(std::move(options));

  // More than three leases by the system's time.
  clock.AwaitCalls(12);
  EXPECT_FALSE(lost.IsSet());

  clock.Advance(absl::Milliseconds(31));
  EXPECT_THAT(std::string(lost.Await().message()),
              HasSubstr("has answered no lease renewal for 30ms"));
}

// Nobody polls gRPC meanwhile, and the next renewal is far away.
TEST(LeaseKeeperTest, WhatTheCoordinatorSaysIsHeardBetweenRenewals) {
  FakeJob job(TwoTensors(), FakeJob::Options());
  Lost heard;
  LeaseOptions options;
  options.coordinator = {0, job.coordinator()};
  options.lease.channel = MakeChannel(job.coordinator());
  options.lease.duration = absl::Hours(1);
  options.reconnect_window = absl::Seconds(1);
  options.on_event = [&](const v1::JobEvent& event) {
    heard.Set(absl::UnknownError(event.message()));
  };
  options.on_lost = [](absl::Status) { return absl::nullopt; };
  const LeaseKeeper keeper(std::move(options));
  job.Send(v1::JobEvent::WAITING, "for rank 1");
  EXPECT_EQ(heard.Await().message(), "for rank 1");
}

// The window would be waited for in vain.
TEST(LeaseKeeperTest, WhatEndsWithItsProcessIsNotTriedAgain) {
  FakeJob job(TwoTensors(), FakeJob::Options());
  Lost lost;
  LeaseOptions options;
  options.coordinator = {0, job.coordinator()};
  options.lease.channel = MakeChannel(job.coordinator());
  options.lease.duration = absl::Hours(1);
  options.lease.gone_if_broken = true;
  options.reconnect_window = absl::InfiniteDuration();
  options.on_event = [](const v1::JobEvent&) {};
  options.on_lost = [&](absl::Status status) {
    lost.Set(std::move(status));
    return absl::nullopt;
  };
  const LeaseKeeper keeper(std::move(options));
  job.Stop(0);
  EXPECT_EQ(lost.Await().code(), absl::StatusCode::kUnavailable);
}

// How often a client that waits to join looks for the reason.

// Hangs up on each connection once it has heard its first byte.
class HangsUp {
 public:
  HangsUp() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener_.get(), any, size), 0);
    EXPECT_EQ(listen(listener_.get(), 100), 0);
    EXPECT_EQ(getsockname(listener_.get(), any, &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { Run(); });
  }
  ~HangsUp() { Stop(); }

  const std::string& address() const { return address_; }
  // The connections that began with TLS's first byte.
  int Stop() {
    if (thread_.joinable()) {
      shutdown(listener_.get(), SHUT_RDWR);
      thread_.join();
    }
    return hellos_;
  }

 private:
  void Run() {
    while (true) {
      const FileDescriptor peer(accept(listener_.get(), nullptr, nullptr));
      if (!peer.valid()) return;
      unsigned char first = 0;
      if (recv(peer.get(), &first, 1, 0) == 1 && first == 0x16) ++hellos_;
    }
  }

  const FileDescriptor listener_;
  std::string address_;
  int hellos_ = 0;
  std::thread thread_;
};

// Not with each attempt: that would be a connection more each half second.
TEST(JoinCallTest, TheReasonIsLookedForOnceWhereNobodyListens) {
  HangsUp server;
  ClientOptions options;
  options.observer = true;
  options.connect_timeout = absl::Seconds(2);
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(server.address());
  const auto stub = v1::Coordinator::NewStub(channel);
  const absl::Status status =
      JoinJob(options, {0, server.address()}, channel.get(), stub.get())
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tried for connect_timeout, 2s"));
  EXPECT_EQ(server.Stop(), 1);
}

// A coordinator that has as many callers as it takes, for a while.
class Full : public v1::Coordinator::Service {
 public:
  explicit Full(int refusals) : refusals_(refusals) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }

  const std::string& address() const { return address_; }
  int calls() const { return calls_; }

  grpc::Status Observe(grpc::ServerContext*, const v1::ObserveRequest*,
                       v1::JoinReply*) override {
    if (++calls_ > refusals_) return grpc::Status::OK;
    return ToGrpcStatus(
        LimitError("max_waiting_calls", "all callers", "4", "4"));
  }

 private:
  const int refusals_;
  std::atomic<int> calls_{0};
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

absl::Status Observe(const std::string& address, absl::Duration timeout) {
  ClientOptions options;
  options.observer = true;
  options.connect_timeout = timeout;
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(address);
  const auto stub = v1::Coordinator::NewStub(channel);
  return JoinJob(options, {0, address}, channel.get(), stub.get()).status();
}

// 20 ms, 40 ms and so on up to 500 ms apart: 8 times in two seconds.
TEST(JoinCallTest, WhoIsRefusedByALimitPausesBetweenCalls) {
  Full server(/*refusals=*/1 << 30);
  const absl::Status status = Observe(server.address(), absl::Seconds(2));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("max_waiting_calls of all callers is 4; allowed: 4"));
  EXPECT_LE(server.calls(), 20);
}

TEST(JoinCallTest, WhoIsRefusedByALimitComesAgain) {
  Full server(/*refusals=*/2);
  EXPECT_TRUE(Observe(server.address(), absl::Minutes(2)).ok());
  EXPECT_EQ(server.calls(), 3);
}

}  // namespace
}  // namespace agg
