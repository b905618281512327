// Nothing is allocated for a grant: rows and versions are there already.
#include "server/rpc/region_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/protocol_version.h"
#include "proto/region.pb.h"
#include "server/base/local_socket.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"

namespace agg {
namespace {

constexpr size_t kMaxRequestBytes = 1024;

v1::Region ToProto(const GrantedRegion& granted) {
  v1::Region region;
  region.set_number(granted.region->number());
  region.set_bytes(static_cast<uint64_t>(granted.region->num_bytes()));
  region.set_dtype(static_cast<v1::DType>(granted.dtype));
  return region;
}

v1::DeviceRegion ToProto(const GrantedDevice& granted) {
  v1::DeviceRegion region;
  region.set_number(granted.number);
  region.set_bytes(static_cast<uint64_t>(granted.num_bytes));
  region.set_mapped_bytes(static_cast<uint64_t>(granted.share.mapped_bytes));
  region.set_dtype(static_cast<v1::DType>(granted.dtype));
  region.set_uuid(granted.share.uuid.data(), granted.share.uuid.size());
  return region;
}

v1::RegionReply Refusal(const absl::Status& status) {
  v1::RegionReply reply;
  reply.set_code(static_cast<int32_t>(status.code()));
  reply.set_message(std::string(status.message()));
  return reply;
}

// The reply, and the descriptors that go with it.
v1::RegionReply ToProto(const RegionGrant& grant,
                        std::vector<int>* descriptors) {
  v1::RegionReply reply;
  for (const GrantedRegion& row : grant.row) {
    *reply.mutable_row() = ToProto(row);
    descriptors->push_back(row.region->fd());
  }
  reply.mutable_row_offsets()->Add(grant.row_offsets.begin(),
                                   grant.row_offsets.end());
  reply.set_row_later(grant.row_later);
  const size_t device_descriptors =
      grant.row_device.size() + 2 * grant.parameters_device.size();
  for (const GrantedRegion& version : grant.versions) {
    if (descriptors->size() + device_descriptors == kMaxDescriptors) break;
    *reply.add_versions() = ToProto(version);
    descriptors->push_back(version.region->fd());
  }
  for (const GrantedDevice& row : grant.row_device) {
    *reply.mutable_row_device() = ToProto(row);
    descriptors->push_back(row.share.fd);
  }
  for (const GrantedDevice& parameters : grant.parameters_device) {
    *reply.mutable_parameters_device() = ToProto(parameters);
    descriptors->push_back(parameters.share.fd);
    descriptors->push_back(parameters.head->fd());
  }
  return reply;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RegionServer>> RegionServer::Start(
    const std::string& name, Grant grant, absl::Duration patience) {
  AGG_ASSIGN_OR_RETURN(FileDescriptor listener, ListenLocally(name));
  FileDescriptor stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) return absl::UnavailableError("no eventfd");
  return absl::WrapUnique(new RegionServer(std::move(listener), std::move(stop),
                                           std::move(grant), patience));
}

RegionServer::RegionServer(FileDescriptor listener, FileDescriptor stop,
                           Grant grant, absl::Duration patience)
    : listener_(std::move(listener)),
      stop_(std::move(stop)),
      grant_(std::move(grant)),
      patience_(patience),
      thread_([this] { Loop(); }) {}

RegionServer::~RegionServer() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void RegionServer::Loop() {
  while (true) {
    pollfd waited[] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    poll(waited, 2, -1);
    if (waited[1].revents != 0) return;
    const FileDescriptor peer(accept4(listener_.get(), nullptr, nullptr,
                                      SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!peer.valid()) {
      // Out of descriptors, perhaps: not in a busy loop.
      poll(&waited[1], 1, 10);
      continue;
    }
    if (IsTrustedPeer(peer.get())) Serve(peer.get());
  }
}

void RegionServer::Serve(int socket) const {
  absl::StatusOr<DescriptorMessage> message =
      ReceiveMessage(socket, kMaxRequestBytes, patience_);
  if (!message.ok()) return;
  v1::RegionRequest request;
  if (!request.ParseFromString(message->bytes)) return;
  // Keeps the descriptors open until they are sent.
  const absl::StatusOr<RegionGrant> grant = Answer(request);
  std::vector<int> descriptors;
  const v1::RegionReply reply =
      grant.ok() ? ToProto(*grant, &descriptors) : Refusal(grant.status());
  const absl::Status sent =
      SendMessage(socket, reply.SerializeAsString(), descriptors, patience_);
  if (!sent.ok()) LogInfoOf("regions", "shared memory: ", sent.message());
}

absl::StatusOr<RegionGrant> RegionServer::Answer(
    const v1::RegionRequest& request) const {
  if (request.protocol_version() != kProtocolVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("protocol_version is ", request.protocol_version(),
                     "; allowed: ", kProtocolVersion));
  }
  return grant_({request.session(), request.epoch(), request.life(),
                 request.takes_int8(), request.takes_device(),
                 request.token()});
}

}  // namespace agg
