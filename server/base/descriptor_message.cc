// Calls never block: poll waits, with what is left of the patience.
#include "server/base/descriptor_message.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"

namespace agg {
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
