// What a job does about checkpoints that it cannot have, and what an operator
// may say: nothing is deleted, overwritten or passed over without a person's
// word (P29).
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "server/base/file_system.h"
#include "server/base/mutex.h"
#include "tests/server/base/forwarding_files.h"
#include "tests/server/round/recovery_fixture.h"

namespace agg {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

namespace fs = std::filesystem;

// The system's, where looking at some paths fails.
class FailingFiles : public ForwardingFiles {
 public:
  FailingFiles() : FailingFiles(MakeSystemFiles()) {}

  // Paths that contain `part`; OK: no more.
  void FailAt(const std::string& part, absl::Status status) {
    MutexLock lock(&mutex_);
    faults_[part] = std::move(status);
  }

  // Once, when a file whose path contains `part` is opened.
  void CallAt(const std::string& part, std::function<void()> call) {
    MutexLock lock(&mutex_);
    call_at_ = part;
    call_ = std::move(call);
  }

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& path) override {
    const absl::Status fault = FaultAt(path);
    if (!fault.ok()) return fault;
    return ForwardingFiles::Create(path);
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) override {
    std::function<void()> call;
    {
      MutexLock lock(&mutex_);
      if (absl::StrContains(path, call_at_)) call.swap(call_);
    }
    if (call != nullptr) call();
    const absl::Status fault = FaultAt(path);
    if (!fault.ok()) return fault;
    return ForwardingFiles::Open(path);
  }
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override {
    const absl::Status fault = FaultAt(path);
    if (!fault.ok()) return fault;
    return ForwardingFiles::List(path);
  }

 private:
  explicit FailingFiles(std::unique_ptr<FileSystem> files)
      : ForwardingFiles(files.get()), files_(std::move(files)) {}
  absl::Status FaultAt(const std::string& path) {
    MutexLock lock(&mutex_);
    for (const auto& [part, status] : faults_) {
      if (!status.ok() && absl::StrContains(path, part)) {
        return absl::Status(status.code(),
                            absl::StrCat(path, ": ", status.message()));
      }
    }
    return absl::OkStatus();
  }

  const std::unique_ptr<FileSystem> files_;
  Mutex mutex_;
  std::map<std::string, absl::Status> faults_;
  std::string call_at_;
  std::function<void()> call_;
};

