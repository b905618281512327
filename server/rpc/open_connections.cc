#include "server/rpc/open_connections.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

namespace agg {
namespace {

// Checkpoints, logs, shared memory, the HTTP port, and what libraries open.
constexpr rlim_t kOtherFiles = 512;

}  // namespace

uint64_t OpenConnections::SystemInode(int fd) {
  struct stat found = {};
  return fstat(fd, &found) == 0 ? static_cast<uint64_t>(found.st_ino) : 0;
}

OpenConnections::OpenConnections(int most, const Clock* clock, Inode inode)
    : most_(most), clock_(clock), inode_(std::move(inode)) {}

bool OpenConnections::HasRoom(const std::string& host) const {
  if (size() >= most_) return false;
  if (size() < most_ - most_ / 8) return true;
  const auto found = of_host_.find(host);
  return found == of_host_.end() || found->second < kFew;
}

void OpenConnections::Forget(std::map<int, Connection>::iterator connection) {
  const auto host = of_host_.find(connection->second.host);
  if (--host->second == 0) of_host_.erase(host);
  open_.erase(connection);
}

void OpenConnections::ForgetClosed() {
  const absl::Time now = clock_->Now();
  if (now < looked_ + kLook) return;
  looked_ = now;
  for (auto next = open_.begin(); next != open_.end();) {
    const auto connection = next++;
    if (inode_(connection->first) != connection->second.inode) {
      Forget(connection);
    }
  }
}

bool OpenConnections::Add(int fd, const std::string& host) {
  // The number is free to be given again only once its file was closed.
  const auto former = open_.find(fd);
  if (former != open_.end()) Forget(former);
  if (!HasRoom(host)) ForgetClosed();
  if (!HasRoom(host)) return false;
  open_.emplace(fd, Connection{inode_(fd), host});
  ++of_host_[host];
  return true;
}

int PlacesForConnections(int wanted) {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return wanted;
  const rlim_t needed = static_cast<rlim_t>(wanted) + kOtherFiles;
  if (files.rlim_cur < needed) {
    rlimit more = files;
    more.rlim_cur = std::min(needed, files.rlim_max);
    if (setrlimit(RLIMIT_NOFILE, &more) == 0) files = more;
  }
  if (files.rlim_cur >= needed) return wanted;
  const rlim_t others = std::min(kOtherFiles, files.rlim_cur / 2);
  return static_cast<int>(std::max<rlim_t>(files.rlim_cur - others, 1));
}

}  // namespace agg
