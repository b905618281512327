// `aggctl checkpoint` against a service that answers as a test likes: a real
// one that takes long would need a slow disk.
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/admin.grpc.pb.h"
#include "worker_client/tools/admin_client.h"
#include "worker_client/tools/aggctl_commands.h"
#include "worker_client/tools/aggctl_flags.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

class FakeAdmin : public v1::Admin::Service {
 public:
  grpc::Status TakeCheckpoint(grpc::ServerContext* context,
                              const v1::TakeCheckpointRequest*,
                              v1::TakeCheckpointReply* reply) override {
    asked_for = absl::FromChrono(context->deadline()) - absl::Now();
    reply->set_version(7);
    reply->set_made(9);
    reply->set_bytes(100);
    return answer;
  }

  grpc::Status answer;
  absl::Duration asked_for;  // until the caller's deadline
};

class AggctlCheckpointTest : public testing::Test {
 protected:
  AggctlCheckpointTest() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(&admin_);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }

  AggctlResult Run(const std::vector<std::string>& arguments) {
    const absl::StatusOr<AggctlFlags> flags =
        ParseAggctlFlags(arguments, address_.c_str());
    EXPECT_TRUE(flags.ok()) << flags.status();
    const AggctlOutput output = {[this](const std::string& text) {
                                   printed_ += text;
                                   return true;
                                 },
                                 /*terminal=*/false};
    return RunAggctl(*flags, output);
  }

  FakeAdmin admin_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::string printed_;
};

TEST_F(AggctlCheckpointTest, PrintsVersionBytesAndFolder) {
  EXPECT_EQ(Run({"checkpoint"}).message, "");
  EXPECT_EQ(printed_, "version 7 is saved: 100 bytes, in the folder 9-7\n");
  printed_ = "";
  EXPECT_TRUE(Run({"checkpoint", "--output=json"}).ok());
  EXPECT_THAT(printed_, HasSubstr("\"version\":\"7\",\"made\":\"9\""));
}

// --timeout is for answers that come at once; this one comes when all is
// written.
TEST_F(AggctlCheckpointTest, WaitsLongerThanForOtherAnswers) {
  ASSERT_TRUE(Run({"checkpoint", "--timeout=1"}).ok());
  EXPECT_GT(admin_.asked_for, absl::Minutes(5));
  ASSERT_TRUE(Run({"checkpoint", "--wait=3000"}).ok());
  EXPECT_GT(admin_.asked_for, absl::Minutes(40));
}

TEST_F(AggctlCheckpointTest, SaysWhyThereIsNone) {
  admin_.answer = {grpc::StatusCode::FAILED_PRECONDITION, "no path"};
  AggctlResult result = Run({"checkpoint"});
  EXPECT_EQ(result.code, kAggctlRefused);
  EXPECT_EQ(result.message, "FAILED_PRECONDITION: no path");
  admin_.answer = {grpc::StatusCode::DEADLINE_EXCEEDED, ""};
  result = Run({"checkpoint", "--wait=90"});
  EXPECT_EQ(result.code, kAggctlTimedOut);
  EXPECT_THAT(result.message, HasSubstr("has not answered within 1m30s"));
}

// Whatever of a reply nobody has thought of: a phase, a rule's name.
TEST(AggctlEmitTest, NothingThatATerminalObeysIsPrinted) {
  std::string printed;
  const AggctlOutput output = {[&](const std::string& text) {
                                 printed += text;
                                 return true;
                               },
                               /*terminal=*/true};
  EXPECT_TRUE(
      Emit(output, "open\x1b[2J\nmean\xe2\x80\xae\xc2\x9b \xc3\xa9\n").ok());
  EXPECT_EQ(printed, "open\\x1b[2J\nmean\\u202e\\u009b \xc3\xa9\n");
}

}  // namespace
}  // namespace agg
