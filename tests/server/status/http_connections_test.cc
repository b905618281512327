// One thread, which the test is, and a clock that it turns.
#include "server/status/http_connections.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "tests/server/status/http_get.h"

namespace agg {
namespace {

constexpr char kRequest[] = "GET / HTTP/1.1\r\n\r\n";

class HttpConnectionsTest : public testing::Test {
 protected:
  HttpConnectionsTest() {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
              0);
    socklen_t num_bytes = sizeof(address);
    EXPECT_EQ(
        getsockname(fd, reinterpret_cast<sockaddr*>(&address), &num_bytes), 0);
    EXPECT_EQ(listen(fd, 64), 0);
    port_ = ntohs(address.sin_port);
    HttpConnections::Limits limits;
    limits.connections = 3;
    connections_ = std::make_unique<HttpConnections>(
        fd, limits, &clock_, [this](uint64_t id, std::string bytes) {
          requests_.emplace_back(id, std::move(bytes));
        });
  }

  // Runs until `done`, which must not need a limit to be reached.
  template <typename Condition>
  void RunUntil(const Condition& done) {
    while (!done()) connections_->RunOnce(absl::Milliseconds(100));
  }
  // A connection that has been accepted.
  std::unique_ptr<HttpClient> Connect(const std::string& first = "") {
    auto client = std::make_unique<HttpClient>(port_);
    EXPECT_TRUE(client->connected());
    if (!first.empty()) {
      EXPECT_TRUE(client->Send(first));
    }
    const uint64_t num_accepted = connections_->num_accepted();
    RunUntil([&] { return connections_->num_accepted() > num_accepted; });
    return client;
  }
  void Pass(absl::Duration time) {
    clock_.Advance(time);
    connections_->RunOnce(absl::ZeroDuration());
  }

