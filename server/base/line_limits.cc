#include "server/base/line_limits.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace agg {

LineLimits::Reason* LineLimits::Find(absl::string_view reason,
                                     const LogRecord& record, absl::Time now) {
  const auto found = reasons_.find(reason);
  if (found != reasons_.end()) return &found->second;
  if (reasons_.size() >= kMaxReasons) {
    for (auto it = reasons_.begin(); it != reasons_.end();) {
      const bool over =
          it->second.num_held == 0 && now - it->second.written >= kInterval;
      it = over ? reasons_.erase(it) : std::next(it);
    }
  }
  const bool full = reasons_.size() >= kMaxReasons;
  const auto [entry, is_new] = reasons_.try_emplace(
      full ? absl::StrCat(record.file, ":", record.line) : std::string(reason));
  if (is_new) entry->second.written = absl::InfinitePast();
  return &entry->second;
}

bool LineLimits::Take(absl::string_view reason, LogRecord* record,
                      absl::Time now, absl::Time said) {
  Reason* const known = Find(reason, *record, now);
  if (now - known->written < kInterval) {
    known->newest = {*record, said};
    ++known->num_held;
    return false;
  }
  record->num_held_back = std::exchange(known->num_held, 0);
  num_dropped_ += record->num_held_back;
  known->newest = HeldLine();
  known->written = now;
  return true;
}

std::vector<HeldLine> LineLimits::TakeDue(absl::Time now) {
  std::vector<HeldLine> due;
  for (auto it = reasons_.begin(); it != reasons_.end();) {
    Reason& reason = it->second;
    if (now - reason.written < kInterval) {
      ++it;
      continue;
    }
    const bool is_held = reason.num_held > 0;
    if (is_held) {
      reason.newest.record.num_held_back = reason.num_held - 1;
      num_dropped_ += reason.newest.record.num_held_back;
      due.push_back(std::move(reason.newest));
    }
    if (is_held && now != absl::InfiniteFuture()) {
      reason = Reason();
      reason.written = now;
      ++it;
    } else {
      it = reasons_.erase(it);
    }
  }
  std::stable_sort(
      due.begin(), due.end(),
      [](const HeldLine& a, const HeldLine& b) { return a.said < b.said; });
  return due;
}

std::string WithoutNumbers(absl::string_view text) {
  std::string result;
  bool in_number = false;
  for (const char c : text) {
    const bool digit = absl::ascii_isdigit(static_cast<unsigned char>(c));
    if (!digit) result += c;
    if (digit && !in_number) result += '#';
    in_number = digit;
  }
  return result;
}

}  // namespace agg
