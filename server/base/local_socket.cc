// Names are short, so that they fit the kernel's address with room to spare.
// Messages never block: poll waits, with what is left of the patience.
#include "server/base/local_socket.h"

#include <dirent.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/dcheck.h"
#include "server/base/status_macros.h"

namespace agg {

namespace {

constexpr size_t kMaxName = 64;
// All workers of a host connect at the same time when the job begins.
constexpr int kBacklog = 512;

// bind or connect.
using AddressCall = int (*)(int, const sockaddr*, socklen_t);

// 0, or the errno of socket or of `call`.
int WithAddress(int fd, absl::string_view name, AddressCall call) {
  if (fd < 0) return errno;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  // A first byte of 0 makes the name abstract; its length ends it.
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const size_t size = offsetof(sockaddr_un, sun_path) + 1 + name.size();
  return call(fd, reinterpret_cast<const sockaddr*>(&address),
              static_cast<socklen_t>(size)) == 0
             ? 0
             : errno;
}

int OpenSocket() {
  return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

}  // namespace

std::string LocalSocketName(uint64_t life) {
  return absl::StrCat("agg-", absl::Hex(life, absl::kZeroPad16));
}

std::string RegionSocketName(uint64_t life) {
  return absl::StrCat("agg-regions-", absl::Hex(life, absl::kZeroPad16));
}

bool IsLocalSocketName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxName &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  c == '-' || c == '.';
         });
}

std::string LocalSocketTarget(absl::string_view name) {
  return absl::StrCat("unix-abstract:", name);
}

absl::StatusOr<FileDescriptor> ListenLocally(absl::string_view name) {
  FileDescriptor socket(OpenSocket());
  int error = WithAddress(socket.get(), name, &bind);
  if (error == 0 && listen(socket.get(), kBacklog) != 0) error = errno;
  if (error == 0) return socket;
  return absl::UnavailableError(absl::StrCat("cannot listen on ",
                                             LocalSocketTarget(name), ": ",
                                             std::strerror(error)));
}

absl::Status CheckLocalListen(absl::string_view name) {
  AGG_DCHECK(IsLocalSocketName(name));
  return ListenLocally(name).status();
}

bool IsTrustedPeer(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == geteuid() || peer.uid == 0);
}

absl::StatusOr<FileDescriptor> ConnectLocally(absl::string_view name) {
  if (!IsLocalSocketName(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", name, "\" is no name of a local socket"));
  }
  FileDescriptor socket(OpenSocket());
  const int error = WithAddress(socket.get(), name, &connect);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("cannot connect to ",
                                               LocalSocketTarget(name), ": ",
                                               std::strerror(error)));
  }
  // Anybody may take a name that is free here: a shard on another host has one
  // that is. SO_PEERCRED says who called listen.
  if (!IsTrustedPeer(socket.get())) {
    return absl::UnavailableError(
        absl::StrCat(LocalSocketTarget(name), " is of another user's process"));
  }
  return socket;
}

bool CanConnectLocally(absl::string_view name) {
  return ConnectLocally(name).ok();
}

namespace {

// getsockname or getpeername.
using NameCall = int (*)(int, sockaddr*, socklen_t*);

bool HasOurName(int fd, NameCall call) {
  sockaddr_un address = {};
  socklen_t size = sizeof(address);
  if (call(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      address.sun_family != AF_UNIX ||
      size <= offsetof(sockaddr_un, sun_path)) {
    return false;
  }
  const absl::string_view name(address.sun_path,
                               size - offsetof(sockaddr_un, sun_path));
  // A first byte of 0 makes it abstract.
  return name[0] == 0 && absl::StartsWith(name.substr(1), "agg-");
}

// 0: no socket.
int SendBuffer(int fd) {
  int bytes = 0;
  socklen_t size = sizeof(bytes);
  if (getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &size) != 0) return 0;
  return bytes;
}

// The most that a socket has had after it was given kLocalBufferBytes: less,
// where the system allows less, and who has that needs no more calls. 0: none
// was given any.
std::atomic<int> reached{0};

void NoteReached(int bytes) {
  int before = reached;
  while (before < bytes && !reached.compare_exchange_weak(before, bytes)) {
  }
}

bool IsWide(int bytes) {
  const int most = reached;
  return bytes >= kLocalBufferBytes || (most > 0 && bytes >= most);
}

void Widen(int fd) {
  const int before = SendBuffer(fd);
  if (before == 0 || IsWide(before)) return;
  if (!HasOurName(fd, &getsockname) && !HasOurName(fd, &getpeername)) return;
  if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kLocalBufferBytes,
                 sizeof(kLocalBufferBytes)) != 0) {
    return;
  }
  // Another socket that has the number by now has not grown.
  const int after = SendBuffer(fd);
  if (after > before) NoteReached(after);
}

}  // namespace

