// A row, or the seed, that is pushed while its tensors are still coming.
#ifndef AGG_WORKER_CLIENT_GROWING_ROW_H_
#define AGG_WORKER_CLIENT_GROWING_ROW_H_

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "server/base/mutex.h"
#include "worker_client/row_encoding.h"
#include "worker_client/shard_router.h"
#include "worker_client/tensor_devices.h"
#include "worker_client/tensor_view.h"

namespace agg {

// Lets any thread end the wait of the one that polls a completion queue. Its
// event comes out of the queue with this object as the tag. Thread-safe.
class QueueWaker {
 public:
  // REQUIRES: the queue is drained before this is destroyed.
  explicit QueueWaker(grpc::CompletionQueue* queue) : queue_(queue) {}
  QueueWaker(const QueueWaker&) = delete;
  QueueWaker& operator=(const QueueWaker&) = delete;

  // The event comes, once for all calls until TakeEvent. REQUIRES: the queue is
  // not shut down.
  void Wake();
  // It has come.
  void TakeEvent();

 private:
  grpc::CompletionQueue* const queue_;
  Mutex mutex_;
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);  // null: none
};

// Who has the gradient gives its tensors, in any order; who pushes takes them.
// Remembers all of them, so that a push can begin again (P27). Owns no tensor's
// memory. Thread-safe.
class GrowingRow {
 public:
  // `devices`: knows whose memory is a device's; null: nobody's is. REQUIRES:
  // router and devices outlive this.
  GrowingRow(const ShardRouter* router, DType dtype,
             TensorDevices* devices = nullptr);
  // Copies what was given to `row`, to be pushed again: not cancelled.
  GrowingRow(const GrowingRow& row);
  GrowingRow& operator=(const GrowingRow&) = delete;

  // Tensors of a row, and what is known of their devices.
  struct Some {
    std::vector<std::pair<int, TensorView>> views;  // by index
    std::vector<int> device_of;                     // of each, as `views`
    std::map<int, SharedMark> marks;                // of these devices
  };
  // Binds tensors for rows with the same arguments; asks the driver, and so may
  // take as long as that does. INVALID_ARGUMENT as ShardRouter::BindSome;
  // errors of TensorDevices::DevicesOf and MarksOf.
  static absl::StatusOr<Some> Bind(const ShardRouter& router, DType dtype,
                                   TensorDevices* devices,
                                   absl::Span<const TensorView> views);
  // Gives more tensors, whose memory must outlive the push. All or none:
  // INVALID_ARGUMENT for a tensor that was given before, and when the row is
  // complete.
  absl::Status Give(const Some& some);
  absl::Status Give(absl::Span<const TensorView> views);  // and errors of Bind
  // Makes Take wait for what the devices were given by now, too, before it
  // gives what was given. Errors of TensorDevices::MarksOf. REQUIRES: nobody
  // takes.
  absl::Status MarkAnew();
  // Completes the row: no more tensors come, and what it lacks is absent.
  // INVALID_ARGUMENT with the name of one that is not optional: then it has no
  // effect.
  absl::Status Complete();
  // Whether Complete was called, or every tensor was given.
  bool complete() const;

  // Ends the push with `reason`; the first one stays.
  void Cancel(const absl::Status& reason);
  absl::Status cancelled() const;  // OK: it was not

  // --- For the thread that pushes. Rows are pushed as `dtype`.
  DType dtype() const { return dtype_; }
  // Views in manifest order. Only those of tensors that Take has named may be
  // read.
  absl::Span<const TensorView> bound() const { return bound_; }
  BoundRow bound_row() const {
    BoundRow bound(bound_, device_of_, devices_);
    bound.tally = &tally_;
    return bound;
  }
  // Returns what rounding has lost of what was pushed: EncodingTally::Describe.
  std::string lost() const {
    return tally_.Describe(router_->manifest(), dtype_);
  }
  // Returns the devices that have tensors given so far; none if one of these
  // tensors is not `dtype`.
  std::set<int> devices() const;
  // Returns CommitRequest.absent_tensors. REQUIRES: complete.
  std::string absent_tensors() const;
  // Whether a tensor that was given so far is on a device.
  bool any_on_device() const;
  // Position of one that takes: what Take has given; at first nothing.
  class Cursor {
   private:
    friend class GrowingRow;
    size_t num_seen_ = 0;       // of what was given to the row
    std::vector<int> waiting_;  // of that, in its order
  };
  struct Taken {
    std::vector<int> tensors;
    // Whether more were given whose devices have work to do before them; of its
    // end nobody is woken.
    bool waits = false;
  };
  // Returns the tensors that came since the last call with this cursor; the
  // absent ones when the row is complete. One of a device comes when the device
  // has done what it was given before Give. INTERNAL: the driver's errors.
  absl::StatusOr<Taken> Take(Cursor* cursor) const;
  // Returns what has to be done before Take gives all that was given.
  std::vector<SharedMark> marks() const;
  // Sets who is woken by Give, Complete and Cancel; null: nobody any more.
  void SetWaker(QueueWaker* waker);

 private:
  void Wake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ShardRouter* const router_;
  const DType dtype_;
  TensorDevices* const devices_;
  mutable EncodingTally tally_;
  mutable Mutex mutex_;
  // An element is written once, before its tensor enters given_.
  std::vector<TensorView> bound_;
  std::vector<int> device_of_;
  std::vector<SharedMark> marks_;
  std::vector<bool> has_ ABSL_GUARDED_BY(mutex_);  // by tensor
  std::vector<int> given_ ABSL_GUARDED_BY(mutex_);
  bool complete_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);
  QueueWaker* waker_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_GROWING_ROW_H_
