// A job for one worker and its observers that plays the ends of epochs: shards
// that lose their memory or move, sessions that run out, rewinds. Everything
// happens when the test says so.
#ifndef AGG_TESTS_WORKER_CLIENT_EPOCH_JOB_H_
#define AGG_TESTS_WORKER_CLIENT_EPOCH_JOB_H_

#include <grpcpp/server.h>

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/agg.grpc.pb.h"
#include "proto/shard_plan.h"
#include "tests/worker_client/fake_state.h"

namespace agg {

// Real gRPC servers on loopback. Rows are kept as they were pushed; the end of
// a round publishes parameters - row. The two newest versions can be pulled
// (P10); a rewind may be to any. An epoch that begins unseeded has no rows.
class EpochJob : private FakeState {
 public:
  // A row that was used.
  struct Used {
    uint64_t round, session;
    uint32_t attempt;
    bool operator==(const Used& other) const {
      return round == other.round && session == other.session &&
             attempt == other.attempt;
    }
  };

  EpochJob(Manifest manifest, int num_shards);
  ~EpochJob();

  // Makes the job pipelined (P43): versions are sent slice by slice,
  // as the row comes, and the shard's last one when the round has ended.
  void Pipeline() { pipelined_ = true; }
  // Type of rows; F32 unless it is set before anybody joins.
  void set_push_dtype(v1::DType dtype) { push_dtype_ = dtype; }

  std::string coordinator() const { return addresses_[0]; }
  std::string address(int shard) const { return Read(addresses_[shard]); }

  // --- Rounds. Commits wait until Release; else they end their round at once.
  void Hold() { Set(&holds_, true); }
  void Release() { Set(&holds_, false); }
  // The round of a commit that is held ends with it, and nobody is told.
  void CloseSilently();
  // The open round ends without the worker.
  void CloseWithout();
  // The shard takes frames and acknowledges none.
  void StallPushes(int shard, bool stalls) {
    Set(&shards_[shard].reads, stalls ? 0 : kAll);
  }
  // It reads so many more frames and then waits.
  void StallPushesAfter(int shard, int frames);
  // Waits until so many commits have come so far.
  void AwaitCommit(int count) {
    Await([&] { return commits_ >= count; });
  }
  void AwaitFrame(int shard, int count) {
    Await([&] { return shards_[shard].frames >= count; });
  }

  // --- Epochs. Calls in progress and new ones fail with `reason`, which
  // attending workers hear if it is `said`, until Open.
  void End(const std::string& reason, bool said = true);
  void Lose(int shard);  // its memory: another life, no rows
  void Move(int shard);  // to another address, and another life
  void Rewind(uint64_t version);
  void LoseAll();  // nothing is published any more
  // Another worker does, constants: version 0.
  void SeedByAnother();
  void Expire();  // the session: Join gives another one
  // Lets who joins from now on take part after the open round only.
  void AdmitLater() { Set(&admits_later_, true); }
  void Finish() { Set(&finished_, true); }
  // Joins get this instead of an answer; OK: they are answered.
  void Refuse(grpc::Status status) { Set(&refusal_, std::move(status)); }
  // Joins get no answer at all.
  void Silence() { Set(&silent_, true); }
  void Open();

  // --- What was asked.
  std::vector<v1::JoinRequest> joins() const { return Read(joins_); }
  std::vector<Used> used() const { return Read(used_); }
  int frames(int shard) const { return Read(shards_[shard].frames); }
  // What its Push streams presented as `authorization`, "": nothing.
  std::vector<std::string> authorizations(int shard) const {
    return Read(shards_[shard].authorizations);
  }
  // The frames of trips, without their payload.
  std::vector<v1::PushFrame> trips(int shard) const {
    return Read(shards_[shard].trips);
  }
  int pulls() const { return Read(pulls_); }
  uint64_t version() const;
  // Parameters of the newest version.
  std::vector<std::vector<float>> parameters() const;

 private:
  static constexpr int kAll = std::numeric_limits<int>::max();
  class ShardService;
  class CoordinatorService;
  struct Row {
    bool any = false;
    v1::PushKind kind = v1::GRADIENT;
    uint64_t round = 0;
    uint64_t session = 0;
    uint32_t attempt = 0;
    std::map<int, std::vector<float>> slices;
  };
  struct Version {
    uint64_t made = 0;
    std::map<int, std::vector<float>> slices;
  };
  struct ShardState {
    uint64_t life = 0;
    Row row;
    int frames = 0;
    int reads = kAll;  // so many frames are not stalled
    std::vector<std::string> authorizations;
    std::vector<v1::PushFrame> trips;
  };

  void Serve(int shard);
  // REQUIRES, all of them: mutex_ is held.
  grpc::Status CheckCall(uint64_t epoch) const;
  v1::JoinReply Describe() const;
  grpc::Status Land(int shard, const v1::PushFrame& frame, v1::PushAck* ack,
                    bool* acknowledged);
  bool Complete(int shard) const;
  bool HasRow(const v1::CommitRequest& commit) const;
  void Publish(const v1::CommitRequest* commit);
  void FillOutcome(uint64_t round, uint64_t session, uint32_t attempt,
                   v1::RoundOutcome* outcome) const;
  uint64_t newest() const { return versions_.size() - 1; }

  v1::DType push_dtype_ = v1::F32;
  const Manifest manifest_;
  const ShardPlan plan_;

  // What mutex_ guards.
  bool stopping_ = false;
  uint64_t epoch_ = 1000;
  bool open_ = true;
  std::string reason_;
  std::map<uint64_t, std::string> said_;  // by epoch: why it ended
  bool finished_ = false;
  bool holds_ = false;
  grpc::Status refusal_;
  bool silent_ = false;
  bool admits_later_ = false;
  uint64_t first_round_ = 0;  // of session_
  uint64_t session_ = 0;
  uint64_t last_session_ = 40960;
  uint64_t last_life_ = 1;
  std::vector<std::string> addresses_;
  std::vector<ShardState> shards_;
  std::vector<Version> versions_;
  std::map<uint64_t, Used> outcomes_;  // by round
  bool pipelined_ = false;
  int pulls_ = 0;
  std::vector<Used> used_;
  std::vector<v1::JoinRequest> joins_;
  v1::CommitRequest commit_;  // the last one
  int commits_ = 0;

  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::vector<std::unique_ptr<grpc::Server>> servers_;
};

}  // namespace agg

#endif  // AGG_TESTS_WORKER_CLIENT_EPOCH_JOB_H_
