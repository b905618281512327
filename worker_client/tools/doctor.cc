// A function for each thing that may be wrong; Diagnose lists them.
#include "worker_client/tools/doctor.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "server/base/address.h"
#include "server/base/json.h"
#include "server/base/utf8.h"
#include "worker_client/tools/text_table.h"

namespace agg {

void Findings::Add(Severity severity, std::string what, std::string remedy) {
  findings_.push_back({severity, std::move(what), std::move(remedy)});
}

void Findings::Add(const Findings& others) {
  findings_.insert(findings_.end(), others.findings_.begin(),
                   others.findings_.end());
}

std::vector<Finding> Findings::Sorted() const {
  std::vector<Finding> sorted = findings_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Finding& a, const Finding& b) {
                     return a.severity < b.severity;
                   });
  return sorted;
}

int Findings::Count(Severity severity) const {
  return static_cast<int>(
      std::count_if(findings_.begin(), findings_.end(),
                    [&](const Finding& f) { return f.severity == severity; }));
}

bool Findings::ok() const {
  return Count(Severity::kError) + Count(Severity::kWarning) == 0;
}

namespace {

const char* Word(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    default:
      return "note";
  }
}

std::string Plural(int number, absl::string_view what) {
  return absl::StrCat(number, " ", what, number == 1 ? "" : "s");
}

Json JsonOf(const Findings& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings.Sorted()) {
    list.push_back({{"severity", Word(finding.severity)},
                    {"what", ValidUtf8(finding.what)},
                    {"remedy", ValidUtf8(finding.remedy)}});
  }
  return list;
}

std::string Line(const Json& json) { return ShownInJson(json.dump()) + "\n"; }

}  // namespace

std::string Summary(const Findings& findings) {
  if (findings.ok()) return "nothing is wrong";
  std::vector<std::string> words;
  const int errors = findings.Count(Severity::kError);
  const int warnings = findings.Count(Severity::kWarning);
  if (errors > 0) words.push_back(Plural(errors, "error"));
  if (warnings > 0) words.push_back(Plural(warnings, "warning"));
  return absl::StrJoin(words, ", ");
}

std::string FindingsText(const Findings& findings) {
  const std::vector<Finding> sorted = findings.Sorted();
  std::string text;
  for (size_t f = 0; f < sorted.size(); ++f) {
    const std::string& remedy = sorted[f].remedy;
    absl::StrAppend(&text, absl::StrFormat("%-8s", Word(sorted[f].severity)),
                    " ", Shown(sorted[f].what), "\n");
    // Behind the last one of those that it is for.
    const bool again = f + 1 < sorted.size() && sorted[f + 1].remedy == remedy;
    if (!remedy.empty() && !again) {
      absl::StrAppend(&text, "         -> ", Shown(remedy), "\n");
    }
  }
  return text;
}

std::string FindingsJson(const Findings& findings) {
  return Line({{"findings", JsonOf(findings)}});
}

