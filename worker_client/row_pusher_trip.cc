// A round in one trip: the sums of all shards go to shard 0 with its frame, so
// all frames are prepared before the first one is sent. Of a pipelined job
// there are no sums, and as many frames as it takes: what comes back is read
// between the writes, as one thread polls for both.
#include <utility>

#include "worker_client/row_pusher.h"

namespace agg {
namespace {

// A server of an older release refuses fields that it does not know.
bool ShowsNoTrips(const ShardStream& stream) {
  return stream.state() == ShardStream::State::kBroken &&
         (stream.status().error_code() == grpc::StatusCode::INVALID_ARGUMENT ||
          stream.status().error_code() == grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace

absl::Status RowPusher::PushInOneTrip(GrowingRow* row,
                                      const v1::FrameMeta& meta,
                                      absl::Span<const int> shards,
                                      absl::Span<RowRegion* const> regions,
                                      absl::Duration timeout, RoundTrip* trip) {
  receipts_.clear();
  Job job{row, meta, RowSchedule(router_), {}, false, {}, {}};
  absl::Status status = Cancelled(job);
  if (!status.ok()) return status;
  row->SetWaker(&waker_);
  status = Take(&job).status();  // all of it: Feed finds nothing
  if (status.ok()) status = StartTrip(shards, regions, &job, trip);
  if (status.ok()) status = Wait(timeout, &job);
  row->SetWaker(nullptr);
  EndTrip(job, trip);
  if (!status.ok()) Abandon(&job.parts);
  for (const Part& part : job.parts) {
    if (part.trip.passed_over || ShowsNoTrips(*part.stream)) {
      takes_trips_ = false;
    }
  }
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
      const absl::Status prepared = part.source->Prepare();
      if (!prepared.ok()) return prepared;
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