class RestoreTest : public RecoveryTest {
 protected:
  // Each shard has a folder of its own, unless `shared`.
  ClusterOptions Saving(int num_shards, uint64_t every_rounds = 1,
                        bool shared = false) {
    ClusterOptions options = WithCheckpoints(num_shards, every_rounds);
    options.own_folders = !shared;
    options.files = &files_;
    for (int k = 0; !shared && k < num_shards; ++k) {
      fs::create_directories(Folder(k));
    }
    return options;
  }
  std::string Folder(int ordinal) const {
    return absl::StrCat(folder_, "/", ordinal);
  }
  // A checkpoint of each version from 1 on.
  static void SaveEach(RunningJob* job, uint64_t last) {
    for (uint64_t version = 1; version <= last; ++version) {
      RunTo(job, version);
      job->cluster.AwaitCheckpoints(version);
    }
  }
  // Trains to `last` with a checkpoint of each version from 1 on, and ends all
  // processes at once.
  void TrainTo(uint64_t last, const ClusterOptions& options) {
    RunningJob job(options, SmallManifest(), 2);
    SaveEach(&job, last);
    // No last checkpoint of the coordinator's: it is killed.
  }
  static JobStatus Started(LocalCluster* cluster) {
    for (int i = 0; i < 4; ++i) cluster->Advance(absl::Seconds(1));
    return cluster->Status();
  }
  static void ExpectWaits(const JobStatus& status) {
    EXPECT_EQ(status.phase, JobPhase::kWaitingForShards) << status.message;
    EXPECT_FALSE(status.seeded);
    EXPECT_THAT(status.message, HasSubstr("the job waits"));
    EXPECT_EQ(status.recovering, status.message);
  }
  // What is due within 3 s; then shards' threads write, and the clock rests.
  template <typename R>
  static void Await(LocalCluster* cluster, const R& reply) {
    for (int i = 0; i < 3; ++i) cluster->Advance(absl::Seconds(1));
    while (!reply.called()) {
      cluster->Settle();
      std::this_thread::yield();
    }
  }
  static absl::StatusOr<RestoreResult> Restore(LocalCluster* cluster,
                                               const std::string& what) {
    Reply<absl::StatusOr<RestoreResult>> reply;
    cluster->coordinator()->Restore(*Coordinator::ParseRestore(what),
                                    reply.callback());
    Await(cluster, reply);
    return reply.Get();
  }
  static std::vector<std::string> Names(const std::string& path) {
    std::vector<std::string> names;
    if (!fs::exists(path)) return names;
    for (const auto& entry : fs::directory_iterator(path)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  // The versions whose folders are below PATH/JOB, ascending by name.
  static std::vector<int> Versions(const std::string& path) {
    std::vector<int> versions;
    for (const std::string& name : Names(path)) {
      versions.push_back(std::stoi(name.substr(name.find('-') + 1)));
    }
    return versions;
  }
  // Where checkpoints of a former job are, the seed has one at once.
  static void SeedAndTrain(LocalCluster* cluster, uint64_t rounds) {
    std::vector<LocalWorker> workers = JoinTwo(cluster);
    ASSERT_EQ(workers[0].Seed(RandomTensors(SmallManifest(), 99)),
              absl::OkStatus());
    cluster->Settle();
    cluster->AwaitCheckpoints(1);
    Train(cluster, &workers, rounds);
  }
  static void Train(LocalCluster* cluster, std::vector<LocalWorker>* workers,
                    uint64_t rounds) {
    const CheckpointStatus before = cluster->Status().checkpoint;
    for (uint64_t i = 0; i < rounds; ++i) {
      const uint64_t round = cluster->Status().version;
      ContributeAll(workers, round);
      cluster->Settle();
      ASSERT_EQ(cluster->Status().version, round + 1);
      cluster->AwaitCheckpoints(before.num_sealed + before.num_failed + i + 1);
    }
  }

  FailingFiles files_;
};

// --- An incomplete set is not none -------------------------------------------

TEST_F(RestoreTest, AnEmptyFolderOfOneShardIsWaitedForByName) {
  const ClusterOptions options = Saving(2);
  TrainTo(3, options);
  const auto before = Names(Folder(0) + "/default");
  for (int emptied : {0, 1}) {
    const std::string aside = folder_ + "/aside";
    fs::rename(Folder(emptied), aside);
    fs::create_directories(Folder(emptied));
    LocalCluster again(options);
    JobStatus status = Started(&again);
    ExpectWaits(status);
    EXPECT_THAT(
        status.message,
        AllOf(HasSubstr("version 3 ("),
              HasSubstr(absl::StrCat("shard ", emptied, " (", Folder(emptied),
                                     "/default) has no checkpoint at all, and "
                                     "lacks part ",
                                     emptied, " of 2"))));
    EXPECT_EQ(Names(Folder(1 - emptied) + "/default").size(), before.size());
    // Put back, and nothing else is done.
    fs::remove_all(Folder(emptied));
    fs::rename(aside, Folder(emptied));
    status = Started(&again);
    EXPECT_TRUE(status.seeded) << status.message;
    EXPECT_EQ(status.version, 3u);
    EXPECT_THAT(status.checkpoint.restore, HasSubstr("version 3 of epoch"));
  }
}

TEST_F(RestoreTest, AnOlderFolderOfOneShardIsWaitedFor) {
  const ClusterOptions options = Saving(2);
  TrainTo(1, options);
  fs::copy(Folder(1), folder_ + "/old", fs::copy_options::recursive);
  {
    LocalCluster again(options);
    ASSERT_EQ(Started(&again).version, 1u);
    std::vector<LocalWorker> workers = JoinTwo(&again);
    Train(&again, &workers, 1);
  }
  fs::remove_all(Folder(1));
  fs::rename(folder_ + "/old", Folder(1));
  LocalCluster again(options);
  const JobStatus status = Started(&again);
  ExpectWaits(status);
  EXPECT_THAT(status.message,
              AllOf(HasSubstr("version 2 ("), HasSubstr("lacks part 1 of 2"),
                    HasSubstr("aggctl restore "), HasSubstr("-1`")));
}

TEST_F(RestoreTest, AnotherNumberOfShardsWithFoldersOfTheirOwnWaits) {
  TrainTo(2, Saving(2));
  {
    LocalCluster more(Saving(3));
    const JobStatus status = Started(&more);
    ExpectWaits(status);
    EXPECT_THAT(status.message,
                AllOf(HasSubstr("/0/default) lacks part 1 of 2"),
                      HasSubstr("/1/default) lacks part 0 of 2"),
                      HasSubstr("/2/default) has no checkpoint at all, and "
                                "lacks parts 0, 1 of 2"),
                      HasSubstr("number of shards has changed")));
  }
  // With all parts everywhere it goes on.
  for (int k = 0; k < 3; ++k) {
    for (int from = 0; from < 2; ++from) {
      if (from == k) continue;
      fs::copy(Folder(from) + "/default", Folder(k) + "/default",
               fs::copy_options::recursive | fs::copy_options::skip_existing);
    }
  }
  LocalCluster more(Saving(3));
  EXPECT_EQ(Started(&more).version, 2u);
}

TEST_F(RestoreTest, FewerShardsWait) {
  TrainTo(1, Saving(3));
  LocalCluster fewer(Saving(2));
  const JobStatus status = Started(&fewer);
  ExpectWaits(status);
  EXPECT_THAT(status.message, HasSubstr("lacks parts 1, 2 of 3"));
}

TEST_F(RestoreTest, AFolderThatCannotBeReadIsWaitedForByName) {
  const ClusterOptions options = Saving(2);
  TrainTo(1, options);
  for (const char* fault : {"Permission denied", "Input/output error"}) {
    files_.FailAt(Folder(1) + "/default", absl::UnknownError(fault));
    LocalCluster again(options);
    JobStatus status = Started(&again);
    ExpectWaits(status);
    EXPECT_THAT(status.message,
                AllOf(HasSubstr(Folder(1) + "/default"), HasSubstr(fault)));
    files_.FailAt(Folder(1) + "/default", absl::OkStatus());
    status = Started(&again);
    EXPECT_TRUE(status.seeded) << status.message;
  }
}

// Nobody can know that there is none.
TEST_F(RestoreTest, AnUnreadableFolderOfANewJobIsWaitedForToo) {
  files_.FailAt(Folder(1), absl::UnknownError("Input/output error"));
  LocalCluster cluster(Saving(2));
  const JobStatus status = Started(&cluster);
  ExpectWaits(status);
  EXPECT_THAT(status.message, HasSubstr("Input/output error"));
}

TEST_F(RestoreTest, ANewJobBeginsAtOnceAndSaysSo) {
  LocalCluster cluster(Saving(2));
  const JobStatus status = cluster.Status();
  EXPECT_EQ(status.phase, JobPhase::kUnseeded);
  EXPECT_THAT(status.message,
              AllOf(HasSubstr("no shard sees a sealed checkpoint in"),
                    HasSubstr(Folder(0)), HasSubstr(Folder(1)),
                    HasSubstr("begins anew")));
}

// What this process has saved counts, also where nobody sees it any more.
TEST_F(RestoreTest, AFolderThatIsEmptiedWhileTheJobRunsIsMissed) {
  ClusterOptions options = Saving(2, 1, /*shared=*/true);
  TrainedJob job(options, 1, 1);
  fs::remove_all(folder_ + "/default");
  job.cluster.RestartShard(1);
  const JobStatus status = job.cluster.Status();
  EXPECT_EQ(status.phase, JobPhase::kShardLost) << status.message;
  EXPECT_THAT(status.message, HasSubstr("the job waits"));
}

// --- A damaged one is not passed over ----------------------------------------

TEST_F(RestoreTest, AnInputOutputErrorNamesTheFileAndTheWayOn) {
  const ClusterOptions options = Saving(2);
  TrainTo(3, options);
  const std::string newest = Names(Folder(1) + "/default").back();
  files_.FailAt(absl::StrCat(Folder(1), "/default/", newest, "/part"),
                absl::UnknownError("Input/output error"));
  LocalCluster again(options);
  JobStatus status = Started(&again);
  ExpectWaits(status);
  EXPECT_THAT(status.message,
              AllOf(HasSubstr("cannot be loaded"), HasSubstr("shard 1"),
                    HasSubstr("part-00001-of-00002.npz"),
                    HasSubstr("Input/output error"), HasSubstr("version 2 (")));
  // The command that the message names.
  const auto begin = status.message.find("aggctl restore ") + 15;
  const std::string name =
      status.message.substr(begin, status.message.find('`', begin) - begin);
  const absl::StatusOr<RestoreResult> restored = Restore(&again, name);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_THAT(restored->text, HasSubstr("version 2 of epoch"));
  status = again.Status();
  EXPECT_EQ(status.version, 2u);
  // It was answered when it was saved: another start of all takes just that.
  files_.FailAt(absl::StrCat(Folder(1), "/default/", newest, "/part"),
                absl::OkStatus());
  again.RestartAll();
  EXPECT_EQ(again.Status().version, 2u);
  // And the one that was passed over is there.
  const auto names = Names(Folder(1) + "/default");
  EXPECT_NE(std::find(names.begin(), names.end(), newest), names.end());
}

// All folders have the same manifest: one that can be read is enough, and it is
// written again where it cannot.
TEST_F(RestoreTest, AManifestThatIsDamagedInOneFolderIsReadFromAnother) {
  const ClusterOptions options = Saving(2);
  TrainTo(2, options);
  const std::string manifest = Folder(0) + "/default/" +
                               Names(Folder(0) + "/default").back() +
                               "/manifest.json";
  const auto length = fs::file_size(manifest);
  fs::resize_file(manifest, length / 2);
  LocalCluster again(options);
  const JobStatus status = Started(&again);
  EXPECT_TRUE(status.seeded) << status.message;
  EXPECT_EQ(status.version, 2u);
  EXPECT_EQ(fs::file_size(manifest), length);
}

TEST_F(RestoreTest, ManifestsThatAreDamagedEverywhereAreNamed) {
  const ClusterOptions options = Saving(2);
  TrainTo(2, options);
  for (int k = 0; k < 2; ++k) {
    const std::string manifest = Folder(k) + "/default/" +
                                 Names(Folder(k) + "/default").back() +
                                 "/manifest.json";
    fs::resize_file(manifest, k);
  }
  LocalCluster again(options);
  const JobStatus status = Started(&again);
  ExpectWaits(status);
  EXPECT_THAT(status.message, AllOf(HasSubstr("shard 0"),
                                    HasSubstr("manifest.json cannot be "
                                              "used"),
                                    HasSubstr("aggctl restore ")));
}

TEST_F(RestoreTest, ADiskThatIsBackIsFoundWithoutAWord) {
  const ClusterOptions options = Saving(2);
  TrainTo(2, options);
  const std::string newest = Names(Folder(1) + "/default").back();
  files_.FailAt(newest + "/part", absl::UnknownError("Input/output error"));
  LocalCluster again(options);
  ExpectWaits(Started(&again));
  files_.FailAt(newest + "/part", absl::OkStatus());
  again.Advance(absl::Seconds(20));
  EXPECT_EQ(Started(&again).version, 2u);
}

TEST_F(RestoreTest, CopiesInMemoryNeedNoFolder) {
  ClusterOptions options = Saving(2);
  options.coordinator.replicated = true;
  options.shard.replicated = true;
  TrainedJob job(options, 1, 1);
  RunTo(&job, 2);
  job.cluster.AwaitCheckpoints(2);
  files_.FailAt(Folder(1), absl::DeadlineExceededError("no answer within 10s"));
  job.cluster.RestartShard(1);
  const JobStatus status = job.cluster.Status();
  EXPECT_TRUE(status.seeded) << status.message;
  EXPECT_EQ(status.version, 2u);
  EXPECT_EQ(status.rewinds, 0u);
}

// --- A person's word ---------------------------------------------------------

TEST_F(RestoreTest, BeginningAnewRemovesNothingOfTheFormerJob) {
  ClusterOptions options = Saving(2);
  options.coordinator.checkpoint.keep = 1;
  TrainTo(2, options);
  const auto before = Names(Folder(0) + "/default");
  options.coordinator.checkpoint.restore = false;
  {
    LocalCluster anew(options);
    const JobStatus status = anew.Status();
    EXPECT_EQ(status.phase, JobPhase::kUnseeded);
    EXPECT_THAT(status.message,
                AllOf(HasSubstr("restore is \"none\""),
                      HasSubstr("checkpoints stay"), HasSubstr("version 2")));
    SeedAndTrain(&anew, 3);
  }
  const auto after = Names(Folder(0) + "/default");
  for (const std::string& name : before) {
    EXPECT_NE(std::find(after.begin(), after.end(), name), after.end()) << name;
  }
  // keep is of the new line.
  EXPECT_EQ(after.size(), before.size() + 1);
  // The new one is what the next start goes on from.
  options.coordinator.checkpoint.restore = true;
  LocalCluster again(options);
  EXPECT_EQ(Started(&again).version, 3u);
}

TEST_F(RestoreTest, AnOperatorHasTheWaitingJobBeginAnew) {
  const ClusterOptions options = Saving(2);
  TrainTo(1, options);
  const auto before = Names(Folder(0) + "/default");
  fs::remove_all(Folder(1) + "/default");
  LocalCluster again(options);
  ExpectWaits(Started(&again));
  const absl::StatusOr<RestoreResult> restored = Restore(&again, "none");
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(again.Status().phase, JobPhase::kUnseeded);
  SeedAndTrain(&again, 1);
  const auto after = Names(Folder(0) + "/default");
  EXPECT_NE(std::find(after.begin(), after.end(), before.back()), after.end());
  // A job that has parameters is not thrown away by a word.
  EXPECT_THAT(Restore(&again, "none").status().message(),
              HasSubstr("the job has parameters"));
}

// kill -9 of all, at once after the answer, and again later.
TEST_F(RestoreTest, BeginningAnewOutlivesAllProcesses) {
  const ClusterOptions options = Saving(2);
  TrainTo(2, options);
  const auto before = Names(Folder(0) + "/default");
  const std::string aside = folder_ + "/aside";
  fs::rename(Folder(1) + "/default", aside);
  LocalCluster again(options);
  ExpectWaits(Started(&again));
  ASSERT_TRUE(Restore(&again, "none").ok());
  for (int life = 0; life < 2; ++life) {
    again.RestartAll();
    const JobStatus status = Started(&again);
    EXPECT_EQ(status.phase, JobPhase::kUnseeded) << status.message;
    EXPECT_THAT(status.message,
                AllOf(HasSubstr("an operator has said before"),
                      HasSubstr("begun-anew-"), HasSubstr("checkpoints stay"),
                      HasSubstr("version 2")));
    // What was missing is there again, and was given up all the same.
    if (life == 0) {
      fs::copy(aside, Folder(1) + "/default", fs::copy_options::recursive);
    }
  }
  // An epoch that would be older than the word is never begun, whatever the
  // clock says.
  again.clock()->Advance(-absl::Hours(9000));
  again.RestartAll();
  Started(&again);
  SeedAndTrain(&again, 1);
  again.RestartAll();
  EXPECT_EQ(Started(&again).version, 1u);
  for (const std::string& name : before) {
    for (int k : {0, 1}) {
      EXPECT_TRUE(fs::exists(Folder(k) + "/default/" + name)) << name;
    }
  }
  // A person may change the mind.
  ASSERT_TRUE(Restore(&again, before.back()).ok());
  again.RestartAll();
  EXPECT_EQ(Started(&again).version, 2u);
}

// The word may be about a folder that is broken.
TEST_F(RestoreTest, BeginningAnewIsKeptByOneFolderAtLeast) {
  const ClusterOptions options = Saving(2);
  TrainTo(1, options);
  const auto eio = absl::UnknownError("Input/output error");
  files_.FailAt(Folder(1), eio);
  LocalCluster again(options);
  ExpectWaits(Started(&again));
  files_.FailAt(Folder(0) + "/default/begun", eio);
  const absl::Status refused = Restore(&again, "none").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("no folder can keep"), HasSubstr(Folder(0)),
                    HasSubstr(Folder(1)), HasSubstr("checkpoint.restore")));
  ExpectWaits(Started(&again));
  files_.FailAt(Folder(0) + "/default/begun", absl::OkStatus());
  ASSERT_TRUE(Restore(&again, "none").ok());
  again.RestartAll();
  EXPECT_EQ(Started(&again).phase, JobPhase::kUnseeded);
  files_.FailAt(Folder(1), absl::OkStatus());
  again.RestartAll();
  EXPECT_EQ(Started(&again).phase, JobPhase::kUnseeded);
  // What has come since is not passed over.
  SeedAndTrain(&again, 1);
  files_.FailAt(Folder(1), eio);
  again.RestartAll();
  ExpectWaits(Started(&again));
  files_.FailAt(Folder(1), absl::OkStatus());
  EXPECT_EQ(Started(&again).version, 1u);
}

