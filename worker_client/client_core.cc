// Ties session, pusher and router together, and remembers which attempt of
// which round was pushed with which checksums.
#include "worker_client/client_core.h"

#include <utility>

#include "absl/time/clock.h"
#include "worker_client/channel.h"

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

JobDescription Describe(const v1::JoinReply& reply) {
  JobDescription job;
  job.job = reply.job();
  job.rule = reply.rule();
  job.scope = reply.scope();
  job.step_scale = reply.step_scale();
  job.workers = reply.workers();
  job.shards.assign(reply.shards().begin(), reply.shards().end());
  job.push_dtype = static_cast<DType>(reply.push_dtype());
  job.pull_dtype = static_cast<DType>(reply.pull_dtype());
  return job;
}

}  // namespace

ClientCore::ClientCore(const ClientOptions& options,
                       std::unique_ptr<CoordinatorSession> session,
                       ShardRouter router)
    : options_(options),
      session_(std::move(session)),
      router_(std::move(router)),
      job_(Describe(description())),
      version_(description().version()) {
  std::vector<std::shared_ptr<grpc::Channel>> push_channels;
  for (size_t i = 0; i < job_.shards.size(); ++i) {
    // The coordinator is shard 0. It was reached at options_.coordinator, so
    // that address works here even if the config has another one.
    const std::string& address = i == 0 ? options_.coordinator : job_.shards[i];
    pull_.names.push_back(ShardName{static_cast<int>(i), address});
    push_channels.push_back(i == 0 ? session_->channel()
                                   : MakeChannel(address));
    pull_.channels.push_back(options_.channels_per_shard == 1
                                 ? push_channels.back()
                                 : MakeChannel(address));
  }
  pull_.router = &router_;
  pull_.reconnect_window = options_.reconnect_window;
  pull_.cancels = {session_->fate()};
  pusher_ =
      std::make_unique<RowPusher>(&router_, pull_.names, push_channels,
                                  options_.reconnect_window, session_->fate());
}

uint32_t ClientCore::BeginAttempt(const PushKey& key) {
  MutexLock lock(&pushes_mutex_);
  const auto found = pushes_.find(key);
  if (found != pushes_.end()) {
    found->second.row_crc32c.clear();
    return ++found->second.attempt;
  }
  pushes_[key] = Pushed();
  if (pushes_.size() > kMaxPushes) pushes_.erase(pushes_.begin());
  return 0;
}

ClientCore::Pushed ClientCore::FindPushed(const PushKey& key) const {
  MutexLock lock(&pushes_mutex_);
  const auto found = pushes_.find(key);
  return found == pushes_.end() ? Pushed() : found->second;
}

absl::Status ClientCore::PushAs(v1::PushKind kind, uint64_t round, DType dtype,
                                absl::Span<const TensorView> views) {
  if (options_.observer) {
    return absl::FailedPreconditionError(
        "observers only pull; Connect with observer = false and a rank");
  }
  absl::StatusOr<std::vector<TensorView>> bound = router_.Bind(views, dtype);
  if (!bound.ok()) return bound.status();
  v1::FrameMeta meta;
  meta.set_epoch(description().epoch());
  meta.set_session(description().session());
  meta.set_round(round);
  meta.set_kind(kind);
  const absl::Time deadline = absl::Now() + options_.transfer_timeout;
  const PushKey key(kind, round);
  MutexLock lock(&push_mutex_);
  meta.set_attempt(BeginAttempt(key));
  const absl::Status status = pusher_->Push(*bound, dtype, meta, deadline);
  {
    MutexLock pushes_lock(&pushes_mutex_);
    const auto pushed = pushes_.find(key);
    if (pushed != pushes_.end()) {
      pushed->second.row_crc32c = pusher_->row_crc32c();
    }
  }
  return session_->Explain(status);
}

absl::Status ClientCore::Push(absl::Span<const TensorView> gradient) {
  return PushAs(v1::GRADIENT, version_, job_.push_dtype, gradient);
}

absl::StatusOr<RoundOutcome> ClientCore::Seed(
    absl::Span<const TensorView> parameters) {
  absl::Status status = PushAs(v1::SEED, 0, DType::kF32, parameters);
  if (!status.ok()) return status;
  v1::CommitRequest request;
  request.set_kind(v1::SEED);
  request.set_attempt(FindPushed({v1::SEED, 0}).attempt);
  absl::StatusOr<RoundOutcome> outcome = session_->Commit(request);
  if (outcome.ok()) version_ = outcome->version;
  return outcome;
}

