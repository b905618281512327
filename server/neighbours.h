// A shard's place on the ring of second copies: its links to the shards behind
// and before it, and what these get from it.
#ifndef AGG_SERVER_NEIGHBOURS_H_
#define AGG_SERVER_NEIGHBOURS_H_

#include <functional>
#include <string>
#include <vector>

#include "proto/tls_options.h"
#include "server/round/neighbour_peer.h"
#include "server/rpc/remote_neighbour_peer.h"
#include "server/shard/shard_copies.h"
#include "server/shard/shard_engine.h"

namespace agg {

// Connects when it is first used. Thread-safe.
class Neighbours {
 public:
  // `shards`: all addresses, two or more, by ordinal, called with `tls` and
  // `token` (RemoteNeighbourOptions). `engine` is given its neighbours, and
  // must end before this does, or not use them any more.
  Neighbours(const std::vector<std::string>& shards, int ordinal,
             const TlsOptions& tls, const std::function<std::string()>& token,
             ShardEngine* engine)
      : buddy_ordinal_(Ordinal(shards, ordinal, 1)),
        before_ordinal_(
            Ordinal(shards, ordinal, static_cast<int>(shards.size()) - 1)),
        buddy_(Link(shards, ordinal, buddy_ordinal_, tls, token)),
        before_(Link(shards, ordinal, before_ordinal_, tls, token)),
        copies_(engine) {
    engine->SetNeighbours(&buddy_, &before_);
  }

  // Where the coordinator says that the shards are, by ordinal.
  void SetShards(const std::vector<std::string>& shards) {
    buddy_.SetAddress(shards[buddy_ordinal_]);
    before_.SetAddress(shards[before_ordinal_]);
  }

  // What others may ask of this shard.
  NeighbourPeer* copies() { return &copies_; }

 private:
  static int Ordinal(const std::vector<std::string>& shards, int ordinal,
                     int distance) {
    return (ordinal + distance) % static_cast<int>(shards.size());
  }
  static RemoteNeighbourOptions Link(
      const std::vector<std::string>& shards, int ordinal, int neighbour,
      const TlsOptions& tls, const std::function<std::string()>& token) {
    RemoteNeighbourOptions link;
    link.self = ordinal;
    link.ordinal = neighbour;
    link.address = shards[neighbour];
    link.tls = tls;
    link.token = token;
    return link;
  }

  const int buddy_ordinal_;
  const int before_ordinal_;
  RemoteNeighbourPeer buddy_;
  RemoteNeighbourPeer before_;  // with two shards the same one as the buddy
  ShardCopies copies_;
};

}  // namespace agg

#endif  // AGG_SERVER_NEIGHBOURS_H_
