// A round that is pushed, committed and pulled in one trip (P41), and what an
// ordinary round does with it.
#include <algorithm>
#include <utility>

#include "proto/agg.pb.h"
#include "worker_client/client_core.h"
#include "worker_client/commit_request.h"

namespace agg {

bool ClientCore::MayTry(const std::vector<int>& owed,
                        const TripWish* wish) const {
  return wish != nullptr && !trip_shards_.empty() && owed == trip_shards_ &&
         pusher_->takes_trips();
}

void ClientCore::TryTrip(const View& view, const v1::FrameMeta& meta,
                         const RowName& name, GrowingRow* row, TripWish* wish) {
  const PullInto& into = *wish->into;
  PullTarget target;
  target.epoch = view->epoch();
  target.version = name.round + 1;
  target.dtype = PullDType(into);
  RoundTrip trip;
  PullOrigin origin{target.version, view->past(), view->epoch()};
  origin.published = !view->reply().pipelined();
  into.arrivals->Begin(origin);
  ParameterSink sink(router_.get(), into.bound, target, into.arrivals);
  trip.sink = &sink;
  trip.commit = CommitOf(name, *wish->info);
  trip.commit.set_epoch(meta.epoch());
  trip.commit.set_session(meta.session());
  trip.commit.set_traceparent(wish->info->traceparent);
  trip.pull.set_epoch(meta.epoch());
  trip.pull.set_version(target.version);
  trip.pull.set_dtype(static_cast<v1::DType>(target.dtype));
  const ShardRegions::Placed placed = regions_.Begin(*view, name, trip_shards_);
  const absl::Status status = pusher_->PushInOneTrip(
      row, meta, trip_shards_, placed.regions,
      std::min(options_.transfer_timeout, options_.round_timeout), &trip);
  TakeReceipts(view, name);
  if (status.ok()) NoteTrip(view, name, trip, wish);
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
