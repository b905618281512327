#include "server/metrics/scrape_watch.h"

#include <algorithm>

namespace agg {
namespace {

// Without the port, which differs from scrape to scrape.
std::string HostOf(const std::string& from) {
  return from.substr(0, from.rfind(':'));
}

}  // namespace

std::function<void()> ScrapeWatch::OnScrape(const std::string& from) {
  return [this, host = HostOf(from), stop_seen = stopping()] {
    OnSent(host, stop_seen);
  };
}

void ScrapeWatch::OnSent(const std::string& host, bool stop_seen) {
  const absl::Time now = clock_->Now();
  MutexLock lock(&mutex_);
  const auto [found, is_new] = scrapers_.try_emplace(host);
  Scraper& scraper = found->second;
  if (!is_new) scraper.interval = now - scraper.last;
  scraper.last = now;
  scraper.has_seen = scraper.has_seen || stop_seen;
  if (scrapers_.size() > kMaxHosts) {
    scrapers_.erase(std::min_element(scrapers_.begin(), scrapers_.end(),
                                     [](const auto& a, const auto& b) {
                                       return a.second.last < b.second.last;
                                     }));
  }
  changed_.NotifyAll();
}

absl::Time ScrapeWatch::NextDueLocked() const {
  absl::Time due = absl::InfinitePast();
  for (const auto& [host, scraper] : scrapers_) {
    if (scraper.has_seen || scraper.interval == absl::ZeroDuration() ||
        scraper.interval > kMaxInterval) {
      continue;
    }
    due = std::max(due, scraper.last + 1.5 * scraper.interval);
  }
  return due;
}

absl::Time ScrapeWatch::NextDue() const {
  MutexLock lock(&mutex_);
  return NextDueLocked();
}

void ScrapeWatch::AwaitScrapes(absl::Time deadline) {
  // A clock of a test's own moves while nobody notifies.
  constexpr absl::Duration kPeriod = absl::Milliseconds(20);
  MutexLock lock(&mutex_);
  while (clock_->Now() < std::min(NextDueLocked(), deadline)) {
    changed_.WaitFor(&mutex_, kPeriod);
  }
}

}  // namespace agg
