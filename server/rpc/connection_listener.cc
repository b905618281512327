// One thread polls the sockets that listen; what it accepts is gRPC's.
#include "server/rpc/connection_listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "server/base/clock.h"
#include "server/base/file_descriptor.h"
#include "server/base/log.h"

namespace agg {

namespace {

absl::string_view Advice(int error) {
  switch (error) {
    case EADDRINUSE:
      return "; stop the process that has this port (`ss -ltnp` names it), or "
             "choose another with --port";
    case EACCES:
    case EPERM:
      return "; ports below 1024 are kept for privileged processes: choose a "
             "higher one with --port";
    case EADDRNOTAVAIL:
      return "; no network interface of this host has that address: choose "
             "one that has with --bind, or 0.0.0.0 for all";
    default:
      return "";
  }
}

}  // namespace

absl::Status ListenError(absl::string_view address, int error) {
  return absl::UnavailableError(absl::StrCat(
      "cannot listen on ", address, ": ", std::strerror(error), Advice(error)));
}

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

namespace {

bool IsLocal(const std::string& peer) { return absl::StartsWith(peer, "unix"); }

// "unix:, of process 77 or 78".
std::string Where(const std::string& peer, const OpenConnections* connections) {
  if (connections == nullptr || !IsLocal(peer)) return peer;
  const std::vector<int32_t> processes = connections->Unread();
  if (processes.empty()) return peer;
  return absl::StrCat(peer, ", of process ", absl::StrJoin(processes, " or "));
}

}  // namespace

void OvertakenReaders::Note(const Reader& reader) {
  const absl::Time now = clock_->Now();
  bool quiet;
  {
    MutexLock lock(&mutex_);
    quiet = now - said_ < kQuiet;
  }
  // Before they are ended. It asks for each connection, and many readers may be
  // overtaken in one round, which waits for this.
  const std::string where = quiet ? "" : Where(reader.peer, connections_.get());
  const bool cut = reader.cut && connections_ != nullptr &&
                   (IsLocal(reader.peer) ? !connections_->EndUnread().empty()
                                         : connections_->End(reader.peer));
  int64_t unsaid;
  {
    MutexLock lock(&mutex_);
    if (quiet || now - said_ < kQuiet) {
      ++unsaid_;
      return;
    }
    said_ = now;
    unsaid = std::exchange(unsaid_, 0);
  }
  LogWarning(reader.who, " (", where, ") does not read: its pull of version ",
             reader.version, " was ended, and the round goes on",
             cut ? "; its connection is ended" : "",
             unsaid == 0 ? ""
                         : absl::StrCat("; so were ", unsaid,
                                        " other pulls since the last line"));
}

namespace {

// All workers of a job connect at the same time when it begins.
constexpr int kBacklog = 1024;
// Before it accepts again when the system had no descriptor or memory.
constexpr int kPauseMs = 100;
// Between two looks whether local connections are stuck.
constexpr int kLookMs = 1000;

void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));
}

// Of a Unix socket; 0: it is not to be seen from this process.
int32_t ProcessAtTheOtherEnd(int fd) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  const int failed = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return failed == 0 ? peer.pid : 0;
}

// A socket that listens there; *error is its errno if it does not.
FileDescriptor Listen(const sockaddr* address, socklen_t size, bool both,
                      int* error) {
  FileDescriptor fd(socket(address->sa_family,
                           SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.valid()) {
    // Connections of a former process that are still closing do not count.
    SetOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (address->sa_family == AF_INET6) {
      SetOption(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, both ? 0 : 1);
    }
    if (bind(fd.get(), address, size) == 0 && listen(fd.get(), kBacklog) == 0) {
      return fd;
    }
  }
  *error = errno;
  return FileDescriptor();
}

void SetPort(int port, sockaddr* address) {
  const auto number = htons(static_cast<uint16_t>(port));
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = number;
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = number;
  }
}

// Of both kinds; none: the system has no IPv6.
FileDescriptor ListenOnAll(int port, int* error) {
  sockaddr_in6 all = {};
  all.sin6_family = AF_INET6;
  all.sin6_port = htons(static_cast<uint16_t>(port));
  return Listen(reinterpret_cast<sockaddr*>(&all), sizeof(all), true, error);
}

