#include "server/access/audit_trail.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/log.h"

namespace agg {
namespace {

// Above all that can be set: these lines are never dropped.
constexpr LogLevel kAlways{static_cast<int>(LogLevel::kError) + 1};
// What all denials beyond kMaxNewDenials are.
constexpr char kMany[] = "further denials";

void Cut(std::string* text) {
  if (text->size() <= kMaxAuditTextBytes) return;
  text->resize(kMaxAuditTextBytes);
}

void CutTexts(AuditEvent* event) {
  for (std::string* text : {&event->action, &event->who, &event->from,
                            &event->detail, &event->outcome}) {
    Cut(text);
  }
}

// Without the port, which differs from connection to connection.
absl::string_view HostOf(absl::string_view from) {
  if (!absl::StartsWith(from, "ipv4:") && !absl::StartsWith(from, "ipv6:")) {
    return from;
  }
  return from.substr(0, from.rfind(':'));
}

bool Alike(const AuditEvent& a, const AuditEvent& b) {
  return a.who == b.who && a.detail == b.detail && a.outcome == b.outcome &&
         HostOf(a.from) == HostOf(b.from);
}

}  // namespace

AuditTrail::~AuditTrail() {
  MutexLock lock(&mutex_);
  CloseBefore(absl::InfiniteFuture());
}

void AuditTrail::WriteLine(const AuditEvent& event) const {
  const std::string line = AuditLine(event);
  LogLine(kAlways, absl::StrCat("audit: ", line));
  if (write_ != nullptr) write_(line);
}

void AuditTrail::Keep(AuditEvent event, size_t most,
                      std::deque<AuditEvent>* kept) {
  WriteLine(event);
  kept->push_back(std::move(event));
  if (kept->size() <= most) return;
  if (kept == &denials_) {
    if (num_closed_ == 0) CloseOldest();
    --num_closed_;
  }
  kept->pop_front();
}

void AuditTrail::CloseOldest() {
  const AuditEvent& denial = denials_[num_closed_++];
  if (denial.times > 1) WriteLine(denial);
}

void AuditTrail::CloseBefore(absl::Time before) {
  while (num_closed_ < denials_.size() &&
         denials_[num_closed_].time <= before) {
    CloseOldest();
  }
}

void AuditTrail::CloseDenials() {
  MutexLock lock(&mutex_);
  CloseBefore(clock_->Now() - kTogether);
}

void AuditTrail::Note(AuditEvent event) {
  CutTexts(&event);
  MutexLock lock(&mutex_);
  event.time = clock_->Now();
  CloseBefore(event.time - kTogether);
  Keep(std::move(event), kMaxEvents, &events_);
}

bool AuditTrail::CountsWithOthers(const AuditEvent& event) {
  const auto closed =
      denials_.rend() - static_cast<std::ptrdiff_t>(num_closed_);
  const auto alike =
      std::find_if(denials_.rbegin(), closed,
                   [&](const AuditEvent& kept) { return Alike(kept, event); });
  if (alike == closed) return false;
  ++alike->times;
  return true;
}

void AuditTrail::NoteDenial(AuditEvent event) {
  CutTexts(&event);
  event.action = "denial";
  MutexLock lock(&mutex_);
  event.time = clock_->Now();
  CloseBefore(event.time - kTogether);
  if (CountsWithOthers(event)) return;
  if (event.time - window_ >= kTogether) {
    window_ = event.time;
    new_denials_ = 0;
  }
  if (new_denials_ >= kMaxNewDenials) {
    AuditEvent many;
    many.action = event.action;
    many.time = event.time;
    many.outcome = kMany;
    event = std::move(many);
    if (CountsWithOthers(event)) return;
  } else {
    ++new_denials_;
  }
  Keep(std::move(event), kMaxDenials, &denials_);
}

std::vector<AuditEvent> AuditTrail::Last(size_t limit) const {
  std::vector<AuditEvent> all;
  {
    MutexLock lock(&mutex_);
    std::merge(events_.begin(), events_.end(), denials_.begin(), denials_.end(),
               std::back_inserter(all),
               [](const AuditEvent& a, const AuditEvent& b) {
                 return a.time < b.time;
               });
  }
  if (limit > 0 && all.size() > limit) {
    all.erase(all.begin(), all.end() - static_cast<ptrdiff_t>(limit));
  }
  return all;
}

}  // namespace agg
