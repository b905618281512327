// Polls the completion queue of all streams on the caller's thread. Push
// returns only when gRPC holds no pointer into the caller's memory.
#include "worker_client/row_pusher.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/optional.h"
#include "proto/shard_plan.h"
#include "server/base/dcheck.h"
#include "server/base/status_macros.h"

namespace agg {

// A source calls back with its lock held, so that it is not asked under ours.

// The analysis does not see what a bool stands for.
bool PushTurn::Take(CancelSource* cancel) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  bool cancelled = false;  // under mutex_
  absl::optional<CancelSource::Registration> registration;
  if (cancel != nullptr) {
    registration.emplace(cancel, [this, &cancelled] {
      MutexLock lock(&mutex_);
      cancelled = true;
      changed_.NotifyAll();
    });
  }
  MutexLock lock(&mutex_);
  while (taken_ && !cancelled) changed_.Wait(&mutex_);
  if (cancelled) return false;
  taken_ = true;
  return true;
}

void PushTurn::Give() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  MutexLock lock(&mutex_);
  taken_ = false;
  changed_.NotifyAll();
}

PushTurnLock::PushTurnLock(PushTurn* turn) ABSL_NO_THREAD_SAFETY_ANALYSIS
    : turn_(turn) {
  turn_->Take(nullptr);  // always true
}

// Where every shard's part is small, what a round costs is its trips.

std::vector<int> TripShards(const ShardRouter& router, DType dtype) {
  std::vector<int> shards;
  for (int shard = 0; shard < router.num_shards(); ++shard) {
    const auto& slices = router.plan().slices_of_shard[shard];
    if (slices.empty()) continue;
    int64_t bytes = 0;
    for (const int32_t slice : slices) {
      bytes += router.plan().slices[slice].num_elements * DTypeBytes(dtype);
    }
    if (bytes > kMaxTripBytes || slices.size() > kMaxTripSlices) return {};
    shards.push_back(shard);
  }
  if (shards.empty() || shards.front() != 0) return {};
  return shards;
}

std::vector<int> PipelinedTripShards(const ShardRouter& router) {
  std::vector<int> shards;
  for (int shard = 0; shard < router.num_shards(); ++shard) {
    if (!router.plan().slices_of_shard[shard].empty()) shards.push_back(shard);
  }
  if (shards.empty() || shards.front() != 0) return {};
  return shards;
}

absl::Duration TripTimeout(const ClientOptions& options, bool pipelined) {
  return pipelined ? options.transfer_timeout + options.round_timeout
                   : std::min(options.transfer_timeout, options.round_timeout);
}

namespace {

using State = ShardStream::State;

}  // namespace

RowPusher::RowPusher(
    const ShardRouter* router, const std::vector<ShardName>& names,
    const std::vector<std::shared_ptr<grpc::Channel>>& channels,
    absl::Duration reconnect_window, CancelSource* cancel,
    ErrorFeedback* feedback)
    : router_(router),
      reconnect_window_(reconnect_window),
      cancel_(cancel),
      feedback_(feedback),
      memory_(std::make_shared<FrameMemory>()),
      waker_(&queue_),
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
  Drain(&queue_);
}

absl::Status RowPusher::Push(GrowingRow* row, const v1::FrameMeta& meta,
                             absl::Span<const int> shards,
                             absl::Span<RowRegion* const> regions,
                             absl::Duration timeout) {
  AGG_DCHECK(std::none_of(shards.begin(), shards.end(), [this](int shard) {
    return router_->plan().slices_of_shard[shard].empty();
  }));
  receipts_.clear();
  Job job{row, meta, RowSchedule(router_), {}, false, {}, {}};
  AGG_RETURN_IF_ERROR(Cancelled(job));
  row->SetWaker(&waker_);
  Start(shards, regions, &job);
  absl::Status status = Wait(timeout, &job);
  row->SetWaker(nullptr);
  TakeReceipts(job.parts);
  if (!status.ok()) Abandon(&job.parts);
  WaitForMemory();
  return status;
}

void RowPusher::RunPastEvents() {
  // A call that has ended must be replaced, since writing to it would fail.
  while (RunEvent(kAtOnce)) {
  }
}

