// A shard that lies about its memory, or is somebody else: the client sends its
// rows, and neither writes nor faults.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/region.pb.h"
#include "server/base/file_descriptor.h"
#include "server/base/shared_memory.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/fake_job.h"
#include "tests/worker_client/region_giver.h"

namespace agg {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kRowBytes = 12 * 4;  // of TwoTensors

using Answer = RegionGift;

// Sealed memory of so many bytes that others may write.
FileDescriptor Sealed(int64_t num_bytes) {
  const auto memory =
      *SharedMemory::Create(num_bytes, SharedMemory::Others::kWrite);
  return FileDescriptor(dup(memory->fd()));
}

// Zeros that anybody may cut off.
FileDescriptor Unsealed(int64_t num_bytes) {
  FileDescriptor fd(memfd_create("agg-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), num_bytes), 0);
  return fd;
}

void AddRow(int64_t num_bytes, FileDescriptor fd, Answer* answer) {
  v1::Region* const row = answer->reply.mutable_row();
  row->set_number(1);
  row->set_bytes(static_cast<uint64_t>(num_bytes));
  row->set_dtype(v1::F32);
  answer->reply.add_row_offsets(0);
  answer->reply.add_row_offsets(32);
  answer->descriptors.push_back(std::move(fd));
}

void AddVersion(uint64_t num_bytes, FileDescriptor fd, Answer* answer) {
  v1::Region* const version = answer->reply.add_versions();
  version->set_number(2);
  version->set_bytes(num_bytes);
  version->set_dtype(v1::F32);
  answer->descriptors.push_back(std::move(fd));
}

// Rounds with a job whose shard says that it gives regions at `socket`: all
// bytes are in frames. What the client had said of its transports.
std::vector<std::string> TrainWith(const std::string& socket) {
  FakeJob::Options of_job;
  of_job.region_sockets = {socket};
  FakeJob job(TwoTensors(), of_job);
  const auto client = Connect(OptionsFor(job, TwoTensors()));
  if (client == nullptr) return {};
  std::vector<std::vector<float>> parameters = Values(TwoTensors(), 1);
  EXPECT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  std::vector<std::vector<float>> expected = parameters;
  for (const float scale : {0.5f, 0.25f}) {
    const auto gradient = Values(TwoTensors(), scale);
    const auto outcome =
        client->PushPull(Read(gradient), {}, Write(&parameters));
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    for (size_t t = 0; t < gradient.size(); ++t) {
      for (size_t i = 0; i < gradient[t].size(); ++i) {
        expected[t][i] -= gradient[t][i];
      }
    }
    EXPECT_EQ(parameters, expected);
  }
  return client->job().transports;
}

struct LieCase {
  const char* name;
  std::function<void(Answer*)> tell;
};

class LyingShardTest : public testing::TestWithParam<LieCase> {};

TEST_P(LyingShardTest, TheClientSendsInstead) {
  RegionGiver liar([](const v1::RegionRequest&) {
    Answer answer;
    GetParam().tell(&answer);
    return answer;
  });
  EXPECT_THAT(TrainWith(liar.name()), ElementsAre("tcp"));
  EXPECT_GE(liar.num_requests(), 1);
}

const LieCase kLies[] = {
    {"RowIsSmallerThanItIsSaid",
     [](Answer* a) { AddRow(1 << 20, Sealed(4096), a); }},
    {"RowIsNotSealed",
     [](Answer* a) { AddRow(kRowBytes, Unsealed(1 << 16), a); }},
    {"RowIsOfNoBytes", [](Answer* a) { AddRow(0, Sealed(4096), a); }},
    {"RowsSlicesAreOutside",
     [](Answer* a) {
       AddRow(kRowBytes, Sealed(4096), a);
       a->reply.set_row_offsets(1, uint64_t{1} << 40);
     }},
    {"RowHasAnotherNumberOfSlices",
     [](Answer* a) {
       AddRow(kRowBytes, Sealed(4096), a);
       a->reply.add_row_offsets(0);
     }},
    {"RowIsNoMemory",
     [](Answer* a) {
       AddRow(kRowBytes, FileDescriptor(dup(STDERR_FILENO)), a);
     }},
    {"VersionIsSmallerThanItIsSaid",
     [](Answer* a) { AddVersion(1 << 20, Sealed(8192), a); }},
    {"VersionIsNotSealed",
     [](Answer* a) { AddVersion(kRowBytes, Unsealed(1 << 16), a); }},
    {"VersionIsHuge",
     [](Answer* a) { AddVersion(~uint64_t{0}, Sealed(8192), a); }},
    {"DescriptorsAreMissing",
     [](Answer* a) {
       AddRow(kRowBytes, Sealed(4096), a);
       a->descriptors.clear();
     }},
    {"DescriptorsAreTooMany",
     [](Answer* a) {
       AddRow(kRowBytes, Sealed(4096), a);
       a->descriptors.push_back(Sealed(4096));
     }},
    {"Refusal",
     [](Answer* a) {
       a->reply.set_code(7);
       a->reply.set_message("no");
     }},
};

INSTANTIATE_TEST_SUITE_P(Lies, LyingShardTest, testing::ValuesIn(kLies),
                         [](const testing::TestParamInfo<LieCase>& info) {
                           return std::string(info.param.name);
                         });

// What the liars' tests would miss if the client never asked, or took nothing.
TEST(HonestShardTest, AFittingRowIsTaken) {
  FakeJob::Options of_job;
  RegionGiver honest([](const v1::RegionRequest&) {
    Answer answer;
    AddRow(kRowBytes, Sealed(4096), &answer);
    return answer;
  });
  of_job.region_sockets = {honest.name()};
  FakeJob job(TwoTensors(), of_job);
  const auto client = Connect(OptionsFor(job, TwoTensors()));
  ASSERT_NE(client, nullptr);
  EXPECT_THAT(client->job().transports, ElementsAre("shm"));
}

// Runs as another user; only root can start it.
TEST(StrangerTest, MemoryOfAnotherUsersProcessIsNotAskedFor) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const std::string name = absl::StrCat("agg-stranger-", getpid());
  const std::string script = absl::StrCat(
      "import os,socket,sys\n"
      "os.setgid(65534); os.setuid(65534)\n"
      "s=socket.socket(socket.AF_UNIX); s.bind('\\0",
      name,
      "'); s.listen()\n"
      "print('ready',flush=True)\n"
      "s.settimeout(60)\n"
      "p=s.accept()[0]; p.settimeout(60)\n"
      "print('heard',len(p.recv(1)),flush=True)\n");
  FILE* const stranger =
      popen(absl::StrCat("python3 -c \"", script, "\"").c_str(), "r");
  ASSERT_NE(stranger, nullptr);
  char line[64] = {};
  ASSERT_NE(fgets(line, sizeof(line), stranger), nullptr);
  ASSERT_STREQ(line, "ready\n");
  EXPECT_THAT(TrainWith(name), ElementsAre("tcp"));
  // It has got a connection that ended without a byte.
  ASSERT_NE(fgets(line, sizeof(line), stranger), nullptr);
  EXPECT_STREQ(line, "heard 0\n");
  pclose(stranger);
}

}  // namespace
}  // namespace agg
