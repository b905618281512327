// What a worker writes down, and what it says when it cannot.
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/worker_client/recovery_fixture.h"
#include "worker_client/row_ledger.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string FreshFile(const std::string& name) {
  const std::string path = testing::TempDir() + "/" + name;
  std::remove(path.c_str());
  return path;
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> LinesOf(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

AuditedPush SomePush() {
  AuditedPush push;
  push.rank = 3;
  push.row.round = 5;
  push.row.session = 9223372036854775807u;
  push.row.attempt = 1;
  push.row_crc32c = {4294967295u, 0};
  push.included = true;
  push.version = 6;
  push.made = 1700000000123456;
  return push;
}

constexpr char kLine[] =
    "{\"round\":5,\"rank\":3,\"session\":9223372036854775807,\"attempt\":1,"
    "\"row_crc32c\":[4294967295,0],\"included\":true,\"version\":6,"
    "\"made\":1700000000123456,\"rewound\":false}";

TEST(AuditLogTest, LinesAreAppended) {
  const std::string path = FreshFile("audit.log");
  std::vector<std::string> errors;
  const auto on_error = [&](const std::string& e) { errors.push_back(e); };
  { AuditLog(path, on_error).Add(SomePush()); }
  { AuditLog(path, on_error).Add(SomePush()); }
  EXPECT_THAT(LinesOf(path), ElementsAre(kLine, kLine));
  // A piece of a line, as a full disk leaves it.
  std::ofstream(path) << "{\"round\":";
  { AuditLog(path, on_error).Add(SomePush()); }
  EXPECT_THAT(LinesOf(path), ElementsAre("{\"round\":", kLine));
  EXPECT_THAT(errors, IsEmpty());
  AuditLog("", on_error).Add(SomePush());
  EXPECT_THAT(errors, IsEmpty());
}

TEST(AuditLogTest, ARowHasOneLineUnlessItsRoundIsGivenUp) {
  const std::string path = FreshFile("once.log");
  AuditLog log(path, [](const std::string&) {});
  AuditedPush push = SomePush();
  log.Add(push);
  log.Add(push);  // asked again, by a round that was cancelled and goes on
  EXPECT_THAT(LinesOf(path), ElementsAre(kLine));
  push.rewound = true;
  log.Add(push);
  push = SomePush();
  ++push.row.attempt;
  log.Add(push);
  log.Add(SomePush());
  EXPECT_EQ(LinesOf(path).size(), 4u);
}

TEST(AuditLogTest, AnErrorIsSaidOnce) {
  std::vector<std::string> errors;
  const auto on_error = [&](const std::string& e) { errors.push_back(e); };
  AuditLog missing("/no/such/folder/audit.log", on_error);
  missing.Add(SomePush());
  EXPECT_THAT(errors, ElementsAre(HasSubstr("/no/such/folder/audit.log: ")));
  errors.clear();
  // Nobody reads it: this must not wait.
  const std::string fifo = FreshFile("audit.fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  AuditLog other(fifo, on_error);
  other.Add(SomePush());
  EXPECT_THAT(errors, ElementsAre(HasSubstr("not a regular file")));
}

TEST_F(RecoveryTest, EachRoundHasALine) {
  ClientOptions options = Options();
  options.audit_log = FreshFile("rounds.log");
  Begin(options);
  ASSERT_TRUE(Step(0.5f).ok());
  ASSERT_TRUE(StepThrough(0.25f, [&] { job.CloseWithout(); }).ok());
  ASSERT_TRUE(StepThrough(0.75f, [&] { job.Rewind(1); }).ok());
  const std::string session =
      "\"session\":" + std::to_string(client->session());
  EXPECT_THAT(LinesOf(options.audit_log),
              ElementsAre(AllOf(HasSubstr("{\"round\":0,\"rank\":0," + session),
                                HasSubstr("\"attempt\":0,"),
                                HasSubstr("\"included\":true,\"version\":1,"
                                          "\"made\":1000,\"rewound\":false")),
                          AllOf(HasSubstr("{\"round\":1,"),
                                HasSubstr("\"included\":false,\"version\":2,")),
                          AllOf(HasSubstr("{\"round\":2,"),
                                HasSubstr("\"included\":false,\"version\":1,"),
                                HasSubstr("\"rewound\":true"))));
  EXPECT_THAT(TextOf(options.audit_log), Not(HasSubstr("\"row_crc32c\":[]")));
}

TEST_F(RecoveryTest, ALogThatCannotBeWrittenDisturbsNothing) {
  ClientOptions options = Options();
  options.audit_log = "/no/such/folder/audit.log";
  Begin(options);
  ASSERT_TRUE(Step(0.5f).ok());
  EXPECT_THAT(ToString(heard.Await(ClientEvent::Kind::kAuditLog)),
              HasSubstr("the audit log is not complete: /no/such/folder/"));
}

}  // namespace
}  // namespace agg