TEST_F(RestoreTest, PartsThatWereNeverSealedAreSaid) {
  TrainTo(1, Saving(2));
  for (int k : {0, 1}) {
    fs::remove(Folder(k) + "/default/" + Names(Folder(k) + "/default")[0] +
               "/manifest.json");
  }
  LocalCluster again(Saving(2));
  const JobStatus status = Started(&again);
  EXPECT_EQ(status.phase, JobPhase::kUnseeded);
  EXPECT_THAT(status.message,
              HasSubstr("where parts lie that were never sealed"));
}

TEST_F(RestoreTest, ARunningJobGoesBackToAVersionThatAnOperatorNames) {
  ClusterOptions options = Saving(2);
  RunningJob job(options, SmallManifest(), 2);
  SaveEach(&job, 3);
  const Tensors second = *job.cluster.Pull(2);
  EXPECT_THAT(Restore(&job.cluster, "7").status().message(),
              HasSubstr("no shard sees a sealed checkpoint of version 7"));
  EXPECT_EQ(job.cluster.Status().version, 3u);
  const absl::StatusOr<RestoreResult> restored = Restore(&job.cluster, "2");
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(job.cluster.Status().version, 2u);
  EXPECT_TRUE(SameBits(*job.cluster.Pull(2), second));
  EXPECT_THAT(Versions(Folder(0) + "/default"),
              testing::UnorderedElementsAre(1, 2, 3, 2));
}

