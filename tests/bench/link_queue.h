// One direction of a slow link: what becomes of a packet, and when. Apart from
// slow_link so that tests can give it the time.
#ifndef AGG_TESTS_BENCH_LINK_QUEUE_H_
#define AGG_TESTS_BENCH_LINK_QUEUE_H_

#include <cstdint>
#include <deque>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace agg {

struct LinkOptions {
  int64_t bits_per_second = 0;  // 1 to 10^11
  absl::Duration delay;         // one way, behind the last bit; 0 or more
  double loss = 0.0;            // share of the packets, 0 to below 1
  int64_t queue_bytes = 0;      // with the packet that is being sent
  uint64_t seed = 1;            // of the losses
};

// INVALID_ARGUMENT naming the field, its value and what is allowed.
absl::Status CheckLinkOptions(const LinkOptions& options);

// Counts of what has been pushed.
struct LinkCounts {
  int64_t packets = 0;      // that came out
  int64_t bytes = 0;        // likewise
  int64_t lost = 0;         // by chance
  int64_t dropped = 0;      // since the queue was full
  absl::Duration latest;    // the most that a Pop came behind a packet's time
  absl::Duration all_late;  // the sum of that over all packets
};

// A packet is sent when those before it are, at `bits_per_second`, and comes
// out `delay` later. One for which the queue has no room is dropped at once
// (drop-tail). A lost one takes its time on the link as every other one, since
// it is lost behind the queue. A packet counts with the bytes that it is pushed
// with: no preamble, no header of a lower layer. Never reorders. Not
// thread-safe.
class LinkQueue {
 public:
  // REQUIRES: CheckLinkOptions(options).ok().
  explicit LinkQueue(const LinkOptions& options);

  // REQUIRES: `now` does not go back.
  void Push(absl::Time now, std::string packet);
  // When the next packet comes out; InfiniteFuture: there is none.
  absl::Time next_due() const;
  // Takes the next packet that is out by `now`; false: there is none.
  bool Pop(absl::Time now, std::string* packet);

  const LinkCounts& counts() const { return counts_; }

 private:
  struct Packet {
    absl::Time due;
    std::string bytes;
  };

  absl::Duration SendTime(int64_t num_bytes) const;

  const LinkOptions options_;
  std::mt19937_64 random_;
  absl::Time free_at_ = absl::InfinitePast();  // when all is sent
  std::deque<Packet> packets_;                 // waiting, or on their way
  LinkCounts counts_;
};

}  // namespace agg

#endif  // AGG_TESTS_BENCH_LINK_QUEUE_H_