namespace {

// "shard 1 (host:port)".
std::string Name(const DoctorFacts& facts, size_t shard) {
  return absl::StrCat("shard ", shard, " (", facts.shards[shard].address, ")");
}

std::string Long(absl::Duration time) {
  const absl::Duration unit = absl::AbsDuration(time) < absl::Minutes(1)
                                  ? absl::Milliseconds(100)
                                  : absl::Seconds(1);
  return absl::FormatDuration(absl::Trunc(time, unit));
}

bool Answers(const ShardAnswer& shard) { return shard.error.empty(); }

AlertFacts MetricsOf(const DoctorFacts& facts) {
  AlertFacts metrics;
  for (const ShardAnswer& shard : facts.shards) {
    ShardMetrics one;
    one.answers = Answers(shard);
    if (shard.description.has_value()) {
      // Its times are those of its clock.
      one.now =
          absl::UnixEpoch() + absl::Seconds(shard.description->time_seconds());
      one.samples = ParseMetrics(shard.description->metrics());
    }
    metrics.shards.push_back(std::move(one));
  }
  return metrics;
}

void LookForShards(const DoctorFacts& facts, Findings* findings) {
  for (size_t s = 0; s < facts.shards.size(); ++s) {
    const ShardAnswer& shard = facts.shards[s];
    if (!Answers(shard)) {
      findings->Add(
          Severity::kError,
          absl::StrCat(Name(facts, s), " does not answer: ", shard.error),
          "if its process has ended, start it again with the same command, and "
          "nothing else: its last log lines say why it ended. If it runs, this "
          "machine does not reach it: look at its address, --bind and the "
          "network");
    } else if (!shard.description.has_value()) {
      findings->Add(
          Severity::kWarning,
          absl::StrCat(Name(facts, s),
                       " cannot be looked at: ", shard.no_description),
          "ask with a token of the role admin (--token-file), a server of "
          "this release and without --admin=false; its configuration, memory, "
          "certificates and alerts are not judged here");
    }
  }
}

// That each process is the one that the addresses say.
void LookForStrangers(const DoctorFacts& facts, Findings* findings) {
  const v1::GetVersionReply* first = nullptr;
  for (size_t s = 0; s < facts.shards.size(); ++s) {
    if (!facts.shards[s].version.has_value()) continue;
    const v1::GetVersionReply& version = *facts.shards[s].version;
    if (version.ordinal() != static_cast<int>(s)) {
      findings->Add(Severity::kError,
                    absl::StrCat("at the address of ", Name(facts, s),
                                 " is shard ", version.ordinal()),
                    "start each shard with the --shard and the port that "
                    "`shards` of the configuration gives it");
    }
    if (first == nullptr) first = &version;
    if (version.job() != first->job()) {
      findings->Add(
          Severity::kError,
          absl::StrCat("at the address of ", Name(facts, s), " is the job \"",
                       version.job(), "\", and not \"", first->job(), "\""),
          "give each job addresses of its own");
    }
    if (version.version() != first->version() ||
        version.protocol_version() != first->protocol_version()) {
      findings->Add(
          Severity::kWarning,
          absl::StrCat(Name(facts, s), " is of release ", version.version(),
                       ", another one of ", first->version()),
          "finish the upgrade: shards talk to those of their own "
          "release alone");
    }
  }
}

void LookAtPhase(const v1::StatusReply& status, Findings* findings) {
  if (!status.recovering().empty()) {
    findings->Add(Severity::kError,
                  absl::StrCat("the job is between two epochs, and waits: ",
                               status.recovering()),
                  "bring back what it waits for, with the same command; the "
                  "job goes on by itself");
  } else if (status.phase() == "shard_lost" ||
             status.phase() == "waiting_for_shards") {
    findings->Add(
        Severity::kError,
        absl::StrCat("the job waits for its shards (", status.phase(), ")",
                     status.message().empty() ? "" : ": ", status.message()),
        "start the shards that do not answer; the log of shard 0 "
        "says which it misses");
  } else if (status.phase() == "draining") {
    findings->Add(Severity::kWarning, "shard 0 is about to end (draining)",
                  "if nobody asked for that: see aggctl audit");
  } else if (!status.message().empty()) {
    findings->Add(
        status.phase() == "finished" ? Severity::kNote : Severity::kWarning,
        absl::StrCat("the job is ", status.phase(),
                     " and says: ", status.message()),
        status.phase() == "finished" ? "aggctl resume lets it go on" : "");
  }
}

void LookAtWorkers(const DoctorFacts& facts, Findings* findings) {
  const v1::StatusReply& status = *facts.status;
  if (status.below_floor_seconds() > 0.0) {
    findings->Add(
        Severity::kWarning,
        absl::StrCat(status.workers_size(), " workers are in, and at least ",
                     status.min_workers(), " are needed, since ",
                     Since(status.below_floor_seconds(), facts.asked_at),
                     " UTC"),
        "start the missing workers again with their ranks");
  } else if (status.workers_size() < status.expected_workers() &&
             status.phase() != "finished") {
    std::set<int> present;
    for (const v1::WorkerStatus& worker : status.workers()) {
      if (worker.rank() >= 0 && worker.rank() < status.expected_workers()) {
        present.insert(worker.rank());
      }
    }
    // The number is what a reply says, and may be any.
    std::vector<int> ranks;
    for (int r = 0; r < status.expected_workers() && ranks.size() < 10; ++r) {
      if (present.count(r) == 0) ranks.push_back(r);
    }
    const size_t more = static_cast<size_t>(status.expected_workers()) -
                        present.size() - ranks.size();
    findings->Add(
        Severity::kNote,
        absl::StrCat(status.workers_size(), " of ", status.expected_workers(),
                     " workers are in; nobody is rank ",
                     absl::StrJoin(ranks, ", "),
                     more == 0 ? "" : absl::StrCat(" and ", more, " more")),
        "start them; the logs of those that were in say why they left");
  }
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.committed() || worker.waited_for_seconds() <= 0.0) continue;
    findings->Add(
        Severity::kNote,
        absl::StrCat("rank ", worker.rank(), " (", worker.client(),
                     ") is waited for since ",
                     Since(worker.waited_for_seconds(), facts.asked_at),
                     " UTC, ", Seconds(worker.waited_for_seconds()),
                     worker.attending() ? "" : "; it is not connected"),
        worker.attending() ? "" : "its session ends with its lease");
  }
  if (status.differing_ranks_size() > 0) {
    findings->Add(Severity::kWarning,
                  absl::StrCat("the replicas of ranks ",
                               absl::StrJoin(status.differing_ranks(), ", "),
                               " have drifted apart from the others'"),
                  "load one checkpoint on all of them");
  }
}

