// What a server offers to processes of its host alone: a Unix socket for all
// calls (P38), and its memory (P39, P40). And where it is found.
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/access/identities.h"
#include "server/access_parts.h"
#include "server/base/local_socket.h"
#include "server/base/log.h"
#include "server/observation.h"
#include "server/rpc/region_server.h"
#include "server/rpc/rpc_server.h"
#include "server/server.h"
#include "server/shard/region_grant.h"
#include "server/shard/shard_engine.h"

namespace agg {

absl::Status Server::StartAccess() {
  AccessOptions options = options_.access;
  // Shards of one host have one configuration, and write a file each.
  if (start_.ordinal > 0 && !options.audit.path.empty()) {
    absl::StrAppend(&options.audit.path, ".shard", start_.ordinal);
  }
  absl::StatusOr<std::unique_ptr<AccessParts>> access =
      AccessParts::Make(options);
  if (access.ok()) access_ = *std::move(access);
  return access.status();
}

// A host without such sockets serves over TCP alone.
void Server::ChooseLocalSocket() {
  if (!options_.unix_socket) return;
  const std::string name = LocalSocketName(life_);
  const absl::Status status = CheckLocalListen(name);
  if (status.ok()) {
    local_socket_ = name;
  } else {
    LogWarning(status.message(), "; workers of this host use TCP");
  }
}

// As above: rows and versions are sent.
void Server::StartRegions() {
  if (!options_.shard.shared_memory || local_socket_.empty()) return;
  if (!access_->offers_regions()) {
    LogInfo("workers share no memory: some identities have certificates and ",
            "no token, and the socket of shared memory takes tokens alone");
    return;
  }
  const std::string name = RegionSocketName(life_);
  absl::StatusOr<std::unique_ptr<RegionServer>> regions =
      RegionServer::Start(name, [this](const RegionQuery& query) {
        return access_->GrantRegions(engine_.get(), query);
      });
  if (!regions.ok()) {
    LogWarning(regions.status().message(), "; workers share no memory");
    return;
  }
  regions_ = *std::move(regions);
  region_socket_ = name;
}

int Server::port() const { return rpc_->port(); }
int Server::metrics_port() const { return observation_->port(); }

std::string Server::name() const {
  return absl::StrCat("shard ", start_.ordinal, " (",
                      options_.shards[start_.ordinal], ")");
}

}  // namespace agg
