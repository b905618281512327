// Operations are closures over the core; a row's own operation pushes it, and
// whoever needs the row waits for that.
#include "worker_client/client_operations.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "server/base/status_macros.h"

namespace agg {
namespace {

ClientOperations::State Failed(const absl::Status& status) {
  return std::make_shared<OperationState>(status);
}

}  // namespace

ClientOperations::State ClientOperations::Start(State operation) {
  if (!operation->done()) runner_.Start(operation);
  return operation;
}

ClientOperations::Row ClientOperations::MakeRow() {
  return WithOperation(
      std::make_shared<PushedRow>(&core_->router(), core_->job().push_dtype,
                                  core_->devices(), core_->version()));
}

absl::StatusOr<GrowingRow::Some> ClientOperations::Bind(
    absl::Span<const TensorView> gradient) const {
  AGG_RETURN_IF_ERROR(core_->CheckPushes());
  return GrowingRow::Bind(core_->router(), core_->job().push_dtype,
                          core_->devices(), gradient);
}

ClientOperations::Row ClientOperations::WithOperation(Row made) {
  // They hold each other until the operation is done, and lets go.
  made->operation = std::make_shared<OperationState>(
      [core = core_, made](OperationState* self) {
        return core->PushRow(made->round, &made->row, self->cancel(),
                             &made->name, made->requested);
      },
      [made](const absl::Status& reason) { made->row.Cancel(reason); });
  return made;
}

ClientOperations::Row ClientOperations::open() const {
  const bool current = open_ != nullptr && open_->round == core_->version() &&
                       open_->row.cancelled().ok();
  return current ? open_ : nullptr;
}

ClientOperations::Row ClientOperations::Replace(Row row) {
  Row former = std::move(open_);
  open_ = std::move(row);
  return former;
}

void ClientOperations::DropOpen() {
  Row former;
  {
    MutexLock lock(&mutex_);
    former = Replace(nullptr);
  }
  Drop(former);
}

ClientOperations::State ClientOperations::PushSome(
    absl::Span<const TensorView> gradient) {
  const absl::StatusOr<GrowingRow::Some> some = Bind(gradient);
  if (!some.ok()) return Failed(some.status());
  Row row, former;
  {
    MutexLock lock(&mutex_);
    row = open();
    if (row != nullptr && !row->row.complete()) {
      const absl::Status given = row->row.Give(*some);
      if (given.ok()) return row->operation;
      if (!row->operation->done()) return Failed(given);
    }
    row = MakeRow();
    const absl::Status given = row->row.Give(*some);
    if (!given.ok()) {
      row->operation->Cancel(given);  // lets go of what it holds
      return Failed(given);
    }
    former = Replace(row);
  }
  Drop(former);
  return Start(row->operation);
}

void ClientOperations::Drop(const Row& row) {
  if (row != nullptr && !row->row.complete()) {
    row->operation->Cancel(
        absl::CancelledError("another gradient has taken this row's place"));
  }
}

absl::StatusOr<ClientOperations::TakenRow> ClientOperations::TakeRow(
    absl::Span<const TensorView> gradient, bool whole) {
  AGG_ASSIGN_OR_RETURN(const GrowingRow::Some some, Bind(gradient));
  Row row, former;
  bool made = false;
  {
    MutexLock lock(&mutex_);
    row = whole ? nullptr : open();
    made = row == nullptr;
    if (made) row = MakeRow();
    absl::Status status;
    if (!gradient.empty() || made) status = row->row.Give(some);
    if (status.ok()) status = row->row.Complete();
    if (!status.ok()) {
      if (made) row->operation->Cancel(status);
      return status;
    }
    former = Replace(nullptr);
    if (former == row) former = nullptr;
  }
  Drop(former);
  return TakenRow{row, made};
}

ClientOperations::State ClientOperations::Push(
    absl::Span<const TensorView> gradient) {
  const absl::StatusOr<TakenRow> taken = TakeRow(gradient, /*whole=*/true);
  return taken.ok() ? taken->row->operation : Failed(taken.status());
}

ClientOperations::State ClientOperations::Commit(const PushInfo& info) {
  Row row;
  {
    MutexLock lock(&mutex_);
    row = open();
    if (row != nullptr) {
      const absl::Status status = row->row.Complete();
      if (!status.ok()) return Failed(status);
      open_ = nullptr;
    }
  }
  // Which row it is, is decided here: others may be pushed before it runs.
  const RowName last = core_->LastRow();
  return std::make_shared<OperationState>(
      [core = core_, row, last, info](OperationState* self) -> absl::Status {
        AGG_RETURN_IF_ERROR(row == nullptr ? absl::OkStatus()
                                           : row->operation->Wait());
        const auto outcome = core->Commit(row == nullptr ? last : row->name,
                                          info, self->cancel());
        if (outcome.ok()) self->outcome = *outcome;
        return outcome.status();
      },
      [row](const absl::Status& reason) {
        if (row != nullptr) row->operation->Cancel(reason);
      });
}

absl::StatusOr<PullInto> ClientOperations::IntoOf(
    absl::Span<const MutableTensorView> parameters,
    const PullOptions& options) const {
  AGG_ASSIGN_OR_RETURN(PullInto into, core_->IntoOf(parameters));
  into.precision = options.precision;
  for (const std::string& name : options.first) {
    const absl::optional<int> tensor = core_->router().FindTensor(name);
    if (!tensor.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "first names the tensor \"", name, "\"; allowed: the manifest's"));
    }
    into.first.push_back(*tensor);
  }
  return into;
}