RowPusher::Part RowPusher::MakePart(int shard, const v1::FrameMeta& meta,
                                    const GrowingRow& row, RowRegion* region,
                                    absl::Duration reconnect_window) {
  return Part{
      shard, streams_[shard].get(),
      std::make_unique<FrameSource>(router_, row.bound_row(), shard, meta,
                                    row.dtype(), memory_, feedback_, region),
      RetryPolicy(reconnect_window)};
}

void RowPusher::Start(absl::Span<const int> shards,
                      absl::Span<RowRegion* const> regions, Job* job) {
  RunPastEvents();
  for (size_t i = 0; i < shards.size(); ++i) {
    job->parts.push_back(MakePart(shards[i], job->meta, *job->row, regions[i],
                                  reconnect_window_));
    job->parts.back().stream->StartPush(job->parts.back().source.get(),
                                        job->meta);
  }
}

absl::StatusOr<std::vector<int>> RowPusher::Take(Job* job) {
  AGG_ASSIGN_OR_RETURN(GrowingRow::Taken taken, job->row->Take(&job->cursor));
  job->waits_for_device = taken.waits;
  if (!taken.tensors.empty()) job->pauses.Reset();
  return std::move(taken.tensors);
}

absl::Status RowPusher::Feed(Job* job) {
  AGG_ASSIGN_OR_RETURN(const std::vector<int> taken, Take(job));
  job->schedule.Give(taken);
  for (Part& part : job->parts) {
    if (part.stream->state() != State::kPushing || !part.stream->starved()) {
      continue;
    }
    const std::vector<int32_t> slices = job->schedule.Take(part.ordinal);
    if (slices.empty()) continue;
    part.source->Add(router_->PlanFrames(slices, job->row->dtype(),
                                         job->row->bound(),
                                         part.source->max_frame_bytes()));
    part.stream->Continue();
  }
  return absl::OkStatus();
}

bool RowPusher::RunEvent(absl::Time until) {
  void* tag;
  bool ok;
  if (queue_.AsyncNext(&tag, &ok, absl::ToChronoTime(until)) !=
      grpc::CompletionQueue::GOT_EVENT) {
    return false;
  }
  if (tag == &waker_) {
    waker_.TakeEvent();
  } else {
    static_cast<ShardStream::Event*>(tag)->Run(ok);
  }
  return true;
}

bool RowPusher::RunEventOrPause(absl::Time until, Job* job) {
  if (!job->waits_for_device) return RunEvent(until);
  if (RunEvent(kAtOnce)) return true;
  const absl::Time now = absl::Now();
  absl::SleepFor(std::min(job->pauses.Next(now), until - now));
  return false;
}

absl::Status RowPusher::Cancelled(const Job& job) const {
  const absl::Status cancelled = cancel_->status();
  return cancelled.ok() ? job.row->cancelled() : cancelled;
}

absl::Status RowPusher::TimedOut(const Job& job) {
  if (job.waits_for_device) return MarkTimeout("Push");
  std::string waiting;
  for (const Part& part : job.parts) {
    if (part.stream->state() == State::kAcknowledged) continue;
    absl::StrAppend(&waiting, waiting.empty() ? "" : ", ",
                    ToString(part.stream->name()));
  }
  return absl::DeadlineExceededError(absl::StrCat(
      waiting, ": Push: not acknowledged within transfer_timeout; check ",
      "the network, or allow more time"));
}

absl::StatusOr<bool> RowPusher::Advance(Job* job) {
  const absl::Time now = absl::Now();
  bool acknowledged = true;
  for (Part& part : job->parts) {
    acknowledged &= part.stream->state() == State::kAcknowledged;
    if (part.stream->state() != State::kBroken) continue;
    if (part.restart_at == absl::InfiniteFuture()) {
      const grpc::Status& failure = part.stream->status();
      // Its frames ask for a trip, and would be answered as one.
      if (part.trip.sink != nullptr) {
        return FromGrpc(failure, part.stream->name(), "Push");
      }
      const absl::optional<absl::Duration> pause =
          part.retries.AfterFailure(failure, now, part.stream->connected());
      if (!pause.has_value()) {
        return FromGrpc(failure, part.stream->name(), "Push");
      }
      part.restart_at = now + *pause;
    }
    if (part.restart_at <= now) {
      part.restart_at = absl::InfiniteFuture();
      part.stream->StartPush(part.source.get(), job->meta);
    }
  }
  for (const Part& part : job->parts) {
    if (!part.source->status().ok()) return part.source->status();
  }
  return acknowledged;
}

