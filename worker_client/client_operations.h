// What a client does, as operations: the open row, and who runs what. AggClient
// states the contracts.
#ifndef AGG_WORKER_CLIENT_CLIENT_OPERATIONS_H_
#define AGG_WORKER_CLIENT_CLIENT_OPERATIONS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "server/base/mutex.h"
#include "worker_client/client_core.h"
#include "worker_client/client_types.h"
#include "worker_client/growing_row.h"
#include "worker_client/operation.h"
#include "worker_client/operation_runner.h"
#include "worker_client/pull_stream.h"
#include "worker_client/row_ledger.h"
#include "worker_client/row_pusher.h"
#include "worker_client/shard_router.h"
#include "worker_client/tensor_devices.h"
#include "worker_client/tensor_view.h"

namespace agg {

// Each call makes an operation. Start gives it to the runner; a blocking call
// waits for it at once, and so runs it on the caller's thread. Thread-safe.
class ClientOperations {
 public:
  using State = std::shared_ptr<OperationState>;

  // `core` outlives this.
  explicit ClientOperations(ClientCore* core) : core_(core) {}

  // Gives what another made to the runner.
  State Start(State operation);

  // Adds these tensors to the open row, and starts it, as it goes on between
  // calls.
  State PushSome(absl::Span<const TensorView> gradient);
  // Drops the open row, if it is incomplete.
  void DropOpen();
  // Pushes a row of its own, in place of the open one.
  State Push(absl::Span<const TensorView> gradient);
  State Commit(const PushInfo& info);
  State Pull(uint64_t version, absl::Span<const MutableTensorView> parameters,
             const PullOptions& options);
  // `whole`: the gradient is a row of its own; else the rest of the open one.
  State Round(absl::Span<const TensorView> gradient, bool whole,
              const PushInfo& info,
              absl::Span<const MutableTensorView> parameters,
              const PullOptions& options);
  // Makes one that reduces, into *made, which its work holds.
  State Reduce(const std::string& what, std::vector<double> values,
               std::shared_ptr<Reduction> made);
  // Goes on with a round that was cancelled; the operation is started.
  State Resume(const State& cancelled);

 private:
  // A row on its way, and the operation that pushes it.
  struct PushedRow {
    PushedRow(const ShardRouter* router, DType dtype, TensorDevices* devices,
              uint64_t round)
        : row(router, dtype, devices), round(round) {}
    // Copies a row, to be pushed again: the same bytes by the same name.
    PushedRow(const PushedRow& former)
        : row(former.row), round(former.round), name(former.name) {}
    GrowingRow row;
    const uint64_t round;
    // Set before the operation is run, by who runs it; else it stays null.
    TripRequest* requested = nullptr;
    RowName name;  // when the operation is done
    State operation;
  };
  using Row = std::shared_ptr<PushedRow>;

  // Binds tensors for rows that MakeRow makes. Called with no lock held: a
  // device may be busy.
  absl::StatusOr<GrowingRow::Some> Bind(
      absl::Span<const TensorView> gradient) const;
  // Gives the row its operation, and returns it.
  Row WithOperation(Row row);
  Row MakeRow();
  // Returns the open row of this version; null: there is none.
  Row open() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Opens `row`, or none; returns what was open.
  Row Replace(Row row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Cancels a row that nobody completes any more: others wait for their turn.
  static void Drop(const Row& row);
  struct TakenRow {
    Row row;
    bool made = false;  // nobody else knows it
  };
  // What a round works on.
  struct RoundWork {
    TakenRow taken;
    PushInfo info;
    PullInto into;
  };
  State MakeRound(RoundWork work);
  // Takes the open row, or makes one, completed by `gradient`.
  absl::StatusOr<TakenRow> TakeRow(absl::Span<const TensorView> gradient,
                                   bool whole);
  absl::StatusOr<PullInto> IntoOf(
      absl::Span<const MutableTensorView> parameters,
      const PullOptions& options) const;

  ClientCore* const core_;
  Mutex mutex_;
  Row open_ ABSL_GUARDED_BY(mutex_);
  OperationRunner runner_;  // last: its end is the end of all operations
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_CLIENT_OPERATIONS_H_
