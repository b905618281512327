// Answers who asks for a shard's memory (P39): for tests of shards that lie,
// and of such as do not.
#ifndef AGG_TESTS_WORKER_CLIENT_REGION_GIVER_H_
#define AGG_TESTS_WORKER_CLIENT_REGION_GIVER_H_

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/region.pb.h"
#include "server/base/file_descriptor.h"
#include "server/base/local_socket.h"

namespace agg {

struct RegionGift {
  v1::RegionReply reply;
  std::vector<FileDescriptor> descriptors;
};

// Answers each request so, from a thread of its own. One at a time in a
// process.
class RegionGiver {
 public:
  using Answer = std::function<RegionGift(const v1::RegionRequest& request)>;

  explicit RegionGiver(Answer answer)
      : name_(absl::StrCat("agg-giver-", getpid())),
        answer_(std::move(answer)),
        listener_(*ListenLocally(name_)),
        thread_([this] { Loop(); }) {}
  ~RegionGiver() {
    stopped_ = true;
    ConnectLocally(name_).IgnoreError();
    thread_.join();
  }

  const std::string& name() const { return name_; }
  int num_requests() const { return num_requests_; }

 private:
  static constexpr absl::Duration kPatience = absl::Seconds(30);

  void Loop() {
    while (!stopped_) {
      const FileDescriptor peer(
          accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!peer.valid()) continue;
      const auto message = ReceiveMessage(peer.get(), 4096, kPatience);
      v1::RegionRequest request;
      if (!message.ok() || !request.ParseFromString(message->bytes)) continue;
      ++num_requests_;
      const RegionGift gift = answer_(request);
      std::vector<int> descriptors;
      for (const FileDescriptor& fd : gift.descriptors) {
        descriptors.push_back(fd.get());
      }
      SendMessage(peer.get(), gift.reply.SerializeAsString(), descriptors,
                  kPatience)
          .IgnoreError();
    }
  }

  const std::string name_;
  const Answer answer_;
  const FileDescriptor listener_;
  std::atomic<bool> stopped_{false};
  std::atomic<int> num_requests_{0};
  std::thread thread_;  // last
};

}  // namespace agg

#endif  // AGG_TESTS_WORKER_CLIENT_REGION_GIVER_H_