void LookAtRules(const v1::StatusReply& status, Findings* findings) {
  // Another rule's rounds are none of theirs: a shadow's, or one that was set
  // before.
  const bool decides = status.combination().rule() == "external";
  for (const v1::RuleProcess& rule : status.rule_processes()) {
    if (rule.connected()) continue;
    findings->Add(
        decides ? Severity::kWarning : Severity::kNote,
        absl::StrCat(
            "no process decides the external rule \"", rule.name(), "\"",
            rule.client().empty()
                ? ""
                : absl::StrCat(" any more (it was ", rule.client(), ")"),
            decides ? ": rounds have its fallback"
                    : ": as a shadow it has no numbers"),
        absl::StrCat("start it: agg.serve_rule(.., name=\"", rule.name(),
                     "\")"));
  }
}

void LookAtStatus(const DoctorFacts& facts, Findings* findings) {
  if (!facts.status.has_value()) {
    findings->Add(Severity::kError,
                  absl::StrCat("shard 0 gives no status: ", facts.no_status),
                  "start shard 0; phase, workers, checkpoints and the job's "
                  "alerts are not judged here");
    return;
  }
  LookAtPhase(*facts.status, findings);
  LookAtWorkers(facts, findings);
  LookAtRules(*facts.status, findings);
}

using Fields = std::map<std::string, const v1::ConfigField*>;

Fields FieldsOf(const v1::DescribeReply& description) {
  Fields fields;
  for (const v1::ConfigField& field : description.config()) {
    fields[field.path()] = &field;
  }
  return fields;
}

// The value, or that it is not there.
std::string ValueIn(const Fields& fields, const std::string& path) {
  const auto found = fields.find(path);
  return found == fields.end() ? "left out" : found->second->value();
}

bool IsCompared(const Fields& fields, const std::string& path) {
  const auto found = fields.find(path);
  return found != fields.end() && found->second->compared();
}

// A line for each field that another shard has otherwise than the first one
// that says what it has. Where the shards are is told by shard 0, so that
// another list is worth a note.
void LookAtConfigurations(const DoctorFacts& facts, Findings* findings) {
  size_t first = 0;
  while (first < facts.shards.size() &&
         !facts.shards[first].description.has_value()) {
    ++first;
  }
  if (first == facts.shards.size()) return;
  const Fields ours = FieldsOf(*facts.shards[first].description);
  for (size_t s = first + 1; s < facts.shards.size(); ++s) {
    if (!facts.shards[s].description.has_value()) continue;
    const Fields theirs = FieldsOf(*facts.shards[s].description);
    std::set<std::string> paths;
    for (const auto& [path, field] : ours) paths.insert(path);
    for (const auto& [path, field] : theirs) paths.insert(path);
    for (const std::string& path : paths) {
      const std::string here = ValueIn(ours, path);
      const std::string there = ValueIn(theirs, path);
      if (here == there) continue;
      const bool compared = IsCompared(ours, path) || IsCompared(theirs, path);
      if (!compared && !absl::StartsWith(path, "shards[")) continue;
      findings->Add(
          compared ? Severity::kError : Severity::kNote,
          absl::StrCat("configurations differ: ", path, " is ", here, " on ",
                       Name(facts, first), " and ", there, " on ",
                       Name(facts, s)),
          compared ? "start all shards with one file: with two the job does "
                     "not begin"
                   : "");
    }
  }
}

