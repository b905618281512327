#include "server/rpc/open_connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/file_descriptor.h"

namespace agg {
namespace {

// Checkpoints, logs, shared memory, the HTTP port, and what libraries open.
constexpr rlim_t kOtherFiles = 512;

bool IsLocal(absl::string_view peer) { return absl::StartsWith(peer, "unix"); }

// gRPC writes an address as a part of a URI: "%5B" for "[".
std::string WithoutPercents(absl::string_view uri) {
  std::string text;
  for (size_t i = 0; i < uri.size(); ++i) {
    if (uri[i] == '%' && i + 2 < uri.size()) {
      const std::string byte = absl::HexStringToBytes(uri.substr(i + 1, 2));
      absl::StrAppend(&text, byte);
      i += 2;
    } else {
      text.push_back(uri[i]);
    }
  }
  return text;
}

}  // namespace

std::string PeerOf(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &four.sin_addr, text, sizeof(text));
    return absl::StrCat("ipv4:", text, ":", ntohs(four.sin_port));
  }
  if (address.ss_family != AF_INET6) return "unix:";
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) {
    inet_ntop(AF_INET, &six.sin6_addr.s6_addr[12], text, sizeof(text));
    return absl::StrCat("ipv4:", text, ":", ntohs(six.sin6_port));
  }
  inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof(text));
  const std::string scope =
      six.sin6_scope_id == 0 ? "" : absl::StrCat("%", six.sin6_scope_id);
  return absl::StrCat("ipv6:[", text, scope, "]:", ntohs(six.sin6_port));
}

uint64_t OpenConnections::SystemInode(int fd) {
  struct stat found = {};
  return fstat(fd, &found) == 0 ? static_cast<uint64_t>(found.st_ino) : 0;
}

OpenConnections::Calls OpenConnections::SystemCalls() {
  Calls calls;
  calls.inode = &SystemInode;
  calls.untaken = [](int fd) -> int64_t {
    int bytes = 0;
    return ioctl(fd, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
  };
  calls.shut = [](int fd, uint64_t inode) {
    // gRPC may close the descriptor at this moment, and its number may become
    // another connection's. A descriptor of our own stays what it is.
    const FileDescriptor own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (own.valid() && SystemInode(own.get()) == inode) {
      shutdown(own.get(), SHUT_RDWR);
    }
  };
  return calls;
}

OpenConnections::OpenConnections(int most, const Clock* clock, Calls calls)
    : most_(most), clock_(clock), calls_(std::move(calls)) {}

int OpenConnections::size() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(open_.size());
}

bool OpenConnections::HasRoom(const std::string& host) const {
  const int size = static_cast<int>(open_.size());
  if (size >= most_) return false;
  if (size < most_ - most_ / 8) return true;
  const auto found = of_host_.find(host);
  return found == of_host_.end() || found->second < kFew;
}

void OpenConnections::Forget(Entry connection) {
  const NewConnection& of = connection->second.of;
  const auto host = of_host_.find(of.host);
  if (--host->second == 0) of_host_.erase(host);
  const auto peer = of_peer_.find(of.peer);
  if (peer != of_peer_.end() && peer->second == connection->first) {
    of_peer_.erase(peer);
  }
  open_.erase(connection);
}

void OpenConnections::ForgetClosed() {
  const absl::Time now = clock_->Now();
  if (now < looked_ + kLook) return;
  looked_ = now;
  for (auto next = open_.begin(); next != open_.end();) {
    const auto connection = next++;
    if (calls_.inode(connection->first) != connection->second.inode) {
      Forget(connection);
    }
  }
}

bool OpenConnections::Add(const NewConnection& connection) {
  MutexLock lock(&mutex_);
  // The number is free to be given again only once its file was closed.
  const auto former = open_.find(connection.fd);
  if (former != open_.end()) Forget(former);
  if (!HasRoom(connection.host)) ForgetClosed();
  if (!HasRoom(connection.host)) return false;
  Connection added;
  added.inode = calls_.inode(connection.fd);
  added.of = connection;
  added.since = added.looked = clock_->Now();
  open_.emplace(connection.fd, std::move(added));
  ++of_host_[connection.host];
  // The newest one: a former one of that name is closed.
  if (!connection.local) of_peer_[connection.peer] = connection.fd;
  return true;
}

void OpenConnections::Shut(Entry connection) {
  connection->second.ended = true;
  calls_.shut(connection->first, connection->second.inode);
}

