// The alerts of deploy/prometheus/rules.yml, as far as one look at a job's
// processes can tell them: what Prometheus would get of each, and the rules'
// conditions with their numbers.
#ifndef AGG_WORKER_CLIENT_TOOLS_DOCTOR_ALERTS_H_
#define AGG_WORKER_CLIENT_TOOLS_DOCTOR_ALERTS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace agg {

struct Sample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0.0;
};

// The samples of a text in Prometheus' format 0.0.4, in its order. Lines that
// are none are left out.
std::vector<Sample> ParseMetrics(absl::string_view text);

struct ShardMetrics {
  bool answers = false;
  absl::Time now;               // by its own clock, when it gave the samples
  std::vector<Sample> samples;  // none: it does not give any
};

struct AlertFacts {
  std::vector<ShardMetrics> shards;  // by ordinal
};

// One shard's value; NaN if there is none. `label`: "phase=open", or "".
double ValueOf(const ShardMetrics& shard, absl::string_view name,
               absl::string_view label = "");
// The sum of all the shard's samples of that name and label, NaNs left out.
double SumOf(const ShardMetrics& shard, absl::string_view name,
             absl::string_view label = "");

using Reasons = std::vector<std::string>;
using Numbers = std::vector<double>;

struct AlertRule {
  const char* name;
  const char* severity;
  const char* hold;  // for how long it has to be so: "1m"
  // What the rule's expression has, from its beginning to its end, without
  // windows: a test compares them, and so the conditions below use no others.
  Numbers numbers;
  // Why it would fire, a reason for each shard, worker or file; none: it would
  // not. Null: one look cannot tell, since the rule asks for a rate.
  Reasons (*fires)(const AlertFacts& facts, const Numbers& numbers) = nullptr;
  // The counter ("name{label=value}") whose rate the rule asks for, and which
  // stays 0 where it cannot fire. Null: there is no such one.
  const char* counter = nullptr;
};

// A line for each alert of rules.yml, in its order.
const std::vector<AlertRule>& AlertRules();

// A recorded rule that alerts are made of.
struct RecordRule {
  const char* name;
  Numbers numbers;
};
const std::vector<RecordRule>& RecordRules();

struct Alert {
  const AlertRule* rule;
  std::string why;
  // It has happened since the process started; whether within the time that
  // the rule looks at is not known.
  bool perhaps = false;
};

// Those that would fire, in the order of the rules.
std::vector<Alert> JudgeAlerts(const AlertFacts& facts);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_DOCTOR_ALERTS_H_
