// A job for one worker, in this process: what a client needs of agg_server,
// and failures on demand.
#ifndef AGG_TESTS_WORKER_CLIENT_FAKE_JOB_H_
#define AGG_TESTS_WORKER_CLIENT_FAKE_JOB_H_

#include <grpcpp/server.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/dtype.h"
#include "proto/agg.grpc.pb.h"
#include "proto/shard_plan.h"
#include "tests/worker_client/fake_state.h"

namespace agg {

// Real gRPC servers on loopback that handle typed messages: nothing is shared
// with the client's framing. A pull's first slices come first. Rows are kept as
// they were pushed; a commit publishes parameters - row. Versions are kept for
// ever.
class FakeJob : private FakeState {
 public:
  struct Options {
    int num_shards = 1;
    DType push_dtype = DType::kF32;
    DType pull_dtype = DType::kF32;
    bool seed_role = true;
    int64_t lease_ms = 30000;
    int port = 0;  // of shard 0; 0: any
    // What Join says in place of the others' addresses; "": those.
    std::string said_address;
    // Unix sockets of this name and "-", the ordinal; "": there are none.
    std::string local_sockets;
    // Where each shard is said to give regions (P39), by ordinal; their lives
    // are 1, 2, .. then.
    std::vector<std::string> region_sockets;
    // The bytes of a slice that a frame names with in_place.
    std::function<std::string(const v1::FrameMeta& meta, int slice)> placed;
    // Decides of a pull with in_place whether its frame says places, which it
    // fills in with the slices. The version's bytes of each slice are asked
    // for.
    std::function<bool(const v1::PullRequest& request,
                       const std::function<std::string(int slice)>& bytes,
                       v1::PullFrame* frame)>
        place;
  };

  FakeJob(Manifest manifest, Options options);
  ~FakeJob();

  std::string coordinator() const { return addresses_[0]; }
  const std::string& address(int shard) const { return addresses_[shard]; }

  // Decides about each pushed frame (counted from 0 over all streams of the
  // shard) and each pull (likewise): not OK ends the stream with it. Called
  // on server threads.
  using Fault = std::function<grpc::Status(int count)>;
  using Choice = std::function<bool(int count)>;
  void set_push_fault(int shard, Fault fault) {
    Set(&shards_[shard].push_fault, std::move(fault));
  }
  void set_pull_fault(int shard, Fault fault) {
    Set(&shards_[shard].pull_fault, std::move(fault));
  }
  // Decides before each version that goes along with a row in one trip.
  void set_trip_fault(int shard, Fault fault) {
    Set(&shards_[shard].trip_fault, std::move(fault));
  }
  // Pulls whose count makes this true get a flipped bit.
  void set_pull_corruption(int shard, Choice corrupts) {
    Set(&shards_[shard].corrupts, std::move(corrupts));
  }
  // Versions that go along with a row get one in their first slice.
  void set_trip_corruption(int shard, Choice corrupts) {
    Set(&shards_[shard].trip_corrupts, std::move(corrupts));
  }
  // Leaves the shard's frames unread until the job ends.
  void StallPushes(int shard) { Set(&shards_[shard].stalls, true); }
  // Commits are not answered, until they are again.
  void HoldCommits() { Set(&hold_commits_, true); }
  void ReleaseCommits() { Set(&hold_commits_, false); }
  // They are answered with this.
  void FailCommits(grpc::Status status) {
    Set(&commit_failure_, std::move(status));
  }

  // Sends to the attending client; waits for it to attend.
  void Send(v1::JobEvent::Kind kind, std::string message = "");
  // The job has finished, and only those who ask learn it: Observe says so, and
  // the outcomes of later rounds are refused.
  void Finish() { Set(&finished_, true); }
  // Gives a pull so many frames and then waits; -1: it goes on.
  void HoldPullsAfter(int frames) { Set(&pull_frames_, frames); }
  // Waits until so many frames of pushes have come to all shards together.
  void AwaitFrames(int count);
  // Waits until so many commits have come, the seed's included.
  void AwaitCommits(int count) {
    Await([&] { return commits_ >= count; });
  }
  // Waits until a pull is waiting for a version to come.
  void AwaitWaitingPull() {
    Await([this] { return waiting_pulls_ > 0; });
  }
  // Ends a shard's server at once.
  void Stop(int shard);

  // What was asked so far.
  int frames(int shard) const { return Read(shards_[shard].frames); }
  int pulls(int shard) const { return Read(shards_[shard].pulls); }
  // Frames that asked for a trip.
  int trips(int shard) const { return Read(shards_[shard].trips); }
  int leaves() const { return Read(leaves_); }
  // The last commit.
  v1::CommitRequest commit() const { return Read(commit_); }
  // The last Commit's metadata of that name.
  std::vector<std::string> commit_traceparents() const {
    return Read(commit_traceparents_);
  }

 private:
  class ShardService;
  class CoordinatorService;
  struct ShardState {
    Fault push_fault, pull_fault, trip_fault;
    Choice corrupts, trip_corrupts;
    bool stalls = false;
    int frames = 0;
    int pulls = 0;
    int trips = 0;
  };

  std::string LocalSocket(int shard) const;
  v1::JoinReply Describe() const;  // with mutex_ held
  // Stores a frame's slices; true when the shard has all.
  bool Land(int shard, const v1::PushFrame& frame);
  void Publish(const v1::CommitRequest& request);
  v1::RoundOutcome OutcomeOf(const v1::CommitRequest& request) const;
  // A shard's slices, the request's first ones first, which must be its own.
  std::vector<int32_t> PullOrder(const v1::PullRequest& request,
                                 int shard) const;
  // Waits before a pull's next frame, after `sent`.
  void AwaitTurn(int sent, grpc::ServerContext* context);
  // A version's slice as `dtype`.
  std::string Payload(uint64_t version, int slice, v1::DType dtype) const;

  const Manifest manifest_;
  const Options options_;
  const ShardPlan plan_;
  std::vector<std::string> addresses_;

  // What mutex_ guards.
  bool stopping_ = false;
  bool finished_ = false;
  std::vector<ShardState> shards_;
  std::map<int, std::vector<float>> row_;         // by slice
  std::pair<uint64_t, uint32_t> row_name_{0, 0};  // its round and attempt
  std::vector<std::map<int, std::vector<float>>> versions_;
  std::deque<v1::JobEvent> events_;
  v1::CommitRequest commit_;
  std::vector<std::string> commit_traceparents_;
  int commits_ = 0;
  bool hold_commits_ = false;
  grpc::Status commit_failure_;
  int waiting_pulls_ = 0;
  int pull_frames_ = -1;  // that a pull gets at once; -1: all
  int leaves_ = 0;
  int attends_ = 0;

  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::vector<std::unique_ptr<grpc::Server>> servers_;
};

}  // namespace agg

#endif  // AGG_TESTS_WORKER_CLIENT_FAKE_JOB_H_
