// A shard's copies as its neighbours see them. Apart from the engine, so that
// it needs no second base class.
#ifndef AGG_SERVER_SHARD_SHARD_COPIES_H_
#define AGG_SERVER_SHARD_SHARD_COPIES_H_

#include "absl/status/status.h"
#include "server/round/neighbour_peer.h"
#include "server/shard/shard_engine.h"

namespace agg {

// Thread-safe.
class ShardCopies : public NeighbourPeer {
 public:
  // `engine` outlives it.
  explicit ShardCopies(ShardEngine* engine) : engine_(engine) {}

  absl::Status SendCombined(const CopyHeader& header,
                            const CopySlice& slice) override {
    return engine_->SendCombined(header, slice);
  }
  absl::Status FinishCombined(const CopyHeader& header) override {
    return engine_->FinishCombined(header);
  }
  absl::Status Fetch(const CopyHeader& header, const CopySink& sink) override {
    return engine_->Fetch(header, sink);
  }

 private:
  ShardEngine* const engine_;
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_SHARD_COPIES_H_
