// Shards as the coordinator and their neighbours on the ring reach them in a
// simulation: each call goes through the SimNetwork.
#ifndef AGG_TESTS_SIM_SIM_PEERS_H_
#define AGG_TESTS_SIM_SIM_PEERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/round/neighbour_peer.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "server/round/shard_peer.h"
#include "tests/sim/sim_network.h"

namespace agg {

// What the coordinator of the process `from` calls; `from` and the network
// outlive it.
class SimPeer : public ShardPeer {
 public:
  SimPeer(SimNetwork* network, SimHost* from, int ordinal)
      : network_(network), from_(from), ordinal_(ordinal) {}

  absl::StatusOr<uint64_t> Promise() override;
  absl::StatusOr<ShardInventory> Attach(
      uint64_t epoch, std::function<void(absl::Status)> on_lost) override;
  void LetGo() override;
  void Lose(uint64_t epoch, const absl::Status& reason) override;
  std::string Record() const override;
  absl::StatusOr<PhaseResult> RunPhase(const Phase& phase) override;
  absl::Status CheckPushed(const PushedRow& row) const override;
  void SetOnOffer(OnOffer on_offer) override;
  std::string name() const override;

 private:
  // Its own process for shard 0, whoever has the address.
  SimHostPtr Target() const;
  // The writing thread comes to its end first: a run is then the same each
  // time.
  static void AwaitWriter(ShardEngine* engine, uint64_t epoch);
  // The shard's offers (P44) come here; every third one is lost on its way.
  void ListenForOffers(const SimHostPtr& to);

  SimNetwork* const network_;
  SimHost* const from_;
  const int ordinal_;
  // The shard may outlive this peer, and has no reference on it.
  std::shared_ptr<const OnOffer> on_offer_;
  int num_offers_ = 0;
};

class SimNeighbour : public NeighbourPeer {
 public:
  SimNeighbour(SimNetwork* network, SimHost* from, int ordinal)
      : network_(network), from_(from), ordinal_(ordinal) {}

  absl::Status SendCombined(const CopyHeader& header,
                            const CopySlice& slice) override;
  absl::Status FinishCombined(const CopyHeader& header) override;
  absl::Status Fetch(const CopyHeader& header, const CopySink& sink) override;

 private:
  SimNetwork* const network_;
  SimHost* const from_;
  const int ordinal_;
};

}  // namespace agg

#endif  // AGG_TESTS_SIM_SIM_PEERS_H_
