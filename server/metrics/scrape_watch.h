// Whether those who scrape this process regularly have been told that it stops
// in good order: an end that nobody has seen looks like a crash.
#ifndef AGG_SERVER_METRICS_SCRAPE_WATCH_H_
#define AGG_SERVER_METRICS_SCRAPE_WATCH_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace agg {

// A drain may take milliseconds, and a scrape comes every 15 or 30 s: so the
// process stays until its scrapers have come once more. Of each host the time
// between its last two scrapes is known; one that is late by half of it is
// waited for no longer. Thread-safe.
class ScrapeWatch {
 public:
  // Scrapes that lie further apart are not a monitoring's.
  static constexpr absl::Duration kMaxInterval = absl::Minutes(2);
  // Hosts that are known at a time: the ones that came last.
  static constexpr size_t kMaxHosts = 16;

  // `clock` outlives it.
  explicit ScrapeWatch(const Clock* clock) : clock_(clock) {}

  // A scrape from `from` ("ipv4:10.0.0.1:40") begins. To be called before its
  // text is made. Returns what to call when the text has been sent, before this
  // object's end.
  std::function<void()> OnScrape(const std::string& from);

  // Makes scrapes say from here on that the process stops.
  void BeginStop() { stopping_ = true; }
  bool stopping() const { return stopping_; }

  // Time until when somebody who has not seen the stop is due to come; the
  // past: nobody is.
  absl::Time NextDue() const;
  // Waits until nobody is, but not beyond `deadline`, which is the clock's.
  void AwaitScrapes(absl::Time deadline);

 private:
  struct Scraper {
    absl::Time last;
    absl::Duration interval = absl::ZeroDuration();  // 0: it came once
    bool has_seen = false;                           // that the process stops
  };

  void OnSent(const std::string& host, bool stop_seen);
  absl::Time NextDueLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  std::atomic<bool> stopping_{false};
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Scraper> scrapers_ ABSL_GUARDED_BY(mutex_);  // by host
};

}  // namespace agg

#endif  // AGG_SERVER_METRICS_SCRAPE_WATCH_H_
