// Channels are kept for processes that live on: a new one costs a connection.
#include "worker_client/job_view.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_client/channel.h"

namespace agg {
namespace {

Standing StandingOf(const v1::JoinReply& reply, const HeldVersion& held) {
  if (!held.any) return Standing::kGood;
  if (!reply.seeded()) return Standing::kUnseeded;
  if (reply.rewound()) return Standing::kRewound;
  if (reply.session() != held.session) return Standing::kNewSession;
  return Standing::kGood;
}

}  // namespace

JobView::JobView(const ClientOptions& options, v1::JoinReply reply,
                 std::shared_ptr<grpc::Channel> coordinator)
    : reply_(std::move(reply)), serial_(0), standing_(Standing::kGood) {
  OpenChannels(options, coordinator, nullptr);
}

JobView::JobView(const ClientOptions& options, v1::JoinReply reply,
                 std::shared_ptr<grpc::Channel> coordinator,
                 const JobView& before, const HeldVersion& held)
    : reply_(std::move(reply)),
      serial_(before.serial() + 1),
      standing_(StandingOf(reply_, held)) {
  OpenChannels(options, coordinator, &before);
}

void JobView::OpenChannels(const ClientOptions& options,
                           const std::shared_ptr<grpc::Channel>& coordinator,
                           const JobView* before) {
  if (reply_.seeded()) NotePublished(reply_.version());
  if (reply_.seed_role()) TakeSeedRole();
  stub_ = v1::Coordinator::NewStub(coordinator);
  const ShardLives now = lives();
  const ShardLives former = before == nullptr ? ShardLives() : before->lives();
  for (int i = 0; i < reply_.shards_size(); ++i) {
    const size_t n = static_cast<size_t>(i);
    // The coordinator is shard 0. It was reached at options.coordinator, so
    // that address works here even if the config has another one.
    const std::string& address =
        i == 0 ? options.coordinator : reply_.shards(i);
    names_.push_back(ShardName{i, address});
    const bool same = before != nullptr && n < before->names_.size() &&
                      n < now.lives.size() && n < former.lives.size() &&
                      now.lives[n] != 0 && now.lives[n] == former.lives[n] &&
                      before->names_[n].address == address;
    push_channels_.push_back(i == 0 ? coordinator
                             : same ? before->push_channels_[n]
                                    : MakeChannel(address));
    pull_channels_.push_back(options.channels_per_shard == 1
                                 ? push_channels_.back()
                             : same ? before->pull_channels_[n]
                                    : MakeChannel(address));
  }
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
