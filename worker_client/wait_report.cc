// One reason at a time: the last one that was said.
#include "worker_client/wait_report.h"

namespace agg {

void WaitReport::Say(const std::string& reason, absl::Time now) {
  if (!options_.on_event || reason == said_ || now < next_) return;
  said_ = reason;
  next_ = now + kSayAgain;
  ClientEvent event;
  event.kind = kind_;
  event.message = reason;
  options_.on_event(event);
}

}  // namespace agg