absl::Status ClientCore::SeedOrPull(
    absl::Span<const MutableTensorView> parameters) {
  const uint64_t first = description().first_round();
  if (!session_->seed_role()) {
    absl::Status status =
        Pull(first, parameters, Precision::kJob, /*wait_for_seed=*/true);
    if (IsGone(status)) {
      return PullLatest(parameters, Precision::kJob).status();
    }
    // The wait ended because the seeder is gone, and this worker now has its
    // role: it goes on to Seed.
    if (status.ok() || !session_->seed_role() ||
        !session_->fate()->status().ok()) {
      return status;
    }
  }
  absl::StatusOr<RoundOutcome> seeded = Seed(ConstViews(parameters));
  // All workers must start from equal values. Where parameters travel narrowed,
  // the others get rounded values, so the seeder pulls them, too.
  if (seeded.ok() && job_.pull_dtype == DType::kF32) return absl::OkStatus();
  if (!seeded.ok() && !absl::IsAlreadyExists(seeded.status())) {
    return seeded.status();
  }
  return Pull(first, parameters, Precision::kJob);
}

absl::StatusOr<RoundOutcome> ClientCore::Commit(const PushInfo& info) {
  v1::CommitRequest request;
  request.set_kind(v1::GRADIENT);
  request.set_round(version_);
  const Pushed pushed = FindPushed({v1::GRADIENT, request.round()});
  request.set_attempt(pushed.attempt);
  request.mutable_row_crc32c()->Add(pushed.row_crc32c.begin(),
                                    pushed.row_crc32c.end());
  request.set_examples(info.examples);
  request.set_accumulation(info.accumulation);
  if (info.micro_norm_squared_sum.has_value()) {
    request.set_micro_norm_squared_sum(*info.micro_norm_squared_sum);
  }
  if (info.loss.has_value()) request.set_loss(*info.loss);
  request.set_loss_scale(info.loss_scale);
  return session_->Commit(std::move(request), info.traceparent);
}

absl::Status ClientCore::Pull(uint64_t version,
                              absl::Span<const MutableTensorView> parameters,
                              Precision precision, bool wait_for_seed) {
  absl::StatusOr<std::vector<MutableTensorView>> bound =
      router_.Bind(parameters);
  if (!bound.ok()) return bound.status();
  PullTarget target;
  target.epoch = description().epoch();
  target.version = version;
  target.dtype = precision == Precision::kFull ? DType::kF32 : job_.pull_dtype;
  PullSettings settings = pull_;
  absl::Time deadline = absl::Now() + options_.transfer_timeout;
  if (!session_->published(version)) {
    // The wait and the transfer have limits of their own. For the seed, which
    // ends no round, the shards are asked at once, so one limit is for both.
    if (version == 0) {
      deadline += options_.round_timeout;
      if (wait_for_seed) settings.cancels.push_back(session_->seed_wait());
    } else {
      absl::Status waited = AwaitRoundBefore(version);
      if (!waited.ok()) return waited;
      deadline = absl::Now() + options_.transfer_timeout;
    }
  }
  absl::Status status =
      session_->Explain(PullVersion(settings, target, *bound, deadline));
  if (status.ok()) version_ = version;
  return status;
}

absl::Status ClientCore::AwaitRoundBefore(uint64_t version) {
  absl::Status status = Wait(version).status();
  // So old that its outcome is no longer kept; the shards may still have it.
  return absl::IsOutOfRange(status) ? absl::OkStatus() : status;
}

absl::StatusOr<uint64_t> ClientCore::PullLatest(
    absl::Span<const MutableTensorView> parameters, Precision precision) {
  // A version may be gone before its pull begins, or be replaced during a pull
  // that is too slow; then the newest is pulled from its start.
  constexpr int kAttempts = 5;
  absl::Status status;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    absl::StatusOr<uint64_t> version = session_->LatestVersion();
    if (!version.ok()) return version;
    status = Pull(*version, parameters, precision);
    if (status.ok()) return version;
    if (!IsGone(status)) return status;
  }
  return status;
}

absl::StatusOr<RoundOutcome> ClientCore::Wait(uint64_t version) {
  const uint64_t round = version - 1;
  return session_->WaitRound(round, FindPushed({v1::GRADIENT, round}).attempt);
}

absl::StatusOr<RoundOutcome> ClientCore::PushPull(
    absl::Span<const TensorView> gradient, const PushInfo& info,
    absl::Span<const MutableTensorView> parameters) {
  const uint64_t round = version_;
  absl::Status status = Push(gradient);
  if (!status.ok()) return status;
  absl::StatusOr<RoundOutcome> outcome = Commit(info);
  if (outcome.ok()) {
    status = Pull(outcome->version, parameters, Precision::kJob);
    if (!IsGone(status)) {
      if (!status.ok()) return status;
      return outcome;
    }
  } else if (!absl::IsOutOfRange(outcome.status())) {
    return outcome;
  } else {
    // So late that the server has dropped even the outcome: the row was not
    // used.
    outcome = RoundOutcome();
    outcome->round = round;
    outcome->message = "too late: the round's outcome is no longer kept";
  }
  absl::StatusOr<uint64_t> latest = PullLatest(parameters, Precision::kJob);
  if (!latest.ok()) return latest.status();
  outcome->version = *latest;
  return outcome;
}

bool ClientCore::IsGone(const absl::Status& status) {
  return absl::IsOutOfRange(status) ||
         (absl::IsAborted(status) && session_->fate()->status().ok());
}

}  // namespace agg