// A descriptor may be closed, and its number be another file's, while this
// looks at it: at worst that one has a larger buffer, too.
void WidenLocalBuffers() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"),
                                                   &closedir);
  if (folder == nullptr) return;
  while (const dirent* const entry = readdir(folder.get())) {
    int fd;
    if (absl::SimpleAtoi(entry->d_name, &fd)) Widen(fd);
  }
}

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kLengthBytes = 4;

absl::Status Gone(absl::string_view why) {
  return absl::UnavailableError(
      absl::StrCat("the other end of a local socket is gone: ", why));
}

// Waits for `events` on one socket, in all for the patience it began with.
class Waiter {
 public:
  Waiter(int socket, absl::Duration patience)
      : socket_(socket),
        end_(SteadyClock::now() + absl::ToChronoNanoseconds(patience)) {}

  absl::Status Wait(short events) {
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(
          end_ - SteadyClock::now());
      pollfd waited = {socket_, events, 0};
      const int ready = left.count() <= 0
                            ? 0
                            : poll(&waited, 1, static_cast<int>(left.count()));
      if (ready > 0) return absl::OkStatus();
      if (ready < 0 && errno == EINTR) continue;
      if (ready < 0) return Gone(std::strerror(errno));
      return absl::DeadlineExceededError(
          "the other end of a local socket did not answer in time");
    }
  }

 private:
  const int socket_;
  const SteadyClock::time_point end_;
};

// Takes the descriptors of a received message; false: some are missing.
bool TakeDescriptors(msghdr* header, std::vector<FileDescriptor>* to) {
  for (cmsghdr* control = CMSG_FIRSTHDR(header); control != nullptr;
       control = CMSG_NXTHDR(header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(fd));
      to->emplace_back(fd);
    }
  }
  return (header->msg_flags & MSG_CTRUNC) == 0;
}

// Reads exactly `size` bytes.
absl::Status ReceiveBytes(int socket, char* to, size_t size, Waiter* waiter,
                          std::vector<FileDescriptor>* descriptors) {
  alignas(cmsghdr) char space[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
  while (size > 0) {
    iovec piece = {to, size};
    msghdr header = {};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = space;
    header.msg_controllen = sizeof(space);
    const ssize_t got =
        recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      AGG_RETURN_IF_ERROR(waiter->Wait(POLLIN));
      continue;
    }
    if (got < 0) return Gone(std::strerror(errno));
    if (got == 0) return Gone("it has closed the socket");
    if (!TakeDescriptors(&header, descriptors) ||
        descriptors->size() > kMaxDescriptors) {
      return absl::InvalidArgumentError(
          absl::StrCat("a local message has too many descriptors; allowed: ",
                       kMaxDescriptors));
    }
    to += got;
    size -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SendMessage(int socket, absl::string_view bytes,
                         absl::Span<const int> descriptors,
                         absl::Duration patience) {
  AGG_DCHECK(descriptors.size() <= kMaxDescriptors);
  char length[kLengthBytes];
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length[i] = static_cast<char>(bytes.size() >> (8 * i) & 0xff);
  }
  alignas(cmsghdr) char space[CMSG_SPACE(kMaxDescriptors * sizeof(int))] = {};
  std::string rest =
      absl::StrCat(absl::string_view(length, kLengthBytes), bytes);
  size_t sent = 0;
  Waiter waiter(socket, patience);
  while (sent < rest.size()) {
    iovec piece = {&rest[sent], rest.size() - sent};
    msghdr header = {};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    if (sent == 0 && !descriptors.empty()) {
      const size_t size = descriptors.size() * sizeof(int);
      header.msg_control = space;
      header.msg_controllen = CMSG_SPACE(size);
      cmsghdr* const control = CMSG_FIRSTHDR(&header);
      control->cmsg_level = SOL_SOCKET;
      control->cmsg_type = SCM_RIGHTS;
      control->cmsg_len = CMSG_LEN(size);
      std::memcpy(CMSG_DATA(control), descriptors.data(), size);
    }
    const ssize_t count = sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
    } else if (errno == EAGAIN || errno == EINTR) {
      AGG_RETURN_IF_ERROR(waiter.Wait(POLLOUT));
    } else {
      return Gone(std::strerror(errno));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<DescriptorMessage> ReceiveMessage(int socket, size_t max_bytes,
                                                 absl::Duration patience) {
  DescriptorMessage message;
  Waiter waiter(socket, patience);
  char length[kLengthBytes];
  AGG_RETURN_IF_ERROR(ReceiveBytes(socket, length, kLengthBytes, &waiter,
                                   &message.descriptors));
  size_t size = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    size |= static_cast<size_t>(static_cast<unsigned char>(length[i]))
            << (8 * i);
  }
  if (size > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a local message has ", size, " bytes; allowed: at most ", max_bytes));
  }
  message.bytes.resize(size);
  AGG_RETURN_IF_ERROR(ReceiveBytes(socket, &message.bytes[0], size, &waiter,
                                   &message.descriptors));
  return message;
}

}  // namespace agg
