// What `aggctl doctor` finds: what is wrong with a job, and what to do about
// it, from what its processes have answered. Pure.
#ifndef AGG_WORKER_CLIENT_TOOLS_DOCTOR_H_
#define AGG_WORKER_CLIENT_TOOLS_DOCTOR_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "proto/admin.pb.h"
#include "proto/agg.pb.h"
#include "worker_client/tools/doctor_alerts.h"

namespace agg {

enum class Severity {
  kError,    // the job stands still, or is about to lose something
  kWarning,  // it goes on, and should be looked at
  kNote,     // worth knowing; nothing is wrong
};

struct Finding {
  Severity severity = Severity::kNote;
  std::string what;
  std::string remedy;  // what to do about it; "": nothing
};

// Counts for `ok`, and sorts: worst first, else as they were found.
class Findings {
 public:
  void Add(Severity severity, std::string what, std::string remedy = "");
  // Those of another one behind these.
  void Add(const Findings& others);
  std::vector<Finding> Sorted() const;
  int Count(Severity severity) const;
  // Whether all are notes.
  bool ok() const;

 private:
  std::vector<Finding> findings_;
};

// "1 error, 2 warnings"; "nothing is wrong" if there is neither.
std::string Summary(const Findings& findings);
// A line for each, and "-> what to do" behind it, or behind the last one of
// several that have the same remedy.
std::string FindingsText(const Findings& findings);
// "findings" of the JSON: a list of objects; with a line's end behind it.
std::string FindingsJson(const Findings& findings);

struct ShardAnswer {
  std::string address;
  std::string error;  // why it has not answered; "": it has
  absl::optional<v1::GetVersionReply> version;
  absl::optional<v1::DescribeReply> description;
  std::string no_description;  // why it gives none, though it answers
  // Its clock less this machine's; wrong by less than the other one.
  absl::Duration clock_offset;
  absl::Duration clock_error;
};

struct DoctorFacts {
  absl::Time now;
  absl::Time asked_at;              // when the status came
  std::vector<ShardAnswer> shards;  // by ordinal
  absl::optional<v1::StatusReply> status;
  std::string no_status;  // why shard 0 gives none
  absl::optional<v1::RestoreReply> checkpoints;
  std::string no_checkpoints;  // why it does not say which there are
  // When the certificate ends that this aggctl shows; InfiniteFuture: none.
  absl::Time own_certificate = absl::InfiniteFuture();
};

// Clocks that differ by more than this are named: certificates and alerts are
// judged by them.
inline constexpr absl::Duration kMaxClockOffset = absl::Seconds(2);

struct Diagnosis {
  DoctorFacts facts;
  Findings findings;  // alerts are among them
  std::vector<Alert> alerts;
};

Diagnosis Diagnose(DoctorFacts facts);

// One page: findings, then a table of shards, and what is waited for, saved
// and used.
std::string DiagnosisText(const Diagnosis& diagnosis);
// One line: {"job", "time_seconds", "findings", "alerts", "shards",
// "checkpoints", "waiting"}.
std::string DiagnosisJson(const Diagnosis& diagnosis);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_DOCTOR_H_