  FakeClock clock_;
  int port_ = 0;
  std::vector<std::pair<uint64_t, std::string>> requests_;
  std::unique_ptr<HttpConnections> connections_;
};

TEST_F(HttpConnectionsTest, ARequestMayComeInPiecesAndGetsItsAnswer) {
  auto client = Connect("GET / HT");
  auto other = Connect();
  client->Send("TP/1.1\r\nHost: a\r\n\r");
  connections_->RunOnce(absl::ZeroDuration());
  EXPECT_TRUE(requests_.empty());
  client->Send("\n");
  RunUntil([this] { return !requests_.empty(); });
  EXPECT_EQ(requests_[0].second, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  connections_->Answer(requests_[0].first + 1, "of another that did not ask");
  connections_->Answer(requests_[0].first + 7, "of nobody");
  connections_->Answer(requests_[0].first, "answer");
  connections_->RunOnce(absl::ZeroDuration());
  EXPECT_EQ(client->ReadAll(), "answer");
  EXPECT_FALSE(other->Ended());
  EXPECT_EQ(connections_->num_connections(), 1);
}

TEST_F(HttpConnectionsTest, OfTooManyTheOldestThatIsSilentGives) {
  auto asking = Connect(kRequest);
  RunUntil([this] { return requests_.size() == 1; });
  auto oldest = Connect("GET / HT");
  auto newer = Connect();
  auto newest = Connect(kRequest);
  RunUntil([this] { return requests_.size() == 2; });
  EXPECT_TRUE(oldest->Ended());
  EXPECT_FALSE(newer->Ended());
  EXPECT_EQ(connections_->num_connections(), 3);
  for (const auto& [id, bytes] : requests_) connections_->Answer(id, "answer");
  connections_->RunOnce(absl::ZeroDuration());
  EXPECT_EQ(asking->ReadAll(), "answer");
  EXPECT_EQ(newest->ReadAll(), "answer");
}

TEST_F(HttpConnectionsTest, WhileAllAskOthersWait) {
  std::vector<std::unique_ptr<HttpClient>> asking;
  for (int i = 0; i < 3; ++i) asking.push_back(Connect(kRequest));
  RunUntil([this] { return requests_.size() == 3; });
  HttpClient waiting(port_);
  ASSERT_TRUE(waiting.Send(kRequest));
  connections_->RunOnce(absl::ZeroDuration());
  EXPECT_EQ(requests_.size(), 3u);
  connections_->Answer(requests_[1].first, "answer");
  RunUntil([this] { return requests_.size() == 4; });
  EXPECT_EQ(asking[1]->ReadAll(), "answer");
  connections_->Answer(requests_[3].first, "fourth");
  connections_->RunOnce(absl::ZeroDuration());
  EXPECT_EQ(waiting.ReadAll(), "fourth");
}

TEST_F(HttpConnectionsTest, ASilentOneHasFiveSeconds) {
  auto silent = Connect("GET /");
  auto asking = Connect(kRequest);
  RunUntil([this] { return !requests_.empty(); });
  Pass(absl::Milliseconds(4900));
  EXPECT_EQ(connections_->num_connections(), 2);
  Pass(absl::Milliseconds(100));
  EXPECT_TRUE(silent->Ended());
  // Its answer may take as long as it takes.
  Pass(absl::Hours(1));
  connections_->Answer(requests_[0].first, "answer");
  connections_->RunOnce(absl::ZeroDuration());
  EXPECT_EQ(asking->ReadAll(), "answer");
}

TEST_F(HttpConnectionsTest, AnAnswerIsThereForTenSeconds) {
  auto slow = Connect(kRequest);
  RunUntil([this] { return !requests_.empty(); });
  const std::string large(100 << 20, 'x');  // more than any socket's buffers
  connections_->Answer(requests_[0].first, large);
  connections_->RunOnce(absl::ZeroDuration());
  auto other = Connect(kRequest);
  RunUntil([this] { return requests_.size() == 2; });
  connections_->Answer(requests_[1].first, "answer");
  RunUntil([this] { return connections_->num_connections() == 1; });
  EXPECT_EQ(other->ReadAll(), "answer");
  Pass(absl::Milliseconds(9900));
  EXPECT_EQ(connections_->num_connections(), 1);
  Pass(absl::Milliseconds(100));
  EXPECT_EQ(connections_->num_connections(), 0);
  EXPECT_LT(slow->ReadAll().size(), large.size());
}

// Those that do not read give way, too, but after the silent ones.
TEST_F(HttpConnectionsTest, OneThatDoesNotTakeItsAnswerGives) {
  auto slow = Connect(kRequest);
  RunUntil([this] { return !requests_.empty(); });
  connections_->Answer(requests_[0].first, std::string(100 << 20, 'x'));
  connections_->RunOnce(absl::ZeroDuration());
  auto silent = Connect();
  auto second = Connect(kRequest);
  auto third = Connect(kRequest);
  RunUntil([this] { return requests_.size() == 3; });
  EXPECT_TRUE(silent->Ended());
  EXPECT_EQ(connections_->num_connections(), 3);
  auto fourth = Connect(kRequest);
  RunUntil([this] { return requests_.size() == 4; });
  EXPECT_LT(slow->ReadAll().size(), size_t{100} << 20);
}

TEST_F(HttpConnectionsTest, TooLongARequestIsNotReadToItsEnd) {
  auto client = Connect();
  ASSERT_TRUE(client->Send(std::string(size_t{16} << 10, 'x')));
  RunUntil([this] { return connections_->num_connections() == 0; });
  EXPECT_TRUE(requests_.empty());
}

// A socket that is closed with unread bytes drops what it has yet to send.
TEST_F(HttpConnectionsTest, BytesBeyondARequestDoNotCutItsAnswerOff) {
  auto client = Connect(kRequest);
  RunUntil([this] { return !requests_.empty(); });
  ASSERT_TRUE(client->Send(std::string(8000, 'x')));
  const std::string answer(300000, 'a');
  connections_->Answer(requests_[0].first, answer);
  RunUntil([this] { return connections_->num_connections() == 0; });
  EXPECT_EQ(client->ReadAll().size(), answer.size());
}

TEST_F(HttpConnectionsTest, AClientMayHangUp) {
  Connect("GET /");
  auto asking = Connect(kRequest);
  RunUntil([this] { return !requests_.empty(); });
  RunUntil([this] { return connections_->num_connections() == 1; });
  asking = nullptr;
  connections_->Answer(requests_[0].first, "answer");
  connections_->RunOnce(absl::ZeroDuration());
  EXPECT_EQ(connections_->num_connections(), 0);
}

}  // namespace
}  // namespace agg
