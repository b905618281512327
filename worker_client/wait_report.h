// Says for what a client waits, often enough and not too often.
#ifndef AGG_WORKER_CLIENT_WAIT_REPORT_H_
#define AGG_WORKER_CLIENT_WAIT_REPORT_H_

#include <string>

#include "absl/time/time.h"
#include "worker_client/client_event.h"
#include "worker_client/client_types.h"

namespace agg {

// Tells on_event the reason at once, and again when it has changed. Looks at it
// not more often than each kSayAgain. Thread-compatible.
class WaitReport {
 public:
  static constexpr absl::Duration kSayAgain = absl::Seconds(5);

  // `options` outlive it.
  WaitReport(const ClientOptions& options, ClientEvent::Kind kind)
      : options_(options), kind_(kind) {}

  // Whether Say would look at a reason: otherwise none has to be found.
  bool Due(absl::Time now) const { return options_.on_event && now >= next_; }
  void Say(const std::string& reason, absl::Time now);

 private:
  const ClientOptions& options_;
  const ClientEvent::Kind kind_;
  std::string said_;
  absl::Time next_ = absl::InfinitePast();
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_WAIT_REPORT_H_
