// The queue is a time, not a list: what still has to be sent is what the link
// is busy for.
#include "tests/bench/link_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace agg {

absl::Status CheckLinkOptions(const LinkOptions& options) {
  constexpr int64_t kMostBits = 100000000000;
  if (options.bits_per_second < 1 || options.bits_per_second > kMostBits) {
    return absl::InvalidArgumentError(
        absl::StrCat("bits_per_second is ", options.bits_per_second,
                     "; allowed: 1 to ", kMostBits));
  }
  if (options.delay < absl::ZeroDuration() ||
      options.delay > absl::Seconds(10)) {
    return absl::InvalidArgumentError(
        absl::StrCat("delay is ", absl::FormatDuration(options.delay),
                     "; allowed: 0 to 10s"));
  }
  if (!(options.loss >= 0.0 && options.loss < 1.0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("loss is ", options.loss, "; allowed: 0 to 1, without 1"));
  }
  if (options.queue_bytes < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "queue_bytes is ", options.queue_bytes, "; allowed: 1 or more"));
  }
  return absl::OkStatus();
}

LinkQueue::LinkQueue(const LinkOptions& options)
    : options_(options), random_(options.seed) {}

absl::Duration LinkQueue::SendTime(int64_t num_bytes) const {
  return absl::Seconds(8 * num_bytes) / options_.bits_per_second;
}

void LinkQueue::Push(absl::Time now, std::string packet) {
  const absl::Time begin = std::max(now, free_at_);
  const absl::Time sent = begin + SendTime(static_cast<int64_t>(packet.size()));
  if (sent - now > SendTime(options_.queue_bytes)) {
    ++counts_.dropped;
    return;
  }
  free_at_ = sent;
  // 53 random bits, in [0, 1): the same with every standard library.
  if (static_cast<double>(random_() >> 11) * 0x1p-53 < options_.loss) {
    ++counts_.lost;
    return;
  }
  packets_.push_back({sent + options_.delay, std::move(packet)});
}

absl::Time LinkQueue::next_due() const {
  return packets_.empty() ? absl::InfiniteFuture() : packets_.front().due;
}

bool LinkQueue::Pop(absl::Time now, std::string* packet) {
  if (packets_.empty() || packets_.front().due > now) return false;
  const absl::Duration late = now - packets_.front().due;
  counts_.latest = std::max(counts_.latest, late);
  counts_.all_late += late;
  *packet = std::move(packets_.front().bytes);
  packets_.pop_front();
  ++counts_.packets;
  counts_.bytes += static_cast<int64_t>(packet->size());
  return true;
}

}  // namespace agg
