// A round that is pushed, committed and pulled in one trip (P41), and what an
// ordinary round does with it.
#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "proto/agg.pb.h"
#include "worker_client/client_core.h"
#include "worker_client/commit_request.h"
#include "worker_client/mark_wait.h"

namespace agg {

std::vector<int> ClientCore::ShardsOfTrip(const JobView& view) {
  if (!trip_shards_.empty() || !view.reply().pipelined()) return trip_shards_;
  // In shared memory ordinary calls copy faster than a stream sends.
  const bool sends =
      std::any_of(pipelined_shards_.begin(), pipelined_shards_.end(),
                  [&](int shard) { return !regions_.Get(view, shard)->any(); });
  return sends ? pipelined_shards_ : std::vector<int>();
}

bool ClientCore::MayTry(const JobView& view, const std::vector<int>& owed,
                        const TripWish* wish) {
  return wish != nullptr && pusher_->takes_trips() && !owed.empty() &&
         owed == ShardsOfTrip(view);
}

absl::Status ClientCore::AwaitDevices(const View& view, const GrowingRow& row,
                                      const PullInto& into) {
  const absl::Time deadline = absl::Now() + options_.transfer_timeout;
  // Who cancels the round cancels the row after the operation that pushes it.
  const auto cancelled = [&] {
    const absl::Status over = view->over()->status();
    return over.ok() ? row.cancelled() : over;
  };
  const absl::Status pushed =
      AwaitMarks(row.marks(), "Push", deadline, cancelled);
  // What the trip brings is written at once.
  return pushed.ok() ? AwaitMarks(into.marks, "Pull", deadline, cancelled)
                     : pushed;
}

absl::Status ClientCore::TryTrip(const View& view, const v1::FrameMeta& meta,
                                 const RowName& name, GrowingRow* row,
                                 TripWish* wish) {
  const PullInto& into = *wish->into;
  const absl::Status ready = AwaitDevices(view, *row, into);
  if (!ready.ok()) return ready;
  PullTarget target;
  target.epoch = view->epoch();
  target.version = name.round + 1;
  target.dtype = PullDType(into);
  RoundTrip trip;
  trip.pipelined = view->reply().pipelined();
  PullOrigin origin{target.version, view->past(), view->epoch()};
  origin.published = !trip.pipelined;
  into.arrivals->Begin(origin);
  ParameterSink sink(router_.get(), into.targets(), target, into.arrivals);
  trip.sink = &sink;
  trip.commit = CommitOf(name, *wish->info);
  trip.commit.set_epoch(meta.epoch());
  trip.commit.set_session(meta.session());
  trip.commit.set_traceparent(wish->info->traceparent);
  trip.commit.set_absent_tensors(row->absent_tensors());
  trip.pull.set_epoch(meta.epoch());
  trip.pull.set_version(target.version);
  trip.pull.set_dtype(static_cast<v1::DType>(target.dtype));
  const std::vector<int> shards = ShardsOfTrip(*view);
  const ShardRegions::Placed placed =
      regions_.Begin(*view, name, shards, row->devices());
  const absl::Status status =
      pusher_->PushInOneTrip(row, meta, shards, placed.regions,
                             TripTimeout(options_, trip.pipelined), &trip);
  TakeReceipts(view, name);
  {
    // An ordinary Commit may follow.
    MutexLock lock(&custody_mutex_);
    if (custody_.row() == name) {
      custody_.NoteAbsent(trip.commit.absent_tensors());
    }
  }
  if (status.ok()) NoteTrip(view, name, trip, wish);
  return absl::OkStatus();  // else ordinary calls go on
}

void ClientCore::NoteTrip(const View& view, const RowName& name,
                          const RoundTrip& trip, TripWish* wish) {
  if (!trip.outcome.has_value()) return;
  wish->outcome = session_.Note(*view, *trip.outcome);
  const uint64_t version = name.round + 1;
  const bool makes_it = wish->outcome->version == version;
  // What has come of it is good in the next epoch, too.
  if (makes_it) {
    wish->into->arrivals->Begin({version, view->past(), view->epoch()});
  }
  {
    MutexLock lock(&custody_mutex_);
    if (custody_.row() == name) custody_.Know();
  }
  // A version that came in an epoch that has ended is pulled again.
  wish->pulled =
      trip.pulled && makes_it && membership_->NoteHeld(*view, version);
  if (wish->pulled) version_ = version;
}

}  // namespace agg
