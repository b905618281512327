#include "tests/sim/sim_peers.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/checkpoint/checkpoint_manifest.h"

namespace agg {

// --- The coordinator's -------------------------------------------------------

SimHostPtr SimPeer::Target() const {
  // Not owned: the process lives as long as its coordinator.
  if (ordinal_ == from_->number) return SimHostPtr(from_, [](SimHost*) {});
  return network_->shard(ordinal_);
}

absl::StatusOr<uint64_t> SimPeer::Promise() {
  const SimHostPtr to = Target();
  return network_->Call("Promise", from_, to.get(),
                        [&] { return to->engine->Promise(); });
}

absl::StatusOr<ShardInventory> SimPeer::Attach(
    uint64_t epoch, std::function<void(absl::Status)> on_lost) {
  const SimHostPtr to = Target();
  from_->on_lost[ordinal_] = on_lost;
  return network_->Call(
      "Attach", from_, to.get(), [&]() -> absl::StatusOr<ShardInventory> {
        const SimHost* const former = to->claim;
        if (former != nullptr && former != from_ && !former->dead &&
            !former->frozen) {
          return absl::UnavailableError("another coordinator has the shard");
        }
        to->claim = from_;
        ListenForOffers(to);
        return to->engine->Attach(epoch, std::move(on_lost));
      });
}

void SimPeer::SetOnOffer(OnOffer on_offer) {
  on_offer_ = std::make_shared<const OnOffer>(std::move(on_offer));
}

void SimPeer::ListenForOffers(const SimHostPtr& to) {
  to->engine->SetOnOffer(
      [this, host = to.get(), weak = std::weak_ptr<const OnOffer>(on_offer_)](
          uint64_t epoch, std::shared_ptr<const CloseOffer> offer) {
        const auto on_offer = weak.lock();
        if (on_offer == nullptr || ++num_offers_ % 3 == 0 ||
            !network_->CheckReach(host, from_).ok()) {
          return;
        }
        (*on_offer)(epoch, std::move(offer));
      });
}

void SimPeer::Lose(uint64_t epoch, const absl::Status& reason) {
  const SimHostPtr to = Target();
  network_
      ->Call("Lose", from_, to.get(),
             [&] {
               to->engine->Lose(epoch, reason);
               return absl::OkStatus();
             })
      .IgnoreError();
}

void SimPeer::LetGo() {
  from_->on_lost.erase(ordinal_);
  const SimHostPtr to = Target();
  if (to != nullptr && to->claim == from_) to->claim = nullptr;
}

// A look at the own process's memory, and no call.
std::string SimPeer::Record() const {
  return ordinal_ == from_->number ? from_->engine->Record() : "";
}

absl::StatusOr<PhaseResult> SimPeer::RunPhase(const Phase& phase) {
  const SimHostPtr to = Target();
  const bool opens = phase.kind == PhaseKind::kOpen ||
                     (phase.kind == PhaseKind::kPublish && phase.publish.seed);
  if (opens) network_->NoteOpening(phase.epoch);
  return network_->Call(PhaseName(phase.kind), from_, to.get(), [&] {
    absl::StatusOr<PhaseResult> result = to->engine->RunPhase(phase);
    // Not if another shard 0 has taken the place of the one that asks: what
    // that one shows is no copy any more.
    if (result.ok() && opens && network_->shard(0).get() == from_) {
      network_->NoteOpened(phase.epoch, ordinal_);
    }
    if (result.ok() && phase.kind == PhaseKind::kCapture) {
      AwaitWriter(to->engine.get(), phase.epoch);
    }
    return result;
  });
}

void SimPeer::AwaitWriter(ShardEngine* engine, uint64_t epoch) {
  Phase phase;
  phase.kind = PhaseKind::kCheckpointProgress;
  phase.epoch = epoch;
  for (;;) {
    const absl::StatusOr<PhaseResult> result = engine->RunPhase(phase);
    if (!result.ok() ||
        result->checkpoint.stage != CheckpointProgress::Stage::kWriting) {
      return;
    }
    std::this_thread::yield();
  }
}

absl::Status SimPeer::CheckPushed(const PushedRow& row) const {
  return Target()->engine->CheckPushed(row);
}

std::string SimPeer::name() const { return absl::StrCat("shard ", ordinal_); }

// --- The ring's --------------------------------------------------------------

absl::Status SimNeighbour::SendCombined(const CopyHeader& header,
                                        const CopySlice& slice) {
  const SimHostPtr to = network_->shard(ordinal_);
  return network_->Call("SendCombined", from_, to.get(), [&] {
    return to->engine->SendCombined(header, slice);
  });
}

absl::Status SimNeighbour::FinishCombined(const CopyHeader& header) {
  const SimHostPtr to = network_->shard(ordinal_);
  return network_->Call("FinishCombined", from_, to.get(),
                        [&] { return to->engine->FinishCombined(header); });
}

// Each slice that comes back counts, so that a fetch can be cut in its midst.
absl::Status SimNeighbour::Fetch(const CopyHeader& header,
                                 const CopySink& sink) {
  const SimHostPtr to = network_->shard(ordinal_);
  CopySink counted;
  counted.slice = [&](const CopySlice& slice) {
    return network_->Call("FetchedSlice", from_, to.get(),
                          [&] { return sink.slice(slice); });
  };
  counted.record = [&](std::string text) {
    return network_->Call("FetchedRecord", from_, to.get(),
                          [&] { return sink.record(std::move(text)); });
  };
  return network_->Call("Fetch", from_, to.get(),
                        [&] { return to->engine->Fetch(header, counted); });
}

}  // namespace agg
