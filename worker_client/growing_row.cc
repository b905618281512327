// The list of tensors only grows, so that whoever pushes needs no more than a
// position in it.
#include "worker_client/growing_row.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/base/dcheck.h"
#include "server/base/status_macros.h"

namespace agg {

// An alarm whose time has come is gRPC's way to post an event.

void QueueWaker::Wake() {
  MutexLock lock(&mutex_);
  if (alarm_ != nullptr) return;
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(queue_, absl::ToChronoTime(absl::Now()), this);
}

void QueueWaker::TakeEvent() {
  MutexLock lock(&mutex_);
  alarm_ = nullptr;
}

GrowingRow::GrowingRow(const ShardRouter* router, DType dtype,
                       TensorDevices* devices)
    : router_(router),
      dtype_(dtype),
      devices_(devices),
      bound_(router->manifest().tensors.size()),
      device_of_(bound_.size(), TensorDevices::kHost),
      marks_(bound_.size()),
      has_(bound_.size()) {}

GrowingRow::GrowingRow(const GrowingRow& row)
    : router_(row.router_), dtype_(row.dtype_), devices_(row.devices_) {
  MutexLock lock(&row.mutex_);
  bound_ = row.bound_;
  device_of_ = row.device_of_;
  marks_ = row.marks_;
  has_ = row.has_;
  given_ = row.given_;
  complete_ = row.complete_;
}

absl::StatusOr<GrowingRow::Some> GrowingRow::Bind(
    const ShardRouter& router, DType dtype, TensorDevices* devices,
    absl::Span<const TensorView> views) {
  AGG_ASSIGN_OR_RETURN(auto bound, router.BindSome(views, dtype));
  Some some;
  some.views = std::move(bound);
  some.device_of.assign(some.views.size(), TensorDevices::kHost);
  if (devices == nullptr) return some;
  std::vector<TensorView> ordered;
  for (const auto& [tensor, view] : some.views) ordered.push_back(view);
  AGG_ASSIGN_OR_RETURN(auto device_of, devices->DevicesOf(ordered));
  some.device_of = std::move(device_of);
  AGG_ASSIGN_OR_RETURN(some.marks, devices->MarksOf(some.device_of));
  return some;
}

absl::Status GrowingRow::Give(absl::Span<const TensorView> views) {
  const absl::StatusOr<Some> some = Bind(*router_, dtype_, devices_, views);
  return some.ok() ? Give(*some) : some.status();
}

absl::Status GrowingRow::Give(const Some& some) {
  MutexLock lock(&mutex_);
  for (const auto& [tensor, view] : some.views) {
    if (!has_[tensor] && !complete_) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor \"", router_->manifest().tensors[tensor].name, "\" ",
        has_[tensor] ? "was given to this row before"
                     : "comes after the row was complete",
        "; Cancel the row to begin another one"));
  }
  for (size_t i = 0; i < some.views.size(); ++i) {
    const auto& [tensor, view] = some.views[i];
    has_[tensor] = true;
    bound_[tensor] = view;
    device_of_[tensor] = some.device_of[i];
    const auto mark = some.marks.find(device_of_[tensor]);
    if (mark != some.marks.end()) marks_[tensor] = mark->second;
    given_.push_back(tensor);
  }
  if (given_.size() == bound_.size()) complete_ = true;
  Wake();
  return absl::OkStatus();
}

std::set<int> GrowingRow::devices() const {
  MutexLock lock(&mutex_);
  std::set<int> devices;
  for (const int tensor : given_) {
    if (device_of_[tensor] == TensorDevices::kHost) continue;
    if (bound_[tensor].dtype != dtype_) return {};
    devices.insert(device_of_[tensor]);
  }
  return devices;
}

std::string GrowingRow::absent_tensors() const {
  AGG_DCHECK(complete());
  MutexLock lock(&mutex_);
  std::string bits;
  for (size_t i = 0; i < bound_.size(); ++i) {
    // One without elements has no slice that could be absent.
    if (!IsAbsent(bound_[i]) ||
        NumElements(router_->manifest().tensors[i]) == 0) {
      continue;
    }
    bits.resize(i / 8 + 1);
    bits[i / 8] = static_cast<char>(bits[i / 8] | (1 << (i % 8)));
  }
  return bits;
}

bool GrowingRow::any_on_device() const {
  MutexLock lock(&mutex_);
  return std::any_of(given_.begin(), given_.end(), [this](int tensor) {
    return device_of_[tensor] != TensorDevices::kHost;
  });
}

absl::Status GrowingRow::Complete() {
  MutexLock lock(&mutex_);
  if (complete_) return absl::OkStatus();
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (has_[i]) continue;
    AGG_RETURN_IF_ERROR(router_->CheckMayLack(static_cast<int>(i)));
  }
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (!has_[i]) given_.push_back(static_cast<int>(i));
  }
  complete_ = true;
  Wake();
  return absl::OkStatus();
}

bool GrowingRow::complete() const {
  MutexLock lock(&mutex_);
  return complete_;
}

void GrowingRow::Cancel(const absl::Status& reason) {
  MutexLock lock(&mutex_);
  if (!cancelled_.ok()) return;
  cancelled_ = reason;
  Wake();
}

absl::Status GrowingRow::cancelled() const {
  MutexLock lock(&mutex_);
  return cancelled_;
}

absl::StatusOr<GrowingRow::Taken> GrowingRow::Take(Cursor* cursor) const {
  std::vector<int> waiting = std::move(cursor->waiting_);
  cursor->waiting_.clear();
  {
    MutexLock lock(&mutex_);
    waiting.insert(waiting.end(),
                   given_.begin() + static_cast<ptrdiff_t>(cursor->num_seen_),
                   given_.end());
    cursor->num_seen_ = given_.size();
  }
  // The driver is asked with no lock held, and once for each device that is not
  // there yet: it gets to its marks in their order.
  Taken taken;
  std::set<int> behind;
  for (const int tensor : waiting) {
    const SharedMark& mark = marks_[tensor];
    absl::StatusOr<bool> reached = mark == nullptr;
    if (mark != nullptr && behind.count(device_of_[tensor]) == 0) {
      reached = mark->Reached();
    }
    if (!reached.ok()) return DeviceError(reached.status());
    if (!*reached) behind.insert(device_of_[tensor]);
    (*reached ? taken.tensors : cursor->waiting_).push_back(tensor);
  }
  taken.waits = !cursor->waiting_.empty();
  return taken;
}

std::vector<SharedMark> GrowingRow::marks() const {
  MutexLock lock(&mutex_);
  std::set<SharedMark> marks(marks_.begin(), marks_.end());
  marks.erase(nullptr);
  return {marks.begin(), marks.end()};
}

absl::Status GrowingRow::MarkAnew() {
  if (devices_ == nullptr) return absl::OkStatus();
  AGG_ASSIGN_OR_RETURN(const auto marks, devices_->MarksOf(device_of_));
  MutexLock lock(&mutex_);
  for (size_t i = 0; i < marks_.size(); ++i) {
    if (marks_[i] != nullptr) marks_[i] = marks.at(device_of_[i]);
  }
  return absl::OkStatus();
}

void GrowingRow::SetWaker(QueueWaker* waker) {
  MutexLock lock(&mutex_);
  waker_ = waker;
}

void GrowingRow::Wake() {
  if (waker_ != nullptr) waker_->Wake();
}

}  // namespace agg
