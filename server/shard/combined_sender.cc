// A thread for each round: it takes microseconds to start one, and a round with
// replication has at least two messages over a network.
#include "server/shard/combined_sender.h"

#include <utility>

#include "absl/types/span.h"

namespace agg {

CombinedSender::CombinedSender(NeighbourPeer* peer, const CopyHeader& header,
                               const ShardLayout* layout,
                               const Buffer* combined,
                               std::function<absl::Status()> check)
    : peer_(peer),
      header_(header),
      layout_(layout),
      combined_(combined),
      check_(std::move(check)) {
  thread_ = std::thread([this] { Run(); });
}

CombinedSender::~CombinedSender() { End(/*drop=*/true); }

void CombinedSender::End(bool drop) {
  {
    MutexLock lock(&mutex_);
    ended_ = true;
    if (drop) slices_.clear();
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void CombinedSender::Send(size_t begin, size_t end) {
  MutexLock lock(&mutex_);
  if (!status_.ok()) return;
  for (size_t i = begin; i < end; ++i) slices_.push_back(i);
  changed_.NotifyAll();
}

absl::Status CombinedSender::Finish() {
  End(/*drop=*/false);
  {
    MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
  }
  return peer_->FinishCombined(header_);
}

void CombinedSender::Run() {
  for (;;) {
    size_t position;
    {
      MutexLock lock(&mutex_);
      while (slices_.empty() && !ended_) changed_.Wait(&mutex_);
      if (slices_.empty()) return;
      position = slices_.front();
      slices_.pop_front();
    }
    const ElementRange& range = layout_->ranges[position];
    CopySlice slice;
    slice.slice = layout_->slices[position];
    slice.values = absl::MakeConstSpan(
        reinterpret_cast<const float*>(combined_->host()) + range.begin,
        static_cast<size_t>(range.num_elements));
    absl::Status status = check_();
    if (status.ok()) status = peer_->SendCombined(header_, slice);
    if (status.ok()) continue;
    MutexLock lock(&mutex_);
    status_ = status;
    slices_.clear();
  }
}

}  // namespace agg