// One shard's part is of no use: none gives up what it has. There is no second
// copy of it, and no checkpoint.
TEST_F(RestoreTest, ARestoreThatOneShardCannotLoadCostsNothing) {
  TrainedJob job(Saving(2, 0), 1);
  Reply<absl::StatusOr<TakenCheckpoint>> reply;
  job.cluster.coordinator()->TakeCheckpoint(reply.callback());
  job.cluster.AwaitCheckpoints(1);
  ASSERT_TRUE(reply.Get().ok()) << reply.Get().status();
  uint64_t version = 3;
  for (int damaged : {0, 1}) {
    const std::string part = absl::StrCat(
        Folder(damaged), "/default/", Names(Folder(damaged) + "/default")[0],
        "/part-0000", damaged, "-of-00002.npz");
    std::string bytes;
    {
      std::ifstream in(part, std::ios::binary);
      bytes.assign(std::istreambuf_iterator<char>(in), {});
    }
    for (const char* how : {"flipped", "cut", "EIO"}) {
      RunTo(&job, version);
      const Tensors before = *job.cluster.Pull(version);
      std::string wrong = bytes;
      if (how == std::string("flipped")) wrong[wrong.size() / 2] ^= 1;
      if (how == std::string("cut")) wrong.pop_back();
      std::ofstream(part, std::ios::binary) << wrong;
      if (how == std::string("EIO")) {
        files_.FailAt(part, absl::UnknownError("Input/output error"));
      }
      const absl::Status refused = Restore(&job.cluster, "1").status();
      EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(
          refused.message(),
          AllOf(HasSubstr("version 1 ("),
                HasSubstr(absl::StrCat("shard ", damaged)), HasSubstr(part)))
          << how;
      const JobStatus status = Started(&job.cluster);
      EXPECT_TRUE(status.seeded) << status.message;
      EXPECT_EQ(status.version, version) << how;
      EXPECT_EQ(status.rewinds, 0u);
      EXPECT_EQ(status.workers.size(), 2u);
      ASSERT_TRUE(job.cluster.Pull(version).ok());
      EXPECT_TRUE(SameBits(*job.cluster.Pull(version), before)) << how;
      ResumeAll(&job, version, 0);
      files_.FailAt(part, absl::OkStatus());
      std::ofstream(part, std::ios::binary) << bytes;
      ++version;
    }
  }
  // Put back, it can be gone back to.
  ASSERT_TRUE(Restore(&job.cluster, "1").ok());
  EXPECT_EQ(job.cluster.Status().version, 1u);
}

