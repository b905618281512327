// Polls the completion queue of all streams on the caller's thread. Push
// returns only when gRPC holds no pointer into the caller's memory.
#include "worker_client/row_pusher.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace agg {
namespace {

using State = ShardStream::State;

// To gRPC, a negative time since the Unix epoch is the infinite future.
constexpr absl::Time kAtOnce = absl::UnixEpoch();

}  // namespace

RowPusher::RowPusher(
    const ShardRouter* router, const std::vector<ShardName>& names,
    const std::vector<std::shared_ptr<grpc::Channel>>& channels,
    absl::Duration reconnect_window, CancelSource* cancel)
    : router_(router),
      reconnect_window_(reconnect_window),
      cancel_(cancel),
      memory_(std::make_shared<FrameMemory>()),
      streams_(names.size()) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (router_->plan().slices_of_shard[i].empty()) continue;
    streams_[i] =
        std::make_unique<ShardStream>(names[i], channels[i], &queue_, cancel_);
  }
}

RowPusher::~RowPusher() {
  for (const auto& stream : streams_) {
    if (stream != nullptr) stream->Cancel();
  }
  for (const auto& stream : streams_) {
    while (stream != nullptr && !stream->Drained()) {
      RunEvent(absl::InfiniteFuture());
    }
  }
  queue_.Shutdown();
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
  }
}

absl::Status RowPusher::Push(absl::Span<const TensorView> bound, DType dtype,
                             const v1::FrameMeta& meta,
                             absl::Span<const int> shards,
                             absl::Time deadline) {
  receipts_.clear();
  absl::Status status = cancel_->status();
  if (!status.ok()) return status;
  std::vector<Part> parts = Start(bound, dtype, meta, shards);
  status = Wait(meta, deadline, &parts);
  TakeReceipts(parts);
  if (!status.ok()) Abandon(&parts);
  WaitForMemory();
  return status;
}

std::vector<RowPusher::Part> RowPusher::Start(
    absl::Span<const TensorView> bound, DType dtype, const v1::FrameMeta& meta,
    absl::Span<const int> shards) {
  // First handle what happened to the streams since the last push: a call that
  // has ended must be replaced, since writing to it would fail.
  while (RunEvent(kAtOnce)) {
  }
  std::vector<Part> parts;
  for (const int shard : shards) {
    parts.push_back(Part{shard, streams_[shard].get(),
                         std::make_unique<FrameSource>(router_, bound, shard,
                                                       meta, dtype, memory_),
                         RetryPolicy(reconnect_window_)});
    parts.back().stream->StartPush(parts.back().source.get(), meta);
  }
  return parts;
}

bool RowPusher::RunEvent(absl::Time until) {
  void* tag;
  bool ok;
  if (queue_.AsyncNext(&tag, &ok, absl::ToChronoTime(until)) !=
      grpc::CompletionQueue::GOT_EVENT) {
    return false;
  }
  static_cast<ShardStream::Event*>(tag)->Run(ok);
  return true;
}

absl::StatusOr<bool> RowPusher::Advance(const v1::FrameMeta& meta,
                                        std::vector<Part>* parts) {
  const absl::Time now = absl::Now();
  bool acknowledged = true;
  for (Part& part : *parts) {
    acknowledged &= part.stream->state() == State::kAcknowledged;
    if (part.stream->state() != State::kBroken) continue;
    if (part.restart_at == absl::InfiniteFuture()) {
      const grpc::Status& failure = part.stream->status();
      const absl::optional<absl::Duration> pause =
          part.retries.AfterFailure(failure, now, part.stream->connected());
      if (!pause.has_value()) {
        return FromGrpc(failure, part.stream->name(), "Push");
      }
      part.restart_at = now + *pause;
    }
    if (part.restart_at <= now) {
      part.restart_at = absl::InfiniteFuture();
      part.stream->StartPush(part.source.get(), meta);
    }
  }
  return acknowledged;
}

absl::Status RowPusher::Wait(const v1::FrameMeta& meta, absl::Time deadline,
                             std::vector<Part>* parts) {
  while (true) {
    absl::StatusOr<bool> acknowledged = Advance(meta, parts);
    // Read after Advance: if the source cancelled a call, its reason is set by
    // now, and says more than the call's CANCELLED.
    absl::Status cancelled = cancel_->status();
    if (!cancelled.ok()) return cancelled;
    if (!acknowledged.ok()) return acknowledged.status();
    if (*acknowledged) return absl::OkStatus();
    absl::Time until = deadline;
    for (const Part& part : *parts) until = std::min(until, part.restart_at);
    if (!RunEvent(until) && absl::Now() >= deadline) {
      std::string waiting;
      for (const Part& part : *parts) {
        if (part.stream->state() == State::kAcknowledged) continue;
        absl::StrAppend(&waiting, waiting.empty() ? "" : ", ",
                        ToString(part.stream->name()));
      }
      return absl::DeadlineExceededError(absl::StrCat(
          waiting, ": Push: not acknowledged within transfer_timeout; check ",
          "the network, or allow more time"));
    }
  }
}

void RowPusher::TakeReceipts(const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    if (part.stream->state() != State::kAcknowledged) continue;
    receipts_.push_back(
        {part.ordinal, !part.stream->closed(), part.source->row_crc32c()});
  }
}

void RowPusher::Abandon(std::vector<Part>* parts) {
  for (Part& part : *parts) {
    if (part.stream->state() == State::kPushing) part.stream->Cancel();
  }
  for (Part& part : *parts) {
    while (part.stream->state() == State::kPushing) {
      RunEvent(absl::InfiniteFuture());
    }
  }
}

void RowPusher::WaitForMemory() {
  // Nearly always done at once, since what is acknowledged has been sent. After
  // a failure the transport may hold bytes until its write ends, at the latest
  // when keepalive closes the connection. gRPC does its work in threads that
  // poll, so this one polls meanwhile.
  while (memory_->frames_in_use() > 0) {
    RunEvent(absl::Now() + absl::Milliseconds(1));
  }
}

}  // namespace agg
