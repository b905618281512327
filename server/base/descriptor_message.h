// Messages with file descriptors between two processes of one host.
#ifndef AGG_SERVER_BASE_DESCRIPTOR_MESSAGE_H_
#define AGG_SERVER_BASE_DESCRIPTOR_MESSAGE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/file_descriptor.h"

namespace agg {

// On the wire: the number of bytes, 4 bytes little endian, with which the
// descriptors come (SCM_RIGHTS); then the bytes.
struct DescriptorMessage {
  std::string bytes;
  std::vector<FileDescriptor> descriptors;
};

inline constexpr size_t kMaxDescriptors = 16;

// Both give up with DEADLINE_EXCEEDED after `patience` in all, whatever the
// other end does, and with UNAVAILABLE and the reason if it is gone. `socket`
// is a connected Unix stream socket.

// REQUIRES: at most kMaxDescriptors.
absl::Status SendMessage(int socket, absl::string_view bytes,
                         absl::Span<const int> descriptors,
                         absl::Duration patience);

// INVALID_ARGUMENT for a message of more than `max_bytes`, or with more
// descriptors than kMaxDescriptors: what came is closed.
absl::StatusOr<DescriptorMessage> ReceiveMessage(int socket, size_t max_bytes,
                                                 absl::Duration patience);

}  // namespace agg

#endif  // AGG_SERVER_BASE_DESCRIPTOR_MESSAGE_H_