// With copies of all parts there is nothing to be verified for a load.
TEST_F(RestoreTest, WhatIsLoadedWhereNothingIsHeldIsReadOnce) {
  const ClusterOptions options = Saving(2);
  TrainTo(1, options);
  LocalCluster again(options);
  int verified = 0;
  again.peer(1)->BeforePhase([&](const Phase& phase) {
    verified += phase.kind == PhaseKind::kVerify ? 1 : 0;
  });
  again.RestartAll();
  EXPECT_EQ(Started(&again).version, 1u);
  EXPECT_EQ(verified, 0);
  ASSERT_TRUE(Restore(&again, "1").ok());
  EXPECT_EQ(verified, 1);
}

// The job loads version 2 by itself at that moment. The operator hears OK when
// it is at the version that he has named.
TEST_F(RestoreTest, AWordThatComesWhileAnotherOneIsLoadedIsCarriedOut) {
  const ClusterOptions options = Saving(2);
  TrainTo(2, options);
  const std::string newest = Names(Folder(1) + "/default").back();
  files_.FailAt(newest + "/part", absl::UnknownError("Input/output error"));
  LocalCluster again(options);
  ExpectWaits(Started(&again));
  files_.FailAt(newest + "/part", absl::OkStatus());
  Reply<absl::StatusOr<RestoreResult>> reply;
  bool asked = false;
  files_.CallAt(newest + "/part", [&] {
    again.coordinator()->Restore(*Coordinator::ParseRestore("1"),
                                 reply.callback());
    asked = true;
  });
  again.Advance(absl::Seconds(20));
  Started(&again);
  ASSERT_TRUE(asked);
  Await(&again, reply);
  const absl::StatusOr<RestoreResult> restored = reply.Get();
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(again.Status().version, 1u);
}

