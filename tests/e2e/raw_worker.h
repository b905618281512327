// A worker that speaks the wire's messages itself: rounds of one trip (P41),
// and what hostile or careless clients make of them.
#ifndef AGG_TESTS_E2E_RAW_WORKER_H_
#define AGG_TESTS_E2E_RAW_WORKER_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/agg.grpc.pb.h"
#include "proto/shard_plan.h"

namespace agg {

// Not thread-safe. Every call ends after a minute at the latest; what must not
// fail ends the test's process if it does.
class RawWorker {
 public:
  // Joins, and seeds with zeros if it is to.
  RawWorker(const std::string& coordinator, int rank, const Manifest& manifest);
  ~RawWorker();

  int num_shards() const { return job_.shards_size(); }
  uint64_t session() const { return job_.session(); }
  bool pipelined() const { return job_.pipelined(); }

  // The last frame of a row of ones for a shard: all of its slices, with
  // `report`, or `commit` on shard 0, and with `pull`.
  v1::PushFrame Frame(int shard, uint64_t round, uint32_t attempt = 0) const;
  // A frame for each slice of the row: `commit` and `pull` in the first one,
  // `report` in all.
  std::vector<v1::PushFrame> SplitBySlice(const v1::PushFrame& row) const;
  // Opens the shard's Push stream if none is open.
  void Send(int shard, const v1::PushFrame& frame);
  // The next message; ends the test's process when the stream ends.
  v1::PushAck Receive(int shard);
  // What comes up to the outcome of this round, in order: "ack", "closed",
  // "outcome" and "version" (its last frame).
  std::vector<std::string> ReceiveAll(int shard, size_t count);
  // Reads to the stream's end; the next Send opens another one.
  grpc::Status End(int shard);

  v1::RoundOutcome last_outcome() const { return last_outcome_; }
  v1::StatusReply Status();
  // Waits until the rank has committed, or the other way round.
  void AwaitCommitted(int rank);
  bool Committed(int rank);
  grpc::Status Leave();

 private:
  struct Stream {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::PushFrame, v1::PushAck>> call;
  };

  v1::PushFrame Row(int shard, v1::PushKind kind) const;
  void Seed();

  const std::unique_ptr<v1::Coordinator::Stub> coordinator_;
  v1::JoinReply job_;
  ShardPlan plan_;
  std::vector<std::unique_ptr<v1::Shard::Stub>> shards_;
  std::vector<std::unique_ptr<Stream>> streams_;  // by shard; null: none
  v1::RoundOutcome last_outcome_;
};

}  // namespace agg

#endif  // AGG_TESTS_E2E_RAW_WORKER_H_