// "" if the field is not there.
std::string Configured(const DoctorFacts& facts, const std::string& path) {
  if (facts.shards.empty() || !facts.shards[0].description.has_value()) {
    return "";
  }
  for (const v1::ConfigField& field : facts.shards[0].description->config()) {
    if (field.path() == path) return field.value();
  }
  return "";
}

void LookAtClocks(const DoctorFacts& facts, Findings* findings) {
  for (size_t s = 0; s < facts.shards.size(); ++s) {
    const ShardAnswer& shard = facts.shards[s];
    if (!shard.description.has_value()) continue;
    if (absl::AbsDuration(shard.clock_offset) - shard.clock_error <=
        kMaxClockOffset) {
      continue;
    }
    findings->Add(
        Severity::kWarning,
        absl::StrCat(
            "the clock of ", Name(facts, s), " is ",
            Long(absl::AbsDuration(shard.clock_offset)),
            shard.clock_offset > absl::ZeroDuration() ? " ahead of" : " behind",
            " this machine's"),
        "set both by NTP: certificates, alerts and the times of logs are "
        "judged by them; rounds and leases are not");
  }
}

// What the processes' numbers say of limits that callers have met.
void LookAtLimits(const DoctorFacts& facts, const AlertFacts& metrics,
                  Findings* findings) {
  static constexpr const char* kLimits[] = {
      "max_sessions",     "max_streams", "max_waiting_calls",
      "joins_per_second", "other_calls", "max_bytes_in_flight",
      "max_connections"};
  for (size_t s = 0; s < metrics.shards.size(); ++s) {
    for (const char* limit : kLimits) {
      const double denied = SumOf(metrics.shards[s], "aggserver_denied_total",
                                  absl::StrCat("reason=", limit));
      if (!(denied > 0)) continue;
      findings->Add(
          Severity::kWarning,
          absl::StrCat("the limit ", limit, " of ", Name(facts, s),
                       " has refused ", denied, " calls since its start"),
          "aggctl audit says whose; raise it in security.limits if they are "
          "the job's own");
    }
  }
  if (!facts.status.has_value()) return;
  const v1::StatusReply& status = *facts.status;
  int64_t most = 0;
  if (absl::SimpleAtoi(Configured(facts, "max_workers"), &most) &&
      status.workers_size() >= most && most > status.expected_workers()) {
    findings->Add(Severity::kNote,
                  absl::StrCat("all ", most, " ranks (max_workers) are taken"),
                  "another worker is refused");
  }
  int64_t rounds = 0;
  if (absl::SimpleAtoi(Configured(facts, "max_rounds"), &rounds) &&
      rounds > 0 && status.phase() != "finished") {
    findings->Add(Severity::kNote,
                  absl::StrCat("the job ends at max_rounds ", rounds,
                               ", and is at round ", status.round()));
  }
}

void LookAtCheckpoints(const DoctorFacts& facts, Findings* findings) {
  if (!facts.status.has_value() || !facts.status->has_checkpoint()) return;
  const v1::CheckpointStatus& checkpoint = facts.status->checkpoint();
  if (!checkpoint.last_error().empty()) {
    findings->Add(
        Severity::kWarning,
        absl::StrCat("the last checkpoint failed: ", checkpoint.last_error()),
        "make room, or mend the folder; then aggctl checkpoint shows "
        "whether it works");
  }
  if (!facts.no_checkpoints.empty()) {
    findings->Add(Severity::kWarning,
                  absl::StrCat("which checkpoints there are is not known: ",
                               facts.no_checkpoints));
  }
  if (!facts.checkpoints.has_value()) return;
  for (const auto& found : facts.checkpoints->found()) {
    if (found.missing().empty()) continue;
    findings->Add(
        Severity::kWarning,
        absl::StrCat("checkpoint ", found.made(), "-", found.version(),
                     " is not complete: ", found.missing()),
        "put back what is missing, if it is to be gone on from");
  }
}