// Hours later its caller has turned to something else.
TEST_F(RestoreTest, AWordThatCannotBeBegunIsAnsweredAndNotDoneLater) {
  RunningJob job(Saving(2), SmallManifest(), 2);
  SaveEach(&job, 3);
  Coordinator* const coordinator = job.cluster.coordinator();
  job.cluster.peer(1)->FailAttach(absl::UnavailableError("shard 1 is down"));
  Reply<absl::StatusOr<RestoreResult>> reply;
  coordinator->Restore(*Coordinator::ParseRestore("2"), reply.callback());
  job.cluster.Advance(Coordinator::kOrderTimeout - absl::Seconds(1));
  coordinator->CheckDeadlines();
  ASSERT_FALSE(reply.called());
  job.cluster.Advance(absl::Seconds(1));
  coordinator->CheckDeadlines();
  ASSERT_TRUE(reply.called());
  const absl::Status dropped = reply.Get().status();
  EXPECT_EQ(dropped.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(dropped.message(), AllOf(HasSubstr("not begun within 30s"),
                                       HasSubstr("shard 1 is down")));
  // The shard is back: nothing is done, and another word is heard.
  job.cluster.peer(1)->FailAttach(absl::OkStatus());
  EXPECT_EQ(Started(&job.cluster).version, 3u);
  const absl::StatusOr<RestoreResult> restored = Restore(&job.cluster, "1");
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(coordinator->Status().version, 1u);
}

// What has begun is done, however long it takes.
TEST_F(RestoreTest, AWordThatARecoveryGoesByIsNotDropped) {
  RunningJob job(Saving(2), SmallManifest(), 2);
  SaveEach(&job, 2);
  Coordinator* const coordinator = job.cluster.coordinator();
  Reply<absl::StatusOr<RestoreResult>> reply;
  bool late = false;
  files_.CallAt("part-00001-of-00002", [&] {
    job.cluster.clock()->Advance(2 * Coordinator::kOrderTimeout);
    coordinator->CheckDeadlines();
    late = true;
  });
  coordinator->Restore(*Coordinator::ParseRestore("1"), reply.callback());
  Await(&job.cluster, reply);
  EXPECT_TRUE(late);
  EXPECT_TRUE(reply.Get().ok()) << reply.Get().status();
  EXPECT_EQ(coordinator->Status().version, 1u);
}

// Disks may hang, and rounds go on (P30).
TEST_F(RestoreTest, PartsOfACaptureThatFailsAreRemovedBesideTheRounds) {
  ClusterOptions options = Saving(2, 0);
  options.real_clock = true;
  const Manifest manifest = SmallManifest();
  LocalCluster cluster(options);
  LocalWorker first(&cluster, 0, manifest);
  LocalWorker second(&cluster, 1, manifest);
  for (LocalWorker* worker : {&first, &second}) {
    while (!worker->Join().ok()) {  // the shards are being attached
    }
  }
  ASSERT_TRUE(first.Seed(RandomTensors(manifest, 1)).ok());
  Mutex mutex;
  std::vector<std::thread::id> captures;
  std::vector<std::thread::id> discards;
  // The last shard is called on the thread that asks.
  cluster.peer(1)->BeforePhase([&](const Phase& phase) {
    MutexLock lock(&mutex);
    if (phase.kind == PhaseKind::kCapture) {
      captures.push_back(std::this_thread::get_id());
    }
    if (phase.kind == PhaseKind::kSeal) {
      discards.push_back(std::this_thread::get_id());
    }
  });
  cluster.peer(0)->FailNext(PhaseKind::kCapture,
                            absl::ResourceExhaustedError("no memory"));
  Reply<absl::StatusOr<TakenCheckpoint>> reply;
  cluster.coordinator()->TakeCheckpoint(reply.callback());
  EXPECT_THAT(reply.Get().status().message(), HasSubstr("no memory"));
  cluster.StopCoordinator();
  MutexLock lock(&mutex);
  ASSERT_EQ(captures.size(), 1u);
  ASSERT_EQ(discards.size(), 1u);
  EXPECT_NE(discards[0], captures[0]);
}

TEST_F(RestoreTest, LookingSaysWhatThereIsAndDoesNothing) {
  const ClusterOptions options = Saving(2);
  TrainTo(2, options);
  fs::remove(Folder(1) + "/default/" + Names(Folder(1) + "/default").back() +
             "/part-00001-of-00002.npz");
  LocalCluster again(options);
  Started(&again);
  const absl::StatusOr<RestoreResult> found = Restore(&again, "");
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->found.size(), 2u);
  EXPECT_EQ(found->found[0].id.version, 2u);
  EXPECT_THAT(found->found[0].missing, HasSubstr("lacks part 1 of 2"));
  EXPECT_EQ(found->found[1].missing, "");
  EXPECT_THAT(found->text, HasSubstr("the job waits"));
  ExpectWaits(again.Status());
}

TEST_F(RestoreTest, OneThatIsNotCompleteIsRefusedToAnOperatorByName) {
  const ClusterOptions options = Saving(2);
  TrainTo(1, options);
  fs::remove_all(Folder(1) + "/default");
  LocalCluster again(options);
  Started(&again);
  const absl::Status refused = Restore(&again, "1").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("lacks part 1 of 2"));
}

