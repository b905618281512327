// Attach opens a link, whose end is how a lost shard is noticed.
#include "server/rpc/remote_shard_peer.h"

#include <grpcpp/client_context.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/protocol_version.h"
#include "proto/status_conversion.h"
#include "server/rpc/inventory_conversion.h"
#include "server/rpc/peer_channel.h"

namespace agg {
namespace {

absl::Status CoordinatorGone(const absl::Status& reason) {
  return absl::UnavailableError(
      absl::StrCat("the coordinator is gone: ", reason.message()));
}

}  // namespace

RemoteShardPeer::RemoteShardPeer(const RemoteShardOptions& options)
    : options_(options),
      stub_(v1::ShardControl::NewStub(
          MakePeerChannel(options.address, options.tls, options.token))),
      detached_(absl::UnavailableError(
          absl::StrCat(name(), " has not been attached"))) {}

RemoteShardPeer::~RemoteShardPeer() {
  const absl::Status reason = absl::CancelledError("shutting down");
  Close(reason);
  MutexLock lock(&attach_mutex_);
  Detach(reason, /*tell=*/true);
}

std::string RemoteShardPeer::name() const {
  return absl::StrCat("shard ", options_.ordinal, " (", options_.address, ")");
}

void RemoteShardPeer::SetShards(std::vector<std::string> shards) {
  shards_ = std::move(shards);
}

absl::Status RemoteShardPeer::Named(const grpc::Status& status) const {
  return NamedAnswer(
      name(), "this coordinator",
      Explained(FromGrpcStatus(status), options_.address, options_.tls));
}

// --- The epoch ---------------------------------------------------------------

v1::AttachRequest RemoteShardPeer::FirstRequest(uint64_t epoch) const {
  v1::AttachRequest request;
  request.set_epoch(epoch);
  request.set_ordinal(options_.ordinal);
  request.set_num_shards(options_.num_shards);
  request.set_config_fingerprint(options_.fingerprint);
  request.set_protocol_version(kProtocolVersion);
  request.set_coordinator_life(options_.coordinator_life);
  request.set_coordinator(options_.coordinator);
  for (const std::string& address : shards_) request.add_shards(address);
  return request;
}

ShardLinkOptions RemoteShardPeer::LinkOptions(uint64_t epoch) const {
  ShardLinkOptions options;
  options.name = name();
  options.request = FirstRequest(epoch);
  options.open_timeout = options_.attach_timeout;
  options.clock = options_.clock;
  options.on_progress = [this](uint64_t progress) { progress_ = progress; };
  if (on_draining_ != nullptr) {
    options.on_draining = [this, epoch] { on_draining_(epoch); };
  }
  if (on_complete_ != nullptr) {
    options.on_complete = [this, epoch](const std::vector<CompleteRow>& rows) {
      on_complete_(epoch, rows);
    };
  }
  if (on_offer_ != nullptr) {
    options.on_offer = [this, epoch](std::shared_ptr<const CloseOffer> offer) {
      on_offer_(epoch, std::move(offer));
    };
  }
  return options;
}

absl::StatusOr<ShardInventory> RemoteShardPeer::Attach(
    uint64_t epoch, std::function<void(absl::Status)> on_lost) {
  MutexLock attach_lock(&attach_mutex_);
  const absl::Status detached =
      absl::UnavailableError(absl::StrCat(name(), " is detached"));
  Detach(detached, /*tell=*/false);
  const auto link = std::make_shared<ShardLink>(
      stub_.get(), LinkOptions(epoch),
      [this, on_lost = std::move(on_lost)](const absl::Status& reason) {
        {
          MutexLock lock(&mutex_);
          CancelCalls();
        }
        if (on_lost != nullptr) on_lost(reason);
      });
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok()) return closed_;
    link_ = link;
  }
  absl::Status status;
  const absl::StatusOr<v1::AttachReply> reply = link->Open();
  if (reply.ok()) {
    absl::StatusOr<ShardInventory> inventory =
        FromProto(*reply, options_.num_shards);
    if (inventory.ok()) return inventory;
    status =
        absl::Status(inventory.status().code(),
                     absl::StrCat(name(), ": ", inventory.status().message()));
  } else {
    status = Explained(reply.status(), options_.address, options_.tls);
  }
  Detach(detached, /*tell=*/true);
  MutexLock lock(&mutex_);
  return closed_.ok() ? status : closed_;
}

void RemoteShardPeer::Detach(const absl::Status& reason, bool tell) {
  std::shared_ptr<ShardLink> link;
  {
    MutexLock lock(&mutex_);
    if (link_ != nullptr) detached_ = reason;
    link = std::move(link_);
    link_ = nullptr;
    CancelCalls();
  }
  if (link == nullptr) return;
  link->End(tell ? CoordinatorGone(reason) : reason, tell);
  link->Join();
}

void RemoteShardPeer::SetOnDraining(std::function<void(uint64_t)> on_draining) {
  on_draining_ = std::move(on_draining);
}

void RemoteShardPeer::SetOnComplete(OnComplete on_complete) {
  on_complete_ = std::move(on_complete);
}

void RemoteShardPeer::SetOnOffer(OnOffer on_offer) {
  on_offer_ = std::move(on_offer);
}

void RemoteShardPeer::LetGo() {
  MutexLock lock(&attach_mutex_);
  Detach(absl::UnavailableError(absl::StrCat("it lets go of ", name())),
         /*tell=*/true);
}

std::shared_ptr<ShardLink> RemoteShardPeer::link() const {
  MutexLock lock(&mutex_);
  return link_;
}

void RemoteShardPeer::CancelCalls() {
  for (grpc::ClientContext* context : calls_) context->TryCancel();
}

void RemoteShardPeer::Lose(uint64_t epoch, const absl::Status& reason) {
  const std::shared_ptr<ShardLink> link = this->link();
  if (link == nullptr || (epoch != 0 && epoch != link->epoch())) return;
  link->Tell(reason);
}

void RemoteShardPeer::GiveUp(uint64_t epoch, const absl::Status& reason) {
  const std::shared_ptr<ShardLink> link = this->link();
  if (link == nullptr || link->epoch() != epoch) return;
  link->End(reason, /*tell=*/false);
  MutexLock lock(&mutex_);
  CancelCalls();
}

void RemoteShardPeer::Close(const absl::Status& reason) {
  std::shared_ptr<ShardLink> link;
  {
    MutexLock lock(&mutex_);
    if (closed_.ok()) closed_ = reason;
    link = link_;
    CancelCalls();
  }
  if (link != nullptr) link->End(CoordinatorGone(reason), /*tell=*/true);
}

}  // namespace agg