// A worker on the shard's host reaches it by memory, or a Unix socket at least.
void LookAtTransports(const DoctorFacts& facts, const AlertFacts& metrics,
                      Findings* findings) {
  for (size_t s = 0; s < metrics.shards.size(); ++s) {
    const double staged =
        SumOf(metrics.shards[s], "aggserver_staged_buffers_total");
    if (!(staged > 0)) continue;
    findings->Add(Severity::kWarning,
                  absl::StrCat(Name(facts, s), " copies ", staged,
                               " shared buffers by way of staging memory"),
                  "raise the limit of locked memory (ulimit -l), and restart "
                  "the shard");
  }
  if (!facts.status.has_value()) return;
  const bool all_local = std::all_of(
      facts.shards.begin(), facts.shards.end(), [](const ShardAnswer& shard) {
        const absl::StatusOr<Address> address = ParseAddress(shard.address);
        return address.ok() && IsLoopback(address->host);
      });
  const bool sockets = Configured(facts, "unix_socket") != "\"off\"";
  const bool memory = Configured(facts, "shared_memory") == "\"on\"";
  for (const v1::WorkerStatus& worker : facts.status->workers()) {
    const std::string& transports = worker.transports();
    const bool tcp = sockets && absl::StrContains(transports, "tcp");
    const bool socket = memory && absl::StrContains(transports, "unix");
    if (!all_local || (!tcp && !socket)) continue;
    findings->Add(
        Severity::kNote,
        absl::StrCat("rank ", worker.rank(), " (", worker.client(),
                     ") is on the shards' host and sends by ", transports),
        "another user or network namespace, or a client that has it switched "
        "off; rounds take longer");
  }
}

void LookAtOwnCertificate(const DoctorFacts& facts, Findings* findings) {
  const absl::Duration left = facts.own_certificate - facts.now;
  // As AggCertificateExpires has it for those of shards.
  for (const AlertRule& rule : AlertRules()) {
    if (absl::string_view(rule.name) != "AggCertificateExpires") continue;
    const Numbers& n = rule.numbers;
    if (left < absl::Seconds(n[0] * n[1] * n[2])) {
      findings->Add(Severity::kWarning,
                    absl::StrCat("the certificate that this aggctl shows ends "
                                 "in ",
                                 Long(left)),
                    "renew it (deploy/docs/security.md, TLS)");
    }
  }
}

// The runbook's anchor is the alert's name in small letters.
void AddAlerts(const std::vector<Alert>& alerts, Findings* findings) {
  for (const Alert& alert : alerts) {
    const absl::string_view severity = alert.rule->severity;
    const std::string runbook =
        absl::StrCat("deploy/prometheus/README.md, ", alert.rule->name);
    if (alert.perhaps) {
      findings->Add(Severity::kNote,
                    absl::StrCat(alert.rule->name, " (", severity,
                                 ") fires if it was lately: ", alert.why),
                    runbook);
      continue;
    }
    findings->Add(severity == "critical"  ? Severity::kError
                  : severity == "warning" ? Severity::kWarning
                                          : Severity::kNote,
                  absl::StrCat(alert.rule->name, " (", severity,
                               ") fires when it has been so for ",
                               alert.rule->hold, ": ", alert.why),
                  runbook);
  }
}

}  // namespace

Diagnosis Diagnose(DoctorFacts facts) {
  Diagnosis diagnosis;
  diagnosis.facts = std::move(facts);
  const DoctorFacts& seen = diagnosis.facts;
  const AlertFacts metrics = MetricsOf(seen);
  diagnosis.alerts = JudgeAlerts(metrics);
  Findings* const findings = &diagnosis.findings;
  LookForShards(seen, findings);
  LookAtConfigurations(seen, findings);
  LookForStrangers(seen, findings);
  LookAtStatus(seen, findings);
  LookAtCheckpoints(seen, findings);
  LookAtLimits(seen, metrics, findings);
  LookAtOwnCertificate(seen, findings);
  LookAtClocks(seen, findings);
  LookAtTransports(seen, metrics, findings);
  AddAlerts(diagnosis.alerts, findings);
  return diagnosis;
}

// As text and as JSON: the same things in the same order.