// --- What is kept ------------------------------------------------------------

TEST_F(RestoreTest, RestartsDoNotPushOlderVersionsOut) {
  const ClusterOptions options = Saving(2);
  TrainTo(3, options);
  for (int life = 0; life < 4; ++life) {
    LocalCluster again(options);
    ASSERT_EQ(Started(&again).version, 3u);
    // As a stop in good order does.
    Reply<absl::StatusOr<TakenCheckpoint>> reply;
    again.coordinator()->TakeCheckpoint(reply.callback());
    again.AwaitCheckpoints(1);
    ASSERT_TRUE(reply.Get().ok()) << reply.Get().status();
  }
  EXPECT_THAT(Versions(Folder(0) + "/default"),
              testing::UnorderedElementsAre(1, 2, 3));
}

TEST_F(RestoreTest, ParametersThatAreNotFiniteAreNeverSaved) {
  ClusterOptions options = Saving(2);
  options.coordinator.checkpoint.keep = 2;
  SetOptimizer(OptimizerOptions(), &options);
  options.coordinator.combine.rule.rule = FindRule("mean");
  options.coordinator.combine.rule.scope =
      options.coordinator.combine.rule.rule->default_scope;
  options.coordinator.combine.schedule.learning_rate = 1e30;
  RunningJob job(options, SmallManifest(), 2);
  job.cluster.AwaitCheckpoints(0);
  Reply<absl::StatusOr<TakenCheckpoint>> first;
  job.cluster.coordinator()->TakeCheckpoint(first.callback());
  job.cluster.AwaitCheckpoints(1);
  ASSERT_TRUE(first.Get().ok()) << first.Get().status();
  Tensors huge = RandomTensors(SmallManifest(), 5);
  for (auto& tensor : huge) {
    for (float& value : tensor) value = 1e30f;
  }
  for (uint64_t round = 0; round < 4; ++round) {
    for (LocalWorker& worker : job.workers) {
      ASSERT_TRUE(worker.Contribute(round, huge).ok());
    }
    job.cluster.Settle();
    job.cluster.AwaitCheckpoints(round + 2);
  }
  ASSERT_EQ(job.cluster.Status().version, 4u);
  const CheckpointStatus status = job.cluster.Status().checkpoint;
  EXPECT_EQ(status.version, 0u);
  EXPECT_EQ(status.num_failed, 4u);
  EXPECT_THAT(status.last_error,
              AllOf(HasSubstr("not been finite since round 0"),
                    HasSubstr("aggctl restore "), HasSubstr("version 0")));
  EXPECT_THAT(Versions(Folder(0) + "/default"), testing::ElementsAre(0));
  // The way that the message names.
  ASSERT_TRUE(Restore(&job.cluster, "0").ok());
  EXPECT_EQ(job.cluster.Status().version, 0u);
}

// A seed of NaN: no round has said so.
TEST_F(RestoreTest, ASeedThatIsNotFiniteIsNotSaved) {
  Tensors seed = RandomTensors(SmallManifest(), 5);
  seed[2][11] = std::numeric_limits<float>::quiet_NaN();
  RunningJob job(Saving(2), SmallManifest(), 2, seed);
  Reply<absl::StatusOr<TakenCheckpoint>> reply;
  job.cluster.coordinator()->TakeCheckpoint(reply.callback());
  job.cluster.AwaitCheckpoints(1);
  EXPECT_THAT(reply.Get().status().message(),
              AllOf(HasSubstr("tensor 2"), HasSubstr("not finite")));
  // Nobody's part stays, when the last one has been written.
  for (int k = 0; k < 2; ++k) {
    while (!Names(Folder(k) + "/default").empty()) std::this_thread::yield();
  }
}

// --- A finished job ----------------------------------------------------------

class RestoreFinishedTest : public RestoreTest {
 protected:
  static absl::StatusOr<ResumeResult> Resume(LocalCluster* cluster) {
    Reply<absl::StatusOr<ResumeResult>> reply;
    cluster->coordinator()->Resume(reply.callback());
    Await(cluster, reply);
    return reply.Get();
  }
  // All workers leave at version 2; the last checkpoint is complete.
  void LeaveAt2(RunningJob* job) {
    RunTo(job, 2);
    for (LocalWorker& worker : job->workers) {
      ASSERT_EQ(worker.Leave(), absl::OkStatus());
    }
    ASSERT_TRUE(job->cluster.coordinator()->finished());
  }
  static void ExpectTrains(LocalCluster* cluster, uint64_t from) {
    std::vector<LocalWorker> workers = JoinTwo(cluster);
    ContributeAll(&workers, from);
    cluster->Settle();
    EXPECT_EQ(cluster->Status().version, from + 1);
  }
};

TEST_F(RestoreFinishedTest, ResumesWhereItsWorkersLeft) {
  const Tensors expected = Undisturbed(2, 3);
  RunningJob job(Saving(2, 0), SmallManifest(), 2);
  LeaveAt2(&job);
  job.cluster.AwaitCheckpoints(1);
  EXPECT_THAT(job.cluster.Status().message,
              AllOf(HasSubstr("the last worker has left"),
                    HasSubstr("aggctl resume"), HasSubstr("restore_job")));
  const absl::StatusOr<ResumeResult> resumed = Resume(&job.cluster);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->version, 2u);
  EXPECT_EQ(resumed->ended, "the last worker has left");
  // Answered: kill -9 of all takes it back no more.
  job.cluster.RestartAll();
  EXPECT_EQ(job.cluster.Status().phase, JobPhase::kOpen);
  ExpectTrains(&job.cluster, 2);
  EXPECT_TRUE(SameBits(*job.cluster.Pull(3), expected));
}

