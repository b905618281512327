#include "worker_client/tools/doctor_config.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/file_descriptor.h"
#include "tests/server/tls/test_certificates.h"

namespace agg {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kGibibyte = int64_t{1} << 30;

// A loopback port that somebody listens on.
class TakenPort {
 public:
  TakenPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(socket_.get(), any, size), 0);
    EXPECT_EQ(listen(socket_.get(), 1), 0);
    EXPECT_EQ(getsockname(socket_.get(), any, &size), 0);
    port_ = ntohs(address.sin_port);
  }

  int port() const { return port_; }

 private:
  const FileDescriptor socket_;
  int port_ = 0;
};

// A port that was free a moment ago.
int FreePort() { return TakenPort().port(); }

class DoctorConfigTest : public testing::Test {
 protected:
  DoctorConfigTest() : folder_(testing::TempDir() + "doctor_config_XXXXXX") {
    EXPECT_NE(mkdtemp(&folder_[0]), nullptr);
  }

  std::string Write(const std::string& name, const std::string& text,
                    mode_t mode = 0600) {
    const std::string path = absl::StrCat(folder_, "/", name);
    std::ofstream(path) << text;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }

  // Of a valid job of one shard on a free port, with `more` behind it.
  Findings Check(const std::string& more, int64_t parameters = 0,
                 int64_t granted = 4 * kGibibyte) {
    return CheckConfigFile(
        Write("job.textproto",
              absl::StrCat("workers: 2 learning_rate { rate: 0.1 } ", more)),
        parameters, {granted, "cgroup limit"}, absl::Now());
  }
  Findings CheckOn(int port, const std::string& more) {
    return Check(absl::StrCat("shards: '127.0.0.1:", port, "' ", more));
  }
  std::string TextOn(const std::string& more) {
    return FindingsText(CheckOn(FreePort(), more));
  }

  std::string folder_;
};

TEST_F(DoctorConfigTest, NothingIsWrong) {
  const Findings findings = CheckOn(FreePort(), "");
  EXPECT_TRUE(findings.ok()) << FindingsText(findings);
  EXPECT_THAT(
      FindingsText(findings),
      HasSubstr("note     each of 1 shard here may plan 3276 MiB of the "
                "4096 MiB (cgroup limit) there are\n"));
}

TEST_F(DoctorConfigTest, WhatTheServerWouldRefuse) {
  EXPECT_THAT(TextOn("lease_seconds: -1 wrokers: 2"),
              AllOf(HasSubstr("error    lease_seconds is -1; allowed: "),
                    HasSubstr("job.textproto:1:"), HasSubstr("wrokers")));
  const Findings missing =
      CheckConfigFile(folder_ + "/none", 0, {0, "unknown"}, absl::Now());
  EXPECT_THAT(FindingsText(missing),
              AllOf(HasSubstr("error    --config is "),
                    HasSubstr("No such file or directory")));
}

TEST_F(DoctorConfigTest, PortsThatAreTaken) {
  const TakenPort taken;
  EXPECT_THAT(
      FindingsText(CheckOn(taken.port(), "")),
      HasSubstr(absl::StrCat("error    shards[0] is \"127.0.0.1:", taken.port(),
                             "\": nobody can listen on port ", taken.port(),
                             " of 127.0.0.1 here: Address already in use\n")));
  EXPECT_THAT(
      TextOn(absl::StrCat("metrics { port: ", taken.port(), " }")),
      HasSubstr(absl::StrCat("error    metrics.port: nobody can listen on "
                             "port ",
                             taken.port())));
}

