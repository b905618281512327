// Sends a part's combined gradient to its second copy while the rest of it is
// still being computed (P17).
#ifndef AGG_SERVER_SHARD_COMBINED_SENDER_H_
#define AGG_SERVER_SHARD_COMBINED_SENDER_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kernels/buffer.h"
#include "server/base/mutex.h"
#include "server/ingest/shard_layout.h"
#include "server/round/neighbour_peer.h"

namespace agg {

// One thread sends, in the order of Send. Another one uses the class.
class CombinedSender {
 public:
  // All outlive it. `combined`: in the layout, on the host. `check` is asked
  // before each slice: its error ends the sending.
  CombinedSender(NeighbourPeer* peer, const CopyHeader& header,
                 const ShardLayout* layout, const Buffer* combined,
                 std::function<absl::Status()> check);
  // What has not been sent is not sent any more.
  ~CombinedSender();
  CombinedSender(const CombinedSender&) = delete;
  CombinedSender& operator=(const CombinedSender&) = delete;

  // Slices [begin, end) of the layout are there, and stay until Finish.
  void Send(size_t begin, size_t end);
  // Once, at the end: waits until the neighbour has all. The first error of
  // the peer; nothing is sent after it.
  absl::Status Finish();

 private:
  void Run();
  void End(bool drop);

  NeighbourPeer* const peer_;
  const CopyHeader header_;
  const ShardLayout* const layout_;
  const Buffer* const combined_;
  const std::function<absl::Status()> check_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<size_t> slices_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses the others
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_COMBINED_SENDER_H_