void OpenConnections::EndAll() {
  MutexLock lock(&mutex_);
  for (auto next = open_.begin(); next != open_.end(); ++next) Shut(next);
}

bool OpenConnections::End(absl::string_view peer) {
  MutexLock lock(&mutex_);
  const auto found = of_peer_.find(WithoutPercents(peer));
  if (found == of_peer_.end()) return false;
  const auto connection = open_.find(found->second);
  if (calls_.inode(connection->first) != connection->second.inode) {
    Forget(connection);
    return false;
  }
  Shut(connection);
  return true;
}

const OpenConnections::Connection* OpenConnections::Find(
    absl::string_view peer) const {
  const auto found = of_peer_.find(WithoutPercents(peer));
  return found == of_peer_.end() ? nullptr : &open_.at(found->second);
}

bool OpenConnections::NoteExpiry(absl::string_view peer, absl::Time expires) {
  MutexLock lock(&mutex_);
  if (IsLocal(peer)) {
    local_expires_ = std::min(local_expires_, expires);
  } else if (const auto found = of_peer_.find(WithoutPercents(peer));
             found != of_peer_.end()) {
    open_.at(found->second).expires = expires;
  }
  return clock_->Now() < expires;
}

bool OpenConnections::KnowsExpiry(absl::string_view peer) const {
  MutexLock lock(&mutex_);
  const Connection* const connection = Find(peer);
  return connection != nullptr && connection->expires.has_value() &&
         clock_->Now() < *connection->expires;
}

std::vector<std::string> OpenConnections::EndExpired() {
  std::vector<std::string> ended;
  const absl::Time now = clock_->Now();
  MutexLock lock(&mutex_);
  const bool local = local_expires_ <= now;
  if (local) local_expires_ = absl::InfiniteFuture();
  bool any_local = false;
  for (auto next = open_.begin(); next != open_.end();) {
    const auto entry = next++;
    const Connection& connection = entry->second;
    const bool over =
        connection.of.local
            ? local
            : connection.expires.value_or(absl::InfiniteFuture()) <= now;
    if (!over || connection.ended) continue;
    if (calls_.inode(entry->first) != connection.inode) {
      Forget(entry);  // its owner has left long ago
      continue;
    }
    if (!connection.of.local) ended.push_back(connection.of.peer);
    any_local |= connection.of.local;
    Shut(entry);
  }
  if (any_local) ended.push_back("a Unix socket (all of these are ended)");
  return ended;
}

std::vector<int32_t> OpenConnections::EndStuck(absl::Duration timeout) {
  std::vector<int32_t> ended;
  const absl::Time now = clock_->Now();
  MutexLock lock(&mutex_);
  for (auto next = open_.begin(); next != open_.end();) {
    const auto entry = next++;
    Connection& connection = entry->second;
    if (!connection.of.local) continue;
    if (calls_.inode(entry->first) != connection.inode) {
      Forget(entry);
      continue;
    }
    const int64_t untaken = calls_.untaken(entry->first);
    connection.looked = now;
    if (untaken == 0 || untaken != connection.untaken) {
      connection.untaken = untaken;
      connection.since = now;
    } else if (now - connection.since >= timeout) {
      ended.push_back(connection.of.process);
      Shut(entry);
      connection.since = now;  // once; gRPC closes it
    }
  }
  return ended;
}

std::vector<int32_t> OpenConnections::EndUnread() {
  std::vector<int32_t> ended;
  const absl::Time now = clock_->Now();
  MutexLock lock(&mutex_);
  for (auto entry = open_.begin(); entry != open_.end(); ++entry) {
    const Connection& connection = entry->second;
    if (connection.of.local && !connection.ended && connection.untaken > 0 &&
        now - connection.looked >= kLook &&
        calls_.inode(entry->first) == connection.inode &&
        calls_.untaken(entry->first) == connection.untaken) {
      ended.push_back(connection.of.process);
      Shut(entry);
    }
  }
  return ended;
}

std::vector<int32_t> OpenConnections::Unread() const {
  std::vector<int32_t> processes;
  MutexLock lock(&mutex_);
  for (const auto& [fd, connection] : open_) {
    if (connection.of.local && calls_.inode(fd) == connection.inode &&
        calls_.untaken(fd) > 0) {
      processes.push_back(connection.of.process);
    }
  }
  return processes;
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