namespace {

std::string JobOf(const DoctorFacts& facts) {
  for (const ShardAnswer& shard : facts.shards) {
    if (shard.version.has_value()) return shard.version->job();
  }
  return facts.status.has_value() ? facts.status->job() : "";
}

// What a shard's table and JSON say of its numbers; NaN: not known.
struct ShardNumbers {
  double version = 0, planned = 0, resident = 0, budget = 0;
  double certificate = 0, client_ca = 0;  // Unix time
};

ShardNumbers NumbersOf(const ShardMetrics& shard) {
  constexpr char kExpiry[] = "aggserver_certificate_expiry_timestamp_seconds";
  ShardNumbers numbers;
  numbers.version = ValueOf(shard, "aggserver_version");
  numbers.planned = ValueOf(shard, "aggserver_memory_planned_bytes");
  numbers.resident = ValueOf(shard, "aggserver_memory_resident_bytes");
  numbers.budget = ValueOf(shard, "aggserver_memory_budget_bytes");
  numbers.certificate = ValueOf(shard, kExpiry, "file=certificate");
  numbers.client_ca = ValueOf(shard, kExpiry, "file=client_ca");
  return numbers;
}

std::string Share(double part, double whole) {
  const double share = part / whole;
  return std::isfinite(share) ? absl::StrFormat("%.0f%%", 100 * share) : "";
}

std::string Day(double unix_seconds) {
  if (!std::isfinite(unix_seconds)) return "";
  return absl::FormatTime("%Y-%m-%d %H:%M",
                          absl::UnixEpoch() + absl::Seconds(unix_seconds),
                          absl::UTCTimeZone());
}

std::string ClockText(const ShardAnswer& shard) {
  if (!shard.description.has_value()) return "";
  return absl::StrFormat("%+.3fs", absl::ToDoubleSeconds(shard.clock_offset));
}

std::string ShardsText(const DoctorFacts& facts) {
  TextTable table({{"SHARD", true},
                   {"ADDRESS"},
                   {"RELEASE"},
                   {"CONFIGURATION"},
                   {"VERSION", true},
                   {"CLOCK", true},
                   {"PLANNED", true},
                   {"RESIDENT", true},
                   {"CERTIFICATE ENDS"},
                   {"CLIENT CA ENDS"}});
  const AlertFacts metrics = MetricsOf(facts);
  for (size_t s = 0; s < facts.shards.size(); ++s) {
    const ShardAnswer& shard = facts.shards[s];
    const ShardNumbers numbers = NumbersOf(metrics.shards[s]);
    const bool known = shard.version.has_value();
    table.AddRow(
        {absl::StrCat(s), shard.address, known ? shard.version->version() : "",
         known ? shard.version->fingerprint() : "",
         std::isnan(numbers.version) ? "" : absl::StrCat(numbers.version),
         ClockText(shard), Share(numbers.planned, numbers.budget),
         Share(numbers.resident, numbers.budget), Day(numbers.certificate),
         Day(numbers.client_ca)});
  }
  return table.ToString();
}

std::string CheckpointsText(const DoctorFacts& facts) {
  if (!facts.checkpoints.has_value()) return "";
  std::string text = "\n";
  for (const auto& found : facts.checkpoints->found()) {
    absl::StrAppend(&text, "checkpoint ", found.made(), "-", found.version(),
                    ": ",
                    found.missing().empty()
                        ? absl::StrCat("complete: aggctl restore ",
                                       found.made(), "-", found.version())
                        : Shown(found.missing()),
                    "\n");
  }
  if (facts.checkpoints->found().empty()) {
    absl::StrAppend(&text, "no shard sees a sealed checkpoint\n");
  }
  if (!facts.checkpoints->text().empty()) {
    absl::StrAppend(&text, "a restart of all shards: ",
                    Shown(facts.checkpoints->text()), "\n");
  }
  return text;
}

// How bytes travel, and how many commits were calls of their own.
std::string TransportsText(const DoctorFacts& facts) {
  const AlertFacts metrics = MetricsOf(facts);
  if (metrics.shards.empty()) return "";
  std::vector<std::string> links;
  for (const Sample& sample : metrics.shards[0].samples) {
    if (sample.name == "aggserver_worker_links" && sample.value > 0) {
      const auto transport = sample.labels.find("transport");
      links.push_back(absl::StrCat(
          sample.value, " by ",
          transport == sample.labels.end() ? "?" : transport->second));
    }
  }
  if (links.empty()) return "";
  return absl::StrCat(
      "\nlinks of workers and shards: ", absl::StrJoin(links, ", "), "; ",
      SumOf(metrics.shards[0], "aggserver_grpc_calls_total",
            "method=agg.v1.Coordinator/Commit"),
      " commits by a call of their own, the others in one trip with their "
      "gradients\n");
}

}  // namespace