ClientOperations::State ClientOperations::Pull(
    uint64_t version, absl::Span<const MutableTensorView> parameters,
    const PullOptions& options) {
  absl::StatusOr<PullInto> into = IntoOf(parameters, options);
  if (!into.ok()) return Failed(into.status());
  auto made = std::make_shared<OperationState>(
      [core = core_, version, into = *into](OperationState* self) mutable {
        into.arrivals = self->arrivals.get();
        into.cancel = self->cancel();
        return core->Pull(version, into);
      });
  made->arrivals = std::make_unique<PullArrivals>(&core_->router());
  return made;
}

ClientOperations::State ClientOperations::Round(
    absl::Span<const TensorView> gradient, bool whole, const PushInfo& info,
    absl::Span<const MutableTensorView> parameters,
    const PullOptions& options) {
  absl::StatusOr<PullInto> into = IntoOf(parameters, options);
  if (!into.ok()) return Failed(into.status());
  const absl::StatusOr<TakenRow> taken = TakeRow(gradient, whole);
  if (!taken.ok()) return Failed(taken.status());
  return MakeRound({*taken, info, *std::move(into)});
}

ClientOperations::State ClientOperations::MakeRound(RoundWork round) {
  const auto work = std::make_shared<const RoundWork>(std::move(round));
  auto made = std::make_shared<OperationState>(
      [core = core_, work](OperationState* self) {
        PullInto into = work->into;
        into.arrivals = self->arrivals.get();
        into.cancel = self->cancel();
        TripRequest requested;
        requested.info = &work->info;
        requested.into = &into;
        PushedRow& row = *work->taken.row;
        // What was begun before goes on with ordinary calls.
        if (work->taken.made && row.name.session == 0)
          row.requested = &requested;
        const absl::Status pushed = row.operation->Wait();
        const auto outcome =
            core->FinishRound(pushed, row.name, &row.row, requested);
        if (outcome.ok()) self->outcome = *outcome;
        return outcome.status();
      },
      [row = work->taken.row](const absl::Status& reason) {
        row->operation->Cancel(reason);
        row->row.Cancel(reason);  // it may be pushed again, in its commit
      });
  made->arrivals = std::make_unique<PullArrivals>(&core_->router());
  made->resume = [this, work] {
    // A round that was cancelled before it had begun did not wait for its row,
    // whose name a push that is under way may still give.
    work->taken.row->operation->Wait().IgnoreError();
    RoundWork again = *work;
    again.taken.row =
        WithOperation(std::make_shared<PushedRow>(*work->taken.row));
    again.taken.made = true;
    // The memory was the caller's meanwhile, who may have given it work.
    absl::Status marked = again.taken.row->row.MarkAnew();
    if (marked.ok()) marked = core_->MarkTargets(&again.into);
    if (marked.ok()) return MakeRound(std::move(again));
    again.taken.row->operation->Cancel(marked);  // lets go of what it holds
    return Failed(marked);
  };
  return made;
}

ClientOperations::State ClientOperations::Reduce(
    const std::string& what, std::vector<double> values,
    std::shared_ptr<Reduction> made) {
  return std::make_shared<OperationState>(
      [core = core_, what, values = std::move(values),
       made = std::move(made)](OperationState* self) {
        absl::StatusOr<Reduction> reduced =
            core->Reduce(what, values, self->cancel());
        if (reduced.ok()) *made = *std::move(reduced);
        return reduced.status();
      });
}

ClientOperations::State ClientOperations::Resume(const State& cancelled) {
  if (cancelled->resume == nullptr || !absl::IsCancelled(cancelled->status())) {
    return Failed(absl::FailedPreconditionError(
        "this operation is no round that was cancelled"));
  }
  return Start(cancelled->resume());
}

}  // namespace agg
