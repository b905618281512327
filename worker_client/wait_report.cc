// One reason at a time: the last one that was said.
#include "worker_client/wait_report.h"

namespace agg {

void WaitReport::Say(const std::string& reason, absl::Time now) {
  if (!Due(now)) return;
  next_ = now + kSayAgain;
  if (reason == said_) return;
  said_ = reason;
  ClientEvent event;
  event.kind = kind_;
  event.message = reason;
  options_.on_event(event);
}

}  // namespace agg
