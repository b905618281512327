// Channels are kept for processes that live on: a new one costs a connection.
#include "worker_client/job_view.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/local_socket.h"
#include "server/base/utf8.h"
#include "worker_client/channel.h"

namespace agg {

// Field by field. Kinds that this version does not know are not errors: an
// older client lives on with a newer server.

RoundOutcome OutcomeOf(const v1::RoundOutcome& message) {
  RoundOutcome outcome;
  outcome.round = message.round();
  outcome.version = message.version();
  outcome.made = message.epoch();
  switch (message.kind()) {
    case v1::RoundOutcome::SKIPPED:
      outcome.kind = RoundOutcome::Kind::kSkipped;
      break;
    case v1::RoundOutcome::SEEDED:
      outcome.kind = RoundOutcome::Kind::kSeeded;
      break;
    default:
      outcome.kind = RoundOutcome::Kind::kApplied;
  }
  outcome.included = message.included();
  outcome.ranks.assign(message.ranks().begin(), message.ranks().end());
  outcome.excluded_ranks.assign(message.excluded_ranks().begin(),
                                message.excluded_ranks().end());
  outcome.absent_tensors.assign(message.absent_tensors().begin(),
                                message.absent_tensors().end());
  outcome.differing_ranks.assign(message.differing_ranks().begin(),
                                 message.differing_ranks().end());
  outcome.learning_rate = message.learning_rate();
  outcome.gain = message.gain();
  outcome.tau = message.tau();
  outcome.orthogonality = message.orthogonality();
  outcome.loss = message.loss();
  outcome.combined_norm = message.combined_norm();
  outcome.rule = message.combination().rule();
  outcome.scope = message.combination().scope();
  outcome.step_scale = message.combination().step_scale();
  outcome.finished = message.finished();
  outcome.message = Shown(message.message());  // it names tensors
  return outcome;
}

std::optional<ClientEvent::Kind> KindOf(const v1::JobEvent& event) {
  switch (event.kind()) {
    case v1::JobEvent::SHARD_LOST:
      return ClientEvent::Kind::kShardLost;
    case v1::JobEvent::SUPERSEDED:
      return ClientEvent::Kind::kSuperseded;
    case v1::JobEvent::EXPIRED:
      return ClientEvent::Kind::kExpired;
    case v1::JobEvent::EVICTED:
      return ClientEvent::Kind::kEvicted;
    case v1::JobEvent::FINISHED:
      return ClientEvent::Kind::kFinished;
    case v1::JobEvent::WAITING:
      return ClientEvent::Kind::kWaiting;
    case v1::JobEvent::WORKER_LOST:
      return ClientEvent::Kind::kWorkerLost;
    case v1::JobEvent::SEED_ROLE:
      return ClientEvent::Kind::kSeedRole;
    case v1::JobEvent::DRAINING:
      return ClientEvent::Kind::kDraining;
    default:
      return std::nullopt;
  }
}

namespace {

Standing StandingOf(const v1::JoinReply& reply, const HeldVersion& held) {
  if (!held.any) return Standing::kGood;
  if (!reply.seeded()) return Standing::kUnseeded;
  if (reply.rewound()) return Standing::kRewound;
  if (reply.session() != held.session) return Standing::kNewSession;
  return Standing::kGood;
}

bool GoesBack(Standing standing) {
  return standing == Standing::kRewound || standing == Standing::kUnseeded;
}

// Who held nothing has not asked whether that is still good.
bool SamePast(const ClientOptions& options, const HeldVersion& held,
              Standing standing) {
  return !options.observer && held.any && standing == Standing::kGood;
}

}  // namespace

JobView::JobView(const ClientOptions& options, v1::JoinReply reply,
                 std::shared_ptr<grpc::Channel> coordinator)
    : reply_(std::move(reply)),
      serial_(0),
      standing_(Standing::kGood),
      num_rewinds_(0),
      past_(0) {
  OpenChannels(options, coordinator, nullptr);
}

JobView::JobView(const ClientOptions& options, v1::JoinReply reply,
                 std::shared_ptr<grpc::Channel> coordinator,
                 const JobView& before, const HeldVersion& held)
    : reply_(std::move(reply)),
      serial_(before.serial() + 1),
      standing_(StandingOf(reply_, held)),
      num_rewinds_(before.num_rewinds_ + (GoesBack(standing_) ? 1 : 0)),
      past_(before.past() + (SamePast(options, held, standing_) ? 0 : 1)) {
  OpenChannels(options, coordinator, &before);
  // Until a shard is asked again.
  std::map<size_t, std::string> shared;
  {
    MutexLock lock(&before.mutex_);
    shared = before.shared_;
  }
  MutexLock lock(&mutex_);
  shared_ = std::move(shared);
}

JobView::Target JobView::ChooseTarget(const ClientOptions& options, int ordinal,
                                      const std::string& address) const {
  if (!options.local_sockets || ordinal >= reply_.local_sockets_size()) {
    return {address, false};
  }
  const std::string& name = reply_.local_sockets(ordinal);
  // On another host, and in another network namespace, nobody has the name.
  if (!CanConnectLocally(name)) return {address, false};
  return {LocalSocketTarget(name), true};
}

bool JobView::SameTarget(const JobView* before, size_t ordinal) const {
  if (before == nullptr || ordinal >= before->targets_.size()) return false;
  const ShardLives now = lives();
  const ShardLives former = before->lives();
  return ordinal < now.lives.size() && ordinal < former.lives.size() &&
         now.lives[ordinal] != 0 &&
         now.lives[ordinal] == former.lives[ordinal] &&
         before->targets_[ordinal].address == targets_[ordinal].address;
}

void JobView::OpenChannels(const ClientOptions& options,
                           const std::shared_ptr<grpc::Channel>& coordinator,
                           const JobView* before) {
  if (reply_.seeded()) NotePublished(reply_.version());
  if (reply_.seed_role()) TakeSeedRole();
  for (int i = 0; i < reply_.shards_size(); ++i) {
    const size_t n = static_cast<size_t>(i);
    // The coordinator is shard 0. It was reached at options.coordinator, so
    // that address works here even if the config has another one.
    const std::string& address =
        i == 0 ? options.coordinator : reply_.shards(i);
    names_.push_back(ShardName{i, address, options.tls});
    targets_.push_back(ChooseTarget(options, i, address));
    const std::string& target = targets_.back().address;
    const bool same = SameTarget(before, n);
    const bool joined_there = i == 0 && !targets_.back().local;
    push_channels_.push_back(
        joined_there ? coordinator
        : same       ? before->push_channels_[n]
               : MakeChannel(target, options.tls, options.token_file, address));
    pull_channels_.push_back(
        options.channels_per_shard == 1 ? push_channels_.back()
        : same                          ? before->pull_channels_[n]
               : MakeChannel(target, options.tls, options.token_file, address));
  }
  // A reply without shards is refused later, by who makes a plan of them.
  stub_ = v1::Coordinator::NewStub(
      push_channels_.empty() ? coordinator : push_channels_.front());
}

ShardLives JobView::lives() const {
  return {reply_.epoch(),
          {reply_.shard_lives().begin(), reply_.shard_lives().end()}};
}

void JobView::TakeSeedRole() const {
  seed_wait_.Cancel(absl::FailedPreconditionError("seed role"));
}

void JobView::NotePublished(uint64_t version) const {
  uint64_t before = num_published_;
  while (before <= version &&
         !num_published_.compare_exchange_weak(before, version + 1)) {
  }
}

void JobView::NoteShared(size_t ordinal, bool shared, bool device) const {
  MutexLock lock(&mutex_);
  // "": nothing is shared.
  shared_[ordinal] = device ? "cuda" : shared ? "shm" : "";
}

std::string JobView::transport(size_t ordinal) const {
  MutexLock lock(&mutex_);
  const auto shared = shared_.find(ordinal);
  if (shared != shared_.end() && !shared->second.empty()) return shared->second;
  return targets_[ordinal].local ? "unix" : "tcp";
}

std::string JobView::transports() const {
  {
    MutexLock lock(&mutex_);
    if (shared_.size() < targets_.size()) return "";
  }
  std::string text;
  for (size_t i = 0; i < targets_.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : " ", transport(i));
  }
  return text;
}

absl::Status JobView::CheckSameJob(const JobView& before) const {
  const v1::JoinReply& former = before.reply_;
  if (reply_.shards_size() != former.shards_size()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the job has come back with ", reply_.shards_size(), " shards, after ",
        former.shards_size(), "; Connect again to go on"));
  }
  if (reply_.push_dtype() != former.push_dtype() ||
      reply_.pull_dtype() != former.pull_dtype() ||
      reply_.manifest().SerializeAsString() !=
          former.manifest().SerializeAsString()) {
    return absl::FailedPreconditionError(
        "the job has come back with other tensors or types; Connect again to "
        "go on");
  }
  return absl::OkStatus();
}

}  // namespace agg