// As http_rules has them, also where a shard has another address.
TEST_F(DoctorConfigTest, TheMetricsPortIsWhereTheServerHasIt) {
  const TakenPort taken;  // of 127.0.0.1 alone
  const std::string busy =
      absl::StrCat("metrics.port: nobody can listen on port ", taken.port());
  const std::string port = absl::StrCat("metrics { port: ", taken.port());
  EXPECT_THAT(TextOn(port + " bind: '127.0.0.2' }"), Not(HasSubstr(busy)));
  EXPECT_THAT(TextOn(port + " bind: '127.0.0.1' }"), HasSubstr(busy));
  // All of loopback is one host, of which the second shard has the next port.
  const std::string shards =
      absl::StrCat("shards: '127.0.0.1:", FreePort(),
                   "' shards: 'localhost:", FreePort(), "' ");
  EXPECT_THAT(FindingsText(Check(absl::StrCat(
                  shards, "metrics { port: ", taken.port() - 1, " }"))),
              HasSubstr(busy));
  EXPECT_THAT(FindingsText(Check(shards + "metrics { port: 65535 }")),
              HasSubstr("metrics.port: that of shard 1 would be 65536\n"));
}

// A name of the domain that is never there (RFC 6761).
TEST_F(DoctorConfigTest, AddressesThatAreNobodysOrElsewhere) {
  const Findings findings =
      Check("shards: 'nobody.invalid:50051' security { insecure: true }");
  EXPECT_THAT(FindingsText(findings),
              AllOf(HasSubstr("error    shards[0] is "
                              "\"nobody.invalid:50051\": the host cannot be "
                              "looked up"),
                    HasSubstr("note     none of the shards has an address of "
                              "this machine")));
  // One of those for documents (RFC 5737).
  EXPECT_THAT(FindingsText(Check("shards: '192.0.2.1:50051'")),
              HasSubstr("error    shards are beyond loopback "
                        "(192.0.2.1:50051), without security.tls\n"));
}

TEST_F(DoctorConfigTest, FoldersAndFiles) {
  const std::string file = Write("file", "");
  EXPECT_THAT(
      TextOn(absl::StrCat("checkpoint { path: '", folder_,
                          "/none' } round_log { path: '", file, "/rounds' } ")),
      AllOf(HasSubstr("error    checkpoint.path is \"" + folder_ +
                      "/none\": No such file or directory\n"),
            HasSubstr("error    the folder of round_log.path is \"" + file +
                      "\": it is no folder\n")));
  EXPECT_THAT(TextOn(absl::StrCat("checkpoint { path: '", folder_,
                                  "' restore_job: 'other' }")),
              HasSubstr("error    checkpoint.restore_job is \"other\": " +
                        folder_ + "/other: No such file or directory\n"));
  EXPECT_TRUE(CheckOn(FreePort(), absl::StrCat("checkpoint { path: '", folder_,
                                               "' } round_log { path: '",
                                               folder_, "/rounds' }"))
                  .ok());
}

// The dry run of a start.
TEST_F(DoctorConfigTest, WhatAStartWouldGoOnFrom) {
  const std::string checkpoint = "checkpoint { path: '" + folder_ + "' ";
  EXPECT_THAT(TextOn("job: 'a' " + checkpoint + "}"),
              HasSubstr("note     this machine's folder has no sealed "
                        "checkpoint: "));
  for (const char* name : {"7-45", "8-9"}) {
    const std::string made = absl::StrCat(folder_, "/a/", name);
    std::filesystem::create_directories(made);
    Write(absl::StrCat("a/", name, "/manifest.json"), "{}");
    Write(absl::StrCat("a/", name, "/part-00001-of-00002.npz"), "");
  }
  std::filesystem::create_directories(folder_ + "/a/9-1");  // not sealed
  EXPECT_THAT(TextOn("job: 'a' " + checkpoint + "}"),
              HasSubstr("here that is " + folder_ +
                        "/a/8-9, with part-00001-of-00002.npz\n"));
  EXPECT_THAT(TextOn("job: 'b' " + checkpoint + "restore_job: 'a' }"),
              HasSubstr("here that is " + folder_ + "/a/8-9, with "));
  EXPECT_THAT(TextOn("job: 'a' " + checkpoint + "restore: 'none' }"),
              HasSubstr("checkpoint.restore is \"none\": a start begins anew "
                        "beside " +
                        folder_ + "/a/8-9"));
}