absl::Status RowPusher::Wait(absl::Duration timeout, Job* job) {
  absl::Time deadline = absl::InfiniteFuture();  // until the row is complete
  while (true) {
    if (deadline == absl::InfiniteFuture() && job->row->complete()) {
      deadline = absl::Now() + timeout;
    }
    AGG_RETURN_IF_ERROR(Feed(job));
    absl::StatusOr<bool> acknowledged = Advance(job);
    // Read after Advance: if the source cancelled a call, its reason is set by
    // now, and says more than the call's CANCELLED.
    AGG_RETURN_IF_ERROR(Cancelled(*job));
    if (!acknowledged.ok()) return acknowledged.status();
    if (*acknowledged) return absl::OkStatus();
    absl::Time until = deadline;
    for (const Part& part : job->parts)
      until = std::min(until, part.restart_at);
    if (!RunEventOrPause(until, job) && absl::Now() >= deadline) {
      return TimedOut(*job);
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

// A round in one trip: the sums of all shards go to shard 0 with its frame, so
// all frames are prepared before the first one is sent. Of a pipelined job
// there are no sums, and as many frames as it takes: what comes back is read
// between the writes, as one thread polls for both.

absl::Status RowPusher::PushInOneTrip(GrowingRow* row,
                                      const v1::FrameMeta& meta,
                                      absl::Span<const int> shards,
                                      absl::Span<RowRegion* const> regions,
                                      absl::Duration timeout, RoundTrip* trip) {
  receipts_.clear();
  Job job{row, meta, RowSchedule(router_), {}, false, {}, {}};
  AGG_RETURN_IF_ERROR(Cancelled(job));
  row->SetWaker(&waker_);
  absl::Status status = Take(&job).status();  // all of it: Feed finds nothing
  if (status.ok()) status = StartTrip(shards, regions, &job, trip);
  if (status.ok()) status = Wait(timeout, &job);
  row->SetWaker(nullptr);
  EndTrip(job, trip);
  if (!status.ok()) Abandon(&job.parts);
  // A server of another origin may skip fields that it does not know.
  for (const Part& part : job.parts) takes_trips_ &= !part.trip.passed_over;
  job.parts.clear();  // and with them frames that were not sent
  WaitForMemory();
  return trip->outcome.has_value() ? absl::OkStatus() : status;
}

absl::Status RowPusher::StartTrip(absl::Span<const int> shards,
                                  absl::Span<RowRegion* const> regions,
                                  Job* job, RoundTrip* trip) {
  RunPastEvents();
  std::vector<uint32_t> sums(streams_.size(), 0);
  for (size_t i = 0; i < shards.size(); ++i) {
    const int shard = shards[i];
    v1::FrameMeta meta = job->meta;
    meta.set_report(trip->pipelined || shard != 0);
    Part part =
        MakePart(shard, meta, *job->row, regions[i], absl::ZeroDuration());
    part.source->Add(
        router_->PlanFrames(shard, job->row->dtype(), job->row->bound()));
    if (!trip->pipelined) {
      AGG_RETURN_IF_ERROR(part.source->Prepare());
      sums[static_cast<size_t>(shard)] = part.source->row_crc32c().value_or(0);
    }
    part.trip.sink = trip->sink;
    part.trip.commits = shard == 0;
    job->parts.push_back(std::move(part));
  }
  if (!trip->pipelined) {
    trip->commit.mutable_row_crc32c()->Add(sums.begin(), sums.end());
  }
  // The list grows no more: streams point into it.
  for (Part& part : job->parts) {
    part.source->SetRequests(part.ordinal == 0 ? &trip->commit : nullptr,
                             &trip->pull, trip->pipelined);
    part.stream->StartPush(part.source.get(), job->meta, &part.trip);
  }
  return absl::OkStatus();
}

void RowPusher::EndTrip(const Job& job, RoundTrip* trip) {
  trip->pulled = true;
  for (const Part& part : job.parts) {
    if (part.trip.outcome.has_value()) trip->outcome = part.trip.outcome;
    trip->pulled &= part.trip.pulled;
  }
  // The outcome is the acknowledgement of all shards.
  for (const Part& part : job.parts) {
    if (!trip->outcome.has_value() && !part.trip.passed_over) continue;
    receipts_.push_back(
        {part.ordinal, !part.stream->closed(), part.source->row_crc32c()});
  }
}

}  // namespace agg