std::string DiagnosisText(const Diagnosis& diagnosis) {
  const DoctorFacts& facts = diagnosis.facts;
  const std::string findings = FindingsText(diagnosis.findings);
  return absl::StrCat(
      Shown(JobOf(facts)), ": ", Summary(diagnosis.findings), " (",
      Plural(static_cast<int>(facts.shards.size()), "shard"), " asked at ",
      Clock(facts.now), " UTC)\n\n", findings, findings.empty() ? "" : "\n",
      ShardsText(facts), CheckpointsText(facts), TransportsText(facts));
}

namespace {

Json ShardsJson(const DoctorFacts& facts) {
  const AlertFacts metrics = MetricsOf(facts);
  Json list = Json::array();
  for (size_t s = 0; s < facts.shards.size(); ++s) {
    const ShardAnswer& shard = facts.shards[s];
    const ShardNumbers numbers = NumbersOf(metrics.shards[s]);
    Json one = {{"ordinal", s},
                {"address", ValidUtf8(shard.address)},
                {"error", ValidUtf8(shard.error)}};
    if (shard.version.has_value()) {
      one["release"] = shard.version->version();
      one["fingerprint"] = shard.version->fingerprint();
    }
    if (shard.description.has_value()) {
      one["clock_offset_seconds"] =
          RoundedNumber(absl::ToDoubleSeconds(shard.clock_offset));
      one["version"] = ExactNumber(numbers.version);
      one["memory_planned_bytes"] = ExactNumber(numbers.planned);
      one["memory_resident_bytes"] = ExactNumber(numbers.resident);
      one["memory_budget_bytes"] = ExactNumber(numbers.budget);
      one["certificate_ends_seconds"] = ExactNumber(numbers.certificate);
      one["client_ca_ends_seconds"] = ExactNumber(numbers.client_ca);
    }
    list.push_back(std::move(one));
  }
  return list;
}

Json AlertsJson(const std::vector<Alert>& alerts) {
  Json list = Json::array();
  for (const Alert& alert : alerts) {
    list.push_back({{"alert", alert.rule->name},
                    {"severity", alert.rule->severity},
                    {"for", alert.rule->hold},
                    {"why", ValidUtf8(alert.why)},
                    {"perhaps", alert.perhaps}});
  }
  return list;
}

Json CheckpointsJson(const DoctorFacts& facts) {
  Json list = Json::array();
  if (!facts.checkpoints.has_value()) return list;
  for (const auto& found : facts.checkpoints->found()) {
    list.push_back({{"made", found.made()},
                    {"version", found.version()},
                    {"missing", ValidUtf8(found.missing())}});
  }
  return list;
}

Json WaitingJson(const DoctorFacts& facts) {
  Json list = Json::array();
  if (!facts.status.has_value()) return list;
  for (const v1::WorkerStatus& worker : facts.status->workers()) {
    if (worker.committed() || worker.waited_for_seconds() <= 0.0) continue;
    list.push_back({{"rank", worker.rank()},
                    {"client", ValidUtf8(worker.client())},
                    {"seconds", RoundedNumber(worker.waited_for_seconds())}});
  }
  return list;
}

}  // namespace

std::string DiagnosisJson(const Diagnosis& diagnosis) {
  const DoctorFacts& facts = diagnosis.facts;
  return Line({{"job", ValidUtf8(JobOf(facts))},
               {"time_seconds", ExactNumber(absl::ToDoubleSeconds(
                                    facts.now - absl::UnixEpoch()))},
               {"findings", JsonOf(diagnosis.findings)},
               {"alerts", AlertsJson(diagnosis.alerts)},
               {"shards", ShardsJson(facts)},
               {"checkpoints", CheckpointsJson(facts)},
               {"waiting", WaitingJson(facts)}});
}

}  // namespace agg