// Root may write everywhere, and is another user while it asks. That user may
// not pass each folder on the way to the tests' own.
class DoctorConfigUserTest : public DoctorConfigTest {
 protected:
  DoctorConfigUserTest() {
    EXPECT_NE(mkdtemp(&open_[0]), nullptr);
    EXPECT_EQ(chmod(open_.c_str(), 0755), 0);
  }
  ~DoctorConfigUserTest() override {
    std::error_code error;
    std::filesystem::remove_all(open_, error);
    EXPECT_FALSE(error) << error.message();
  }

  std::string TextAsOther(const std::string& more) {
    const std::string config = open_ + "/job.textproto";
    std::ofstream(config) << "shards: '127.0.0.1:" << FreePort()
                          << "' workers: 2 learning_rate { rate: 0.1 } "
                          << more;
    EXPECT_EQ(chmod(config.c_str(), 0644), 0);
    const uid_t user = geteuid();
    constexpr uid_t kNobody = 65534;
    if (user == 0) {
      EXPECT_EQ(seteuid(kNobody), 0);
    }
    const Findings findings =
        CheckConfigFile(config, 0, {kGibibyte, "MemTotal"}, absl::Now());
    EXPECT_EQ(seteuid(user), 0);
    return FindingsText(findings);
  }
  std::string Folder(const std::string& name, mode_t mode) {
    const std::string path = absl::StrCat(open_, "/", name);
    EXPECT_EQ(mkdir(path.c_str(), 0755), 0);
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }

  std::string open_ = "/tmp/doctor_config_XXXXXX";
};

TEST_F(DoctorConfigUserTest, AFolderThatThisUserMayNotWrite) {
  EXPECT_THAT(
      TextAsOther("checkpoint { path: '" + Folder("sealed", 0555) + "' }"),
      HasSubstr("may not read and write: Permission denied"));
}

// The server opens the file, and needs the folder for another one.
TEST_F(DoctorConfigUserTest, TheFolderOfAFileThatIsWritten) {
  const auto text_of = [&](const std::string& folder) {
    return TextAsOther("round_log { path: '" + folder + "/rounds' }");
  };
  EXPECT_THAT(text_of(Folder("unlisted", 0333)),
              Not(HasSubstr("round_log.path")));
  const std::string folder = Folder("closed", 0755);
  EXPECT_EQ(chmod(folder.c_str(), 0555), 0);
  EXPECT_THAT(text_of(folder),
              HasSubstr("error    the folder of round_log.path is "));
  EXPECT_EQ(chmod(folder.c_str(), 0755), 0);
  std::ofstream(folder + "/rounds") << "";
  EXPECT_EQ(chmod((folder + "/rounds").c_str(), 0666), 0);
  EXPECT_EQ(chmod(folder.c_str(), 0555), 0);
  EXPECT_THAT(text_of(folder),
              AllOf(HasSubstr("warning  the folder of round_log.path is "),
                    Not(HasSubstr("error    "))));
  EXPECT_EQ(chmod(folder.c_str(), 0755), 0);  // so that it can be removed
}

TEST_F(DoctorConfigTest, AFolderThatCannotBeListed) {
  Write("a", "no folder");
  EXPECT_THAT(TextOn("job: 'a' checkpoint { path: '" + folder_ + "' }"),
              HasSubstr("error    checkpoint.path: " + folder_ +
                        "/a cannot be listed: Not a directory\n"));
}

// A disk has room for those that are there already.
TEST_F(DoctorConfigTest, TheDiskIsForCheckpointsThatAreToCome) {
  const std::string job =
      absl::StrCat("shards: '127.0.0.1:", FreePort(),
                   "' job: 'a' checkpoint { path: '", folder_, "' keep: 3 }");
  constexpr int64_t kParameters = 10'000'000'000'000;
  EXPECT_THAT(FindingsText(Check(job, kParameters)),
              HasSubstr(" are free, and the 4 checkpoints "));
  for (const char* name : {"7-1", "7-2", "8-2"}) {
    std::filesystem::create_directories(absl::StrCat(folder_, "/a/", name));
    Write(absl::StrCat("a/", name, "/manifest.json"), "{}");
  }
  EXPECT_THAT(FindingsText(Check(job, kParameters)),
              HasSubstr(" are free, and the 2 checkpoints "));
}