TEST_F(RestoreFinishedTest, AResumeThatCannotBeBegunLeavesTheJobFinished) {
  RunningJob job(Saving(2, 0), SmallManifest(), 2);
  LeaveAt2(&job);
  job.cluster.AwaitCheckpoints(1);
  Coordinator* const coordinator = job.cluster.coordinator();
  job.cluster.peer(1)->FailAttach(absl::UnavailableError("shard 1 is down"));
  Reply<absl::StatusOr<ResumeResult>> reply;
  coordinator->Resume(reply.callback());
  job.cluster.Advance(Coordinator::kOrderTimeout);
  coordinator->CheckDeadlines();
  ASSERT_TRUE(reply.called());
  EXPECT_EQ(reply.Get().status().code(), absl::StatusCode::kUnavailable);
  job.cluster.peer(1)->FailAttach(absl::OkStatus());
  EXPECT_EQ(Started(&job.cluster).phase, JobPhase::kFinished);
  // The call may be repeated.
  ASSERT_TRUE(Resume(&job.cluster).ok());
  ExpectTrains(&job.cluster, 2);
}

TEST_F(RestoreFinishedTest, ResumesAfterAStartOfAll) {
  const ClusterOptions options = Saving(2, 0);
  {
    RunningJob job(options, SmallManifest(), 2);
    LeaveAt2(&job);
    job.cluster.AwaitCheckpoints(1);
  }
  LocalCluster again(options);
  ASSERT_EQ(again.Status().phase, JobPhase::kFinished);
  EXPECT_THAT(again.Status().message, HasSubstr("aggctl resume"));
  ASSERT_TRUE(Resume(&again).ok());
  again.RestartAll();
  ExpectTrains(&again, 2);
}

TEST_F(RestoreFinishedTest, ResumesWithoutCheckpointsAndWithoutSecondCopies) {
  RunningJob job(Options(2), SmallManifest(), 2);
  LeaveAt2(&job);
  ASSERT_TRUE(Resume(&job.cluster).ok());
  ExpectTrains(&job.cluster, 2);
}

TEST_F(RestoreFinishedTest, ALimitIsNamedAndRaisingItIsEnough) {
  ClusterOptions options = Saving(2, 0);
  options.coordinator.max_rounds = 2;
  {
    TrainedJob job(options, 2, 1);
    EXPECT_THAT(Resume(&job.cluster).status().message(),
                AllOf(HasSubstr("max_rounds (2) is reached"),
                      HasSubstr("raise the limit")));
  }
  options.coordinator.max_rounds = 0;
  LocalCluster again(options);
  ASSERT_EQ(again.Status().phase, JobPhase::kOpen);
  // A rule that is set writes the facts anew; the job stays open.
  RuleChange change;
  change.rule = "mean";
  ASSERT_TRUE(again.coordinator()->SetRule(change, nullptr).ok());
  again.Settle();
  again.RestartAll();
  EXPECT_EQ(again.Status().phase, JobPhase::kOpen);
  EXPECT_THAT(Resume(&again).status().message(), HasSubstr("has not finished"));
}

TEST_F(RestoreFinishedTest, AnotherJobBeginsWithWhatItHas) {
  ClusterOptions options = Saving(2, 0);
  {
    RunningJob job(options, SmallManifest(), 2);
    LeaveAt2(&job);
    job.cluster.AwaitCheckpoints(1);
  }
  const Tensors expected = Undisturbed(2, 3);
  const auto before = Names(Folder(0) + "/default");
  options.coordinator.job = "next";
  {
    LocalCluster alone(options);  // by its own name there is nothing
    EXPECT_EQ(alone.Status().phase, JobPhase::kUnseeded);
  }
  options.coordinator.checkpoint.restore_job = "default";
  {
    LocalCluster next(options);
    ASSERT_EQ(next.Status().phase, JobPhase::kOpen) << next.Status().message;
    EXPECT_EQ(next.Status().version, 2u);
    next.AwaitCheckpoints(1);  // its own, at once
    ExpectTrains(&next, 2);
    // The optimizer's state has come along.
    EXPECT_TRUE(SameBits(*next.Pull(3), expected));
    Reply<absl::StatusOr<TakenCheckpoint>> reply;
    next.coordinator()->TakeCheckpoint(reply.callback());
    next.AwaitCheckpoints(2);
  }
  EXPECT_EQ(Names(Folder(0) + "/default"), before);
  // From now on it goes on from its own.
  LocalCluster again(options);
  EXPECT_EQ(again.Status().version, 3u);
}

TEST_F(RestoreFinishedTest, AnotherJobWithoutCheckpointsIsNotBegunWith) {
  ClusterOptions options = Saving(2, 0);
  options.coordinator.checkpoint.restore_job = "typo";
  LocalCluster cluster(options);
  const JobStatus status = Started(&cluster);
  ExpectWaits(status);
  EXPECT_THAT(status.message, HasSubstr("restore_job is \"typo\""));
}

}  // namespace
}  // namespace agg
