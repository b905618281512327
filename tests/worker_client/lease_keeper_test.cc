// The lease follows the stream's clock and not the system's: what a process
// spent frozen must not end its session (P31).
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/fake_job.h"
#include "worker_client/channel.h"
#include "worker_client/membership.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace agg