TEST_F(DoctorConfigTest, FilesOfTokens) {
  const std::string secret = "0123456789abcdef0123456789abcdef";
  const std::string open = Write("open", secret + "\n", 0644);
  const std::string broken = Write("broken", secret + "\x01\n");
  const std::string text = TextOn(absl::StrCat(
      "security { shard_token_file: '", open, "' identities { name: 'a' ",
      "roles: 'admin' token_file: '", broken, "' } identities { name: 'b' ",
      "roles: 'worker' token_file: '", folder_, "/none' } denied_file: '",
      folder_, "/denied' }"));
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("warning  security.shard_token_file is \"" + open +
                      "\": others than its owner may read it (mode 0644)\n"),
            HasSubstr("error    security.identities[0].token_file is \"" +
                      broken + "\": line 1 "),
            HasSubstr("error    security.identities[1].token_file is \"" +
                      folder_ + "/none\": No such file or directory\n"),
            HasSubstr("error    security.denied_file is "),
            Not(HasSubstr(secret))));
}

TEST_F(DoctorConfigTest, FilesOfTls) {
  TestCa ca;
  TestRequest request;
  request.to = absl::Now() + absl::Hours(24 * 30);
  ca.Issue("good", request);
  request.names = "DNS:elsewhere.example";
  request.to = absl::Now() + absl::Hours(24);
  ca.Issue("other", request);
  const auto text_of = [&](const std::string& name) {
    return TextOn(absl::StrCat(
        "security { tls { certificate: '", ca.path(name + ".pem"), "' key: '",
        ca.path(name + ".key"), "' client_ca: '", ca.ca(), "' } }"));
  };
  EXPECT_THAT(text_of("good"), Not(HasSubstr("security.tls.certificate")));
  EXPECT_THAT(
      text_of("other"),
      AllOf(HasSubstr("warning  security.tls.certificate is \"" +
                      ca.path("other.pem") + "\": it ends on "),
            HasSubstr(
                "it is for DNS:elsewhere.example and not for 127.0.0.1, the "
                "host of shard 0\n")));
  ASSERT_EQ(chmod(ca.path("good.key").c_str(), 0600), 0);
  EXPECT_THAT(text_of("good"), Not(HasSubstr("security.tls.key")));
  ASSERT_EQ(chmod(ca.path("good.key").c_str(), 0640), 0);
  EXPECT_THAT(text_of("good"), HasSubstr("warning  security.tls.key is "));
  EXPECT_THAT(text_of("none"),
              HasSubstr("error    security.tls.certificate is "));
}

TEST_F(DoctorConfigTest, MemoryOfTheMachineAndOfThePlan) {
  // 8 bytes of rows, 4 of weights, 12 of snapshots for each parameter.
  const int64_t parameters = 100'000'000;
  const std::string shard =
      absl::StrCat("shards: '127.0.0.1:", FreePort(), "' ");
  EXPECT_THAT(FindingsText(Check(shard, parameters)),
              HasSubstr("note     the plan of a shard with all 2 workers: rows "
                        "762.9 MiB + master 381.5 MiB + snapshots 1144.4 MiB"));
  EXPECT_THAT(FindingsText(Check(shard, parameters, 2 * kGibibyte)),
              HasSubstr("error    memory_budget_bytes is "));
  EXPECT_THAT(
      FindingsText(
          Check(absl::StrCat(shard, "memory_budget_bytes: ", 5 * kGibibyte))),
      HasSubstr("error    memory_budget_bytes is 5368709120 (5120 MiB), of 1 "
                "shard here; this machine or container grants 4096 MiB "
                "(cgroup limit)\n"));
  // Each fits into 80% of it, and both do not.
  EXPECT_THAT(
      FindingsText(Check(absl::StrCat(shard, "shards: '127.0.0.1:", FreePort(),
                                      "' replication: 'none' "),
                         2 * parameters, 3 * kGibibyte)),
      HasSubstr("error    the plans of 2 shards here, "));
}

}  // namespace
}  // namespace agg
