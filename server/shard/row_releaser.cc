// The thread takes all rows that are there and ends them without the lock.
#include "server/shard/row_releaser.h"

#include <utility>

namespace agg {

RowReleaser::~RowReleaser() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void RowReleaser::Release(std::shared_ptr<const Buffer> row) {
  MutexLock lock(&mutex_);
  rows_.push_back(std::move(row));
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  changed_.NotifyAll();
}

void RowReleaser::Wait() {
  MutexLock lock(&mutex_);
  while (releasing_ || !rows_.empty()) changed_.Wait(&mutex_);
}

void RowReleaser::Run() {
  for (;;) {
    std::vector<std::shared_ptr<const Buffer>> rows;
    {
      MutexLock lock(&mutex_);
      releasing_ = false;
      changed_.NotifyAll();
      while (!stopping_ && rows_.empty()) changed_.Wait(&mutex_);
      if (rows_.empty()) return;
      rows = std::exchange(rows_, {});
      releasing_ = true;
    }
  }
}

}  // namespace agg
