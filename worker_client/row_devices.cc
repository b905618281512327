#include "worker_client/row_devices.h"

#include <algorithm>

namespace agg {

void RowDevices::Add(std::shared_ptr<DeviceRow> row) {
  MutexLock lock(&mutex_);
  const int device = row->device();
  rows_.try_emplace(device, std::move(row));
}

bool RowDevices::has(int device) const {
  MutexLock lock(&mutex_);
  return rows_.count(device) > 0;
}

bool RowDevices::has_any() const {
  MutexLock lock(&mutex_);
  return std::any_of(rows_.begin(), rows_.end(),
                     [](const auto& entry) { return entry.second != nullptr; });
}

void RowDevices::Begin(const std::set<int>& devices) {
  current_.clear();
  for (const int device : devices) {
    if (Find(device) != nullptr) continue;
    current_.clear();
    return;
  }
}

DeviceRow* RowDevices::Find(int device) {
  const auto known = current_.find(device);
  if (known != current_.end()) return known->second.get();
  MutexLock lock(&mutex_);
  const auto there = rows_.find(device);
  if (there == rows_.end() || there->second == nullptr) return nullptr;
  return current_.insert(*there).first->second.get();
}

absl::StatusOr<RowDevices::Copies> RowDevices::Mark(
    const std::set<DeviceRow*>& rows) {
  Copies copies;
  for (DeviceRow* const row : rows) {
    auto mark = row->Mark();
    if (!mark.ok()) return mark.status();
    copies.emplace_back(row, *std::move(mark));
  }
  return copies;
}

absl::Status RowDevices::Await(Copies copies) {
  absl::Status status;
  for (auto& [row, copied] : copies) {
    status.Update(row->Await(std::move(copied)));
  }
  return status;
}

void RowDevices::GiveUp() {
  for (const auto& [device, row] : current_) row->Discard();
  MutexLock lock(&mutex_);
  for (const auto& [device, row] : current_) rows_[device] = nullptr;
  current_.clear();
}

}  // namespace agg
