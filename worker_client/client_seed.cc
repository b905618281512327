// The seed: pushed and committed by one worker, pulled by the others. Apart
// from client_core.cc because other rules hold after a loss: a job that is
// unseeded has forgotten what was pushed.
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "kernels/narrow_float.h"
#include "proto/agg.pb.h"
#include "server/base/field_error.h"
#include "worker_client/client_core.h"

namespace agg {
namespace {

std::vector<TensorView> ConstViews(absl::Span<const MutableTensorView> views) {
  std::vector<TensorView> result;
  for (const MutableTensorView& view : views) {
    result.emplace_back(view.name,
                        absl::MakeConstSpan(view.data, view.num_elements));
  }
  return result;
}

// With "none" later versions are gradients: version 0 is all that there is of
// the parameters that workers begin with, and comes as it was seeded.
Precision PrecisionOfSeed(const JobDescription& job) {
  return job.optimizer == "none" ? Precision::kFull : Precision::kJob;
}

// Whether who pulls the seed narrowed gets what was seeded: a finite value that
// is infinite then would never train. (What is on a device is not looked at.)
absl::Status CheckFits(const GrowingRow& seed, const Manifest& manifest,
                       const JobDescription& job) {
  const DType pull_dtype = job.pull_dtype;
  if (pull_dtype == DType::kF32 || seed.any_on_device() ||
      PrecisionOfSeed(job) == Precision::kFull) {
    return absl::OkStatus();
  }
  const uint32_t limit =
      pull_dtype == DType::kF16 ? kF16OverflowBits : kBf16OverflowBits;
  for (size_t t = 0; t < seed.bound().size(); ++t) {
    const TensorView& view = seed.bound()[t];
    if (view.data == nullptr || view.dtype != DType::kF32) continue;
    const auto* const values = static_cast<const float*>(view.data);
    for (int64_t k = 0; k < view.num_elements; ++k) {
      const uint32_t bits = BitsOfFloat(values[k]) & 0x7fffffffu;
      if (bits < limit || bits >= 0x7f800000u) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("seed: element ", k, " of tensor ",
                       Quoted(manifest.tensors[t].name), " is ", values[k],
                       ", which the job's pull_dtype \"", DTypeName(pull_dtype),
                       "\" cannot hold; allowed: smaller values, or "
                       "pull_dtype \"f32\" in the job's configuration"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ClientCore::PushSeed(const View& view, GrowingRow* seed,
                                  RowName* row, uint64_t* row_epoch) {
  CatchUp(*view);
  // After a recovery version 0 may be there: then only the answer is missing.
  const bool pushes = view->serial() == 0 || !view->reply().seeded();
  PushTurnLock turn(&push_turn_);
  // An epoch that begins unseeded has forgotten what was pushed before, also
  // on shards that live: their receipts say nothing.
  if (row->session != view->session() ||
      (pushes && *row_epoch != view->epoch())) {
    MutexLock custody_lock(&custody_mutex_);
    *row = custody_.Begin(/*seed=*/true, 0, view->session());
    *row_epoch = view->epoch();
  }
  return pushes ? PushOwed(view, *row, seed) : absl::OkStatus();
}

absl::StatusOr<RoundOutcome> ClientCore::SeedOnce(const View& view,
                                                  GrowingRow* seed,
                                                  RowName* row,
                                                  uint64_t* row_epoch) {
  const absl::Status status = PushSeed(view, seed, row, row_epoch);
  if (!status.ok()) return status;
  v1::CommitRequest request;
  request.set_kind(v1::SEED);
  request.set_attempt(row->attempt);
  absl::StatusOr<RoundOutcome> outcome = session_.Commit(
      *view, std::move(request), absl::Now() + options_.round_timeout);
  if (outcome.ok() && !membership_->NoteHeld(*view, outcome->version)) {
    return view->over()->status();
  }
  return outcome;
}

absl::StatusOr<RoundOutcome> ClientCore::Seed(
    absl::Span<const TensorView> parameters) {
  GrowingRow seed(router_.get(), DType::kF32, &devices_);
  absl::Status given = CheckPushes();
  if (given.ok()) given = seed.Give(parameters);
  if (given.ok()) given = seed.Complete();
  if (given.ok()) given = CheckFits(seed, router_->manifest(), job_);
  if (!given.ok()) return given;
  RowName row;
  uint64_t row_epoch = 0;
  absl::StatusOr<RoundOutcome> outcome;
  const absl::Status status =
      membership_->Persist(absl::InfiniteFuture(), [&](const View& view) {
        outcome = SeedOnce(view, &seed, &row, &row_epoch);
        return outcome.status();
      });
  if (!status.ok()) return status;
  version_ = outcome->version;
  MutexLock lock(&custody_mutex_);
  if (custody_.row() == row) custody_.Know();
  return outcome;
}

absl::Status ClientCore::SeedOrPull(
    absl::Span<const MutableTensorView> parameters) {
  absl::StatusOr<PullInto> bound = IntoOf(parameters);
  if (!bound.ok()) return bound.status();
  PullArrivals arrivals(router_.get());
  PullInto& into = *bound;
  into.arrivals = &arrivals;
  into.precision = PrecisionOfSeed(job_);
  while (true) {
    const View view = membership_->view();
    if (!view->seed_role()) {
      const absl::Status status = PullFirst(into);
      if (IsGone(status)) {
        return PullLatest(into).status();
      }
      // The wait ended because the seeder is gone, and this worker now has its
      // role: it goes on to Seed.
      if (status.ok() || !membership_->view()->seed_role() ||
          !membership_->fate().ok()) {
        return status;
      }
    }
    const absl::StatusOr<RoundOutcome> seeded = Seed(ConstViews(parameters));
    // All workers must start from equal values. Where parameters travel
    // narrowed, the others get rounded values, so the seeder pulls them, too.
    if (seeded.ok() && (job_.pull_dtype == DType::kF32 ||
                        into.precision == Precision::kFull)) {
      return absl::OkStatus();
    }
    if (seeded.ok() || absl::IsAlreadyExists(seeded.status())) {
      const absl::Status status = PullFirst(into);
      if (!IsGone(status)) return status;
      return PullLatest(into).status();
    }
    // The role may have gone to another worker when an epoch ended.
    if (membership_->view() == view || !membership_->fate().ok() ||
        membership_->view()->seed_role()) {
      return seeded.status();
    }
  }
}

absl::Status ClientCore::PullFirst(const PullInto& into) {
  const absl::Time deadline = absl::Now() + options_.round_timeout;
  return membership_->Persist(deadline, [&](const View& view) {
    return PullOnce(view, view->reply().first_round(), into, deadline,
                    /*wait_for_seed=*/true);
  });
}

}  // namespace agg