// Every address of the name that can be listened on, on one port.
std::vector<FileDescriptor> ListenOnEach(const addrinfo* addresses, int port,
                                         int* error) {
  std::vector<FileDescriptor> sockets;
  for (const addrinfo* one = addresses; one != nullptr; one = one->ai_next) {
    if (!sockets.empty() && port == 0) port = PortOf(sockets.front());
    SetPort(port, one->ai_addr);
    int failed = 0;
    FileDescriptor fd =
        Listen(one->ai_addr, one->ai_addrlen, /*both=*/false, &failed);
    if (fd.valid()) {
      sockets.push_back(std::move(fd));
    } else if (*error == 0) {
      *error = failed;
    }
  }
  return sockets;
}

// "10.0.0.1"; all Unix sockets are one host.
std::string HostOf(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "unix";
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &four.sin_addr, text, sizeof(text));
  } else if (address.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof(text));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::vector<FileDescriptor>> ListenOn(
    absl::string_view address) {
  const size_t colon = address.rfind(':');
  absl::string_view host = address.substr(0, colon);
  const std::string port(address.substr(colon + 1));
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failed =
      getaddrinfo(std::string(host).c_str(), port.c_str(), &hints, &found);
  if (failed != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, ": ", gai_strerror(failed)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(
      found, &freeaddrinfo);
  int number = 0;
  if (!absl::SimpleAtoi(port, &number)) number = 0;
  int error = 0;
  std::vector<FileDescriptor> sockets;
  if (host == "0.0.0.0" || host == "::") {
    FileDescriptor all = ListenOnAll(number, &error);
    if (all.valid()) sockets.push_back(std::move(all));
    if (error == EADDRINUSE) return ListenError(address, error);
  }
  if (sockets.empty()) sockets = ListenOnEach(found, number, &error);
  if (sockets.empty()) return ListenError(address, error);
  return sockets;
}

int PortOf(const FileDescriptor& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  // The port is at the same place in both kinds of address.
  return ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);
}

ConnectionListener::ConnectionListener(Parts parts)
    : parts_(std::move(parts)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Loop(); }) {}

ConnectionListener::~ConnectionListener() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void ConnectionListener::Loop() {
  std::vector<pollfd> waited = {{stop_.get(), POLLIN, 0}};
  for (const FileDescriptor& port : parts_.ports) {
    waited.push_back({port.get(), POLLIN, 0});
  }
  const size_t first_local = waited.size();
  for (const FileDescriptor& socket : parts_.local_sockets) {
    waited.push_back({socket.get(), POLLIN, 0});
  }
  const int look_ms = parts_.local_sockets.empty() ? -1 : kLookMs;
  absl::Time looked = Clock::Real()->Now();
  while (true) {
    poll(waited.data(), waited.size(), look_ms);
    if (waited[0].revents != 0) return;
    const absl::Time now = Clock::Real()->Now();
    if (look_ms > 0 && now - looked >= absl::Milliseconds(look_ms)) {
      looked = now;
      EndStuck();
    }
    bool failed = false;
    for (size_t i = 1; i < waited.size(); ++i) {
      if (waited[i].revents == 0) continue;
      if (!AcceptOne(waited[i].fd, i >= first_local)) failed = true;
    }
    if (failed) poll(waited.data(), 1, kPauseMs);
  }
}

void ConnectionListener::EndStuck() {
  for (const int32_t process : parts_.open->EndStuck(parts_.user_timeout)) {
    LogWarningOf("stuck", "process ", process,
                 " of this host has taken nothing of what waits for it for ",
                 absl::FormatDuration(parts_.user_timeout),
                 ": its connection is ended");
  }
}

bool ConnectionListener::AcceptOne(int listener, bool local) {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&peer), &size,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
        errno == ENOMEM) {
      if (!std::exchange(failing_, true)) {
        LogWarningOf("accept",
                     "no connection can be accepted: ", std::strerror(errno));
      }
      return false;
    }
    return true;  // one that is gone already
  }
  failing_ = false;
  NewConnection connection;
  connection.fd = fd;
  connection.host = HostOf(peer);
  connection.peer = PeerOf(peer);
  connection.local = local;
  if (local) connection.process = ProcessAtTheOtherEnd(fd);
  if (!parts_.open->Add(connection)) {
    close(fd);
    if (parts_.on_refused != nullptr) parts_.on_refused(connection.host);
    return true;
  }
  if (!local) {
    SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
              static_cast<int>(absl::ToInt64Milliseconds(parts_.user_timeout)));
  }
  parts_.take(listener, fd, local);
  return true;
}

}  // namespace agg
