// The reactor of one worker's Push stream: frames in; acknowledgements,
// outcomes and versions out.
#ifndef AGG_SERVER_RPC_PUSH_STREAM_H_
#define AGG_SERVER_RPC_PUSH_STREAM_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "proto/byte_buffer_frame.h"
#include "server/access/access_rules.h"
#include "server/access/caller_gate.h"
#include "server/coordinator/coordinator.h"
#include "server/ingest/frame.h"
#include "server/rpc/bidi_stream.h"
#include "server/rpc/connection_listener.h"
#include "server/rpc/row_reports.h"
#include "server/rpc/stream_pulls.h"
#include "server/shard/shard_engine.h"

namespace agg {

// What a Push stream uses of its process; all outlive the gRPC server.
struct PushTargets {
  ShardEngine* engine = nullptr;
  OpenStreams* open = nullptr;
  PullFrameCache* cache = nullptr;
  RowReports* reports = nullptr;
  // Takes commits that come with frames; null on other shards than 0, where
  // such a frame gets `not_the_coordinator`.
  Coordinator* coordinator = nullptr;
  absl::Status not_the_coordinator;
  const CallerGate* gate = nullptr;
  // Hears of versions that a client did not read in time; null: nobody does.
  std::shared_ptr<OvertakenReaders> overtaken = nullptr;
};

inline constexpr char kPushMethod[] = "agg.v1.Shard/Push";

// One read is in flight at a time: OnReadDone lands the frame before it starts
// the next read, so that a client can be at most one frame (and the transport's
// window) ahead. What goes out goes beside the reads (bidi_stream.h): versions
// while nothing else is queued. What comes with a frame (P41) is looked at when
// the frame has landed. The first error ends the stream; so does the client's
// WritesDone, with OK.
class PushStream : public BidiStream<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // `caller` has been admitted to kPushMethod.
  static PushStream* Start(grpc::CallbackServerContext* context,
                           const Caller& caller, const PushTargets* targets);

 private:
  PushStream(const Caller& caller, const PushTargets* targets)
      : BidiStream(targets->open), targets_(targets), caller_(caller) {}

  void OnReadDone(bool ok) override;
  std::optional<grpc::ByteBuffer> MakeMessage() override;
  void OnWritten() override { pulls_->Written(); }
  void OnEnded() override;

  // Whether the session is the caller's (P45): asked once for each that the
  // stream's frames name in an epoch, in which it never changes hands.
  absl::Status CheckSession(const FrameHeader& header);
  // Lands frame_, and does what comes with it.
  absl::Status TakeFrame();
  // Answers a frame, or has the coordinator answer, if it completes its row.
  void Acknowledge(const FrameReader& frame, const FrameLanding& landing,
                   const FrameResult& result);
  absl::Status Commit(const FrameReader& frame);
  // Whose row came last, for people. Thread-safe.
  std::string who() const;

  const PushTargets* const targets_;
  const Caller caller_;
  // The last ones that are the caller's; 0: none yet.
  uint64_t epoch_ = 0;
  uint64_t session_ = 0;
  std::atomic<int32_t> rank_{-1};
  std::atomic<uint64_t> row_session_{0};
  std::shared_ptr<StreamPulls> pulls_;  // set by Start
  grpc::ByteBuffer frame_;              // being read, or landed
  // The coordinator's numbers of the last commits, to be cancelled: as many as
  // a session may have waiting.
  std::deque<uint64_t> waits_;
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_PUSH_STREAM_H_
