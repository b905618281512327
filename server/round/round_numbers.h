// The one table of the numbers of a round that people see.
#ifndef AGG_SERVER_ROUND_ROUND_NUMBERS_H_
#define AGG_SERVER_ROUND_ROUND_NUMBERS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/round/round_report.h"
#include "server/round/shard_seconds.h"

namespace agg {

// A phase of a round that is timed.
struct TimedPhase {
  const char* name;
  absl::Duration PhaseDurations::*length;  // as the coordinator saw it
  double ShardSeconds::*shard;             // null: the coordinator's alone
};

// The one table of their names, for metrics, the status page, the trace and the
// round log: in the order in which they run.
inline constexpr std::array<TimedPhase, 7> kTimedPhases = {{
    {"wait", &PhaseDurations::wait, nullptr},
    {"gram", &PhaseDurations::gram, &ShardSeconds::gram},
    {"compensated", &PhaseDurations::compensated, &ShardSeconds::compensated},
    {"decide", &PhaseDurations::decide, nullptr},
    {"norms", &PhaseDurations::norms, &ShardSeconds::norms},
    {"update", &PhaseDurations::update, &ShardSeconds::update},
    {"publish", &PhaseDurations::publish, &ShardSeconds::publish},
}};

// Where a number lies in a report.
class RoundValue {
 public:
  explicit constexpr RoundValue(double RoundReport::*member)
      : report_(member) {}
  explicit constexpr RoundValue(double Decision::*member) : decision_(member) {}
  explicit constexpr RoundValue(double RoundStatistics::*member)
      : statistics_(member) {}
  // Follows from other values of the report, so that nothing stores it.
  explicit constexpr RoundValue(double (*derive)(const RoundReport&))
      : derive_(derive) {}

  double Get(const RoundReport& report) const;
  bool IsDerived() const { return derive_ != nullptr; }
  // REQUIRES: not derived.
  void Set(double value, RoundReport* report) const;

 private:
  double RoundReport::*report_ = nullptr;
  double Decision::*decision_ = nullptr;
  double RoundStatistics::*statistics_ = nullptr;
  double (*derive_)(const RoundReport&) = nullptr;
};

// A number is called by its `name`; null: it is not there.
inline constexpr const char* kByName = "";

// What each outlet calls a number. A new number is in all of them by its name.
struct RoundOutlets {
  const char* metric = kByName;  // Prometheus, after "aggserver_"
  const char* page = kByName;    // key in the rounds of /status.json
  const char* tile = kByName;    // label on the status page; needs `page`
  const char* report = kByName;  // label in agg_report's list
  const char* trace = kByName;   // argument of a round in /trace.json
  const char* step = kByName;    // key in agg_combine's lines
};

// Which rounds set the number that is shown.
enum class SetBy : uint8_t {
  kApplied,  // the last applied round; undefined before it
  kEvery,    // the last round, skipped or not; undefined before it
  kSum,      // as kApplied, but a sum over the rounds: 0 before the first one
};

struct RoundNumber {
  const char* name;  // also in the round log
  const char* unit;  // in words; empty: a plain number
  const char* help;  // one sentence
  RoundValue value;
  RoundOutlets outlets = {};
  SetBy set_by = SetBy::kApplied;
  // Where the selected tensors have values of their own; or null.
  double SegmentReport::*tensor = nullptr;
};

// The table. Outlets show numbers in its order.
absl::Span<const RoundNumber> RoundNumbers();

// The numbers of `report`, as RoundNumbers(). Undefined values are NaN.
std::vector<double> ReadRoundNumbers(const RoundReport& report);

// What `number` is called in one outlet; empty: it is not there. Labels have
// spaces where names have underscores.
std::string NameIn(const RoundNumber& number,
                   const char* RoundOutlets::*outlet);
std::string LabelIn(const RoundNumber& number,
                    const char* RoundOutlets::*outlet);

}  // namespace agg

#endif  // AGG_SERVER_ROUND_ROUND_NUMBERS_H_
