// One table for each answer; times are shown as UTC, numbers with four
// digits. JSON has all digits.
#include "worker_client/tools/aggctl_tables.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/util/json_util.h"
#include "server/base/job_phase.h"
#include "server/base/utf8.h"
#include "worker_client/tools/text_table.h"

namespace agg {

namespace {

// The newest checkpoint, and what became of others.
std::string Saved(const v1::CheckpointStatus& checkpoint, absl::Time now) {
  std::string text = "saved     ";
  if (checkpoint.made() == 0) {
    absl::StrAppend(&text, "nothing yet");
  } else {
    absl::StrAppend(&text, "version ", checkpoint.version(), ", ",
                    Seconds(checkpoint.age_seconds()), " ago, at ",
                    Since(checkpoint.age_seconds(), now), " UTC");
  }
  if (checkpoint.writing()) absl::StrAppend(&text, "; one is being written");
  if (checkpoint.restored_made() != 0) {
    absl::StrAppend(&text, "; the job went on from version ",
                    checkpoint.restored_version());
  }
  if (checkpoint.num_failed() > 0) {
    absl::StrAppend(&text, "; ", checkpoint.num_failed(), " failed");
  }
  if (!checkpoint.last_error().empty()) {
    absl::StrAppend(&text,
                    "; the last try failed: ", Shown(checkpoint.last_error()));
  }
  return text + "\n";
}

}  // namespace

std::string SurvivalText(const v1::StatusReply& status, absl::Time now) {
  std::string text;
  if (!status.recovering().empty()) {
    absl::StrAppend(&text, "recovery  ", Shown(status.recovering()), "\n");
  }
  if (status.replicated()) {
    absl::StrAppend(&text, "copies    two of each part\n");
  }
  if (status.has_checkpoint()) {
    absl::StrAppend(&text, Saved(status.checkpoint(), now));
    // While something is waited for it says what is done next.
    if (!status.checkpoint().restore().empty() && status.recovering().empty()) {
      absl::StrAppend(&text, "restore   ", Shown(status.checkpoint().restore()),
                      "\n");
    }
  }
  return text;
}

std::string RestoreText(const v1::RestoreReply& reply) {
  std::string text;
  if (!reply.text().empty()) {
    absl::StrAppend(&text, Shown(reply.text()), "\n");
  }
  if (reply.found().empty()) {
    absl::StrAppend(&text, "no shard sees a sealed checkpoint\n");
  }
  for (const v1::RestoreReply::Found& found : reply.found()) {
    absl::StrAppend(
        &text, "version ", found.version(), " (", found.made(), "-",
        found.version(),
        "): ", found.missing().empty() ? "complete" : Shown(found.missing()),
        "\n");
  }
  return text;
}

std::string ResumeText(const v1::ResumeReply& reply, bool dry_run) {
  return absl::StrCat(dry_run ? "the job would go on" : "the job goes on",
                      " from version ", reply.version(),
                      dry_run ? "; it has finished: " : "; it had finished: ",
                      Shown(reply.ended()), "\n");
}

std::string CheckpointText(const v1::TakeCheckpointReply& reply) {
  return absl::StrCat("version ", reply.version(), " is saved: ", reply.bytes(),
                      " bytes, in the folder ", reply.made(), "-",
                      reply.version(), "\n");
}

namespace {

// "" for NaN: the value is not defined.
std::string Number(double value) {
  return std::isnan(value) ? "" : absl::StrFormat("%.4g", value);
}

std::string Names(const v1::CombinationNames& names) {
  return absl::StrCat("rule ", names.rule(), ", scope ", names.scope(),
                      ", step scale ", names.step_scale());
}

std::string Plural(int64_t number, absl::string_view what) {
  return absl::StrCat(number, " ", what, number == 1 ? "" : "s");
}

bool IsMissing(const v1::StatusReply& status, int rank) {
  return std::count(status.missing_ranks().begin(),
                    status.missing_ranks().end(), rank) > 0;
}

std::string StateOf(const v1::StatusReply& status,
                    const v1::WorkerStatus& worker) {
  WorkerFacts facts;
  facts.committed = worker.committed();
  facts.missing = IsMissing(status, worker.rank());
  facts.waited_seconds = worker.waited_for_seconds();
  return WorkerWord(status.phase(), facts);
}

// The floor, and since when fewer workers than that are in.
std::string FloorText(const v1::StatusReply& status, absl::Time now) {
  if (status.min_workers() == 0) return "";  // a server that does not say it
  std::string text =
      absl::StrCat(", at least ", status.min_workers(), " needed");
  if (status.below_floor_seconds() > 0.0) {
    absl::StrAppend(&text, "; fewer since ",
                    Since(status.below_floor_seconds(), now), " UTC");
  }
  return text;
}

std::string Waiting(const v1::StatusReply& status, absl::Time now) {
  std::string text;
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.committed() || worker.waited_for_seconds() <= 0.0) continue;
    absl::StrAppend(&text, "waiting   for rank ", worker.rank(), " (",
                    Shown(worker.client()), ") for ",
                    Seconds(worker.waited_for_seconds()), ", since ",
                    Since(worker.waited_for_seconds(), now), " UTC",
                    worker.attending() ? "" : "; it is not connected", "\n");
  }
  return text;
}

// Whose work is lost again and again.
std::string Late(const v1::StatusReply& status) {
  std::string text;
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.late_rows() == 0) continue;
    absl::StrAppend(
        &text, "late      rank ", worker.rank(), " (", Shown(worker.client()),
        "): ", Plural(static_cast<int64_t>(worker.late_rows()), "gradient"),
        " came too late, usually ", Seconds(worker.lateness_seconds()),
        " after the first of the round\n");
  }
  return text;
}

// Who decides external rules.
std::string RuleProcesses(const v1::StatusReply& status) {
  std::string text;
  for (const v1::RuleProcess& rule : status.rule_processes()) {
    absl::StrAppend(&text, "rule      ", Shown(rule.name()), ": ");
    if (rule.client().empty()) {
      absl::StrAppend(&text, "no process has asked for rounds yet");
    } else {
      absl::StrAppend(&text,
                      rule.connected() ? "" : "NOT connected: ", "process ",
                      Shown(rule.client()));
    }
    absl::StrAppend(
        &text, ", ", Plural(static_cast<int64_t>(rule.answers()), "answer"),
        rule.answers() == 0 ? ""
                            : absl::StrCat(" (the last in ",
                                           Number(rule.last_seconds()), " s)"),
        ", ", rule.missing_answers(), " missing, ", rule.late_answers(),
        " late");
    if (!rule.last_missing().empty()) {
      absl::StrAppend(&text,
                      "; the last missing one: ", Shown(rule.last_missing()));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string Kind(v1::RoundOutcome::Kind kind) {
  switch (kind) {
    case v1::RoundOutcome::APPLIED:
      return "applied";
    case v1::RoundOutcome::SKIPPED:
      return "skipped";
    case v1::RoundOutcome::SEEDED:
      return "seeded";
    default:
      return "unknown";
  }
}

std::string LastRound(const v1::RoundOutcome& outcome) {
  std::string text = absl::StrCat(
      "last      round ", outcome.round(), " ", Kind(outcome.kind()), ": ",
      Plural(outcome.ranks_size(), "gradient"), ", learning rate ",
      Number(outcome.learning_rate()), ", gain ", Number(outcome.gain()),
      ", tau ", Number(outcome.tau()));
  if (!std::isnan(outcome.orthogonality())) {
    absl::StrAppend(&text, ", orthogonality ", Number(outcome.orthogonality()));
  }
  if (!outcome.message().empty()) {
    absl::StrAppend(&text, "; ", Shown(outcome.message()));
  }
  return text + "\n";
}

std::string Shape(const v1::Tensor& tensor) {
  return absl::StrCat("[", absl::StrJoin(tensor.shape(), ","), "]");
}

}  // namespace

std::string JsonOf(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  // It fails for messages of unknown type only.
  if (!google::protobuf::util::MessageToJsonString(message, &text, options)
           .ok()) {
    return "{}\n";
  }
  return ShownInJson(text) + "\n";
}

std::string StatusText(const v1::StatusReply& status, absl::Time now) {
  std::string text =
      absl::StrCat("job       ", Shown(status.job()), ": ", status.phase(),
                   ", round ", status.round(), ", epoch ", status.epoch(), "\n",
                   "combined  ", Names(status.combination()), "\n");
  if (status.has_next_combination()) {
    absl::StrAppend(&text, "          from round ", status.round() + 1,
                    " on: ", Names(status.next_combination()), "\n");
  }
  absl::StrAppend(&text, "shards    ",
                  Shown(absl::StrJoin(status.shards(), " ")), "\n");
  absl::StrAppend(&text, "workers   ", status.workers_size(), " of ",
                  status.expected_workers(), " expected have joined",
                  FloorText(status, now), "\n", Waiting(status, now),
                  Late(status), RuleProcesses(status),
                  SurvivalText(status, now));
  if (status.has_last_outcome()) {
    absl::StrAppend(&text, LastRound(status.last_outcome()));
  }
  if (!status.message().empty()) {
    absl::StrAppend(&text, "message   ", Shown(status.message()), "\n");
  }
  return text;
}

std::string WorkersTable(const v1::StatusReply& status, absl::Time now) {
  TextTable table({{"RANK", true},
                   {"STATE"},
                   {"WAITED", true},
                   {"SINCE"},
                   {"LEASE", true},
                   {"CONNECTED"},
                   {"LATE", true},
                   {"LAST", true},
                   {"BEHIND", true},
                   {"TRANSPORT"},
                   {"CLIENT"}});
  for (const v1::WorkerStatus& worker : status.workers()) {
    const bool waited =
        !worker.committed() && worker.waited_for_seconds() > 0.0;
    table.AddRow(
        {absl::StrCat(worker.rank()), StateOf(status, worker),
         waited ? Seconds(worker.waited_for_seconds()) : "",
         waited ? Since(worker.waited_for_seconds(), now) : "",
         Seconds(std::max(worker.lease_remaining_seconds(), 0.0)),
         worker.attending() ? "yes" : "no", absl::StrCat(worker.late_rows()),
         absl::StrCat(worker.last_rows()), Seconds(worker.lateness_seconds()),
         worker.transports(), worker.client()});
  }
  return table.ToString();
}

std::string TensorsTable(const v1::ListTensorsReply& reply) {
  TextTable table({{"TENSOR"},
                   {"SHAPE"},
                   {"PARAMETERS", true},
                   {"GROUP"},
                   {"SLICES", true},
                   {"SHARDS"},
                   {"ORTHOGONALITY", true}});
  for (const v1::ListTensorsReply::Entry& entry : reply.tensors()) {
    table.AddRow({absl::StrCat(entry.tensor().name(),
                               entry.tensor().optional() ? " (optional)" : ""),
                  Shape(entry.tensor()), absl::StrCat(entry.elements()),
                  entry.tensor().group(), absl::StrCat(entry.slices()),
                  absl::StrJoin(entry.shards(), ","),
                  Number(entry.orthogonality())});
  }
  return absl::StrCat(table.ToString(), Plural(reply.tensors_size(), "tensor"),
                      ", ", Plural(reply.elements(), "parameter"), "\n");
}

std::string RoundsTable(const v1::ListRoundsReply& reply, bool header) {
  TextTable table({{"ROUND", true, 6},
                   {"ENDED", false, 8},
                   {"OUTCOME", false, 7},
                   {"ROWS", true},
                   {"RULE", false, 14},
                   {"LR", true, 9},
                   {"GAIN", true, 6},
                   {"TAU", true, 9},
                   {"ORTHOG", true, 6},
                   {"NORM", true, 9},
                   {"LOSS", true, 9},
                   {"WAIT", true, 6},
                   {"WORK", true, 6},
                   {"MESSAGE"}});
  for (const v1::RoundRecord& record : reply.rounds()) {
    const v1::RoundOutcome& outcome = record.outcome();
    table.AddRow(
        {absl::StrCat(outcome.round()),
         Clock(absl::UnixEpoch() + absl::Seconds(record.ended_at_seconds())),
         Kind(outcome.kind()), absl::StrCat(outcome.ranks_size()),
         outcome.combination().rule(), Number(outcome.learning_rate()),
         Number(outcome.gain()), Number(outcome.tau()),
         Number(outcome.orthogonality()), Number(outcome.combined_norm()),
         Number(outcome.loss()), Seconds(record.wait_seconds()),
         Seconds(record.work_seconds()), outcome.message()});
  }
  return table.ToString(header);
}

uint64_t NumMissed(const v1::ListRoundsRequest& request,
                   const v1::ListRoundsReply& reply) {
  if (reply.rounds_size() == 0) return 0;
  const v1::RoundOutcome& first = reply.rounds(0).outcome();
  if (first.epoch() != request.after_epoch()) return 0;
  return first.round() - request.after_round() - 1;
}

std::string MissedText(uint64_t num_missed) {
  if (num_missed == 0) return "";
  return absl::StrCat("... ", Plural(static_cast<int64_t>(num_missed), "round"),
                      " went by unseen: a shorter --interval shows more\n");
}

std::string RateText(const v1::ListRoundsReply& reply) {
  if (reply.rounds_size() < 2) return "";
  const double span = reply.rounds().rbegin()->ended_at_seconds() -
                      reply.rounds().begin()->ended_at_seconds();
  if (!(span > 0.0)) return "";
  return absl::StrFormat("rate      %.3g rounds per second\n",
                         (reply.rounds_size() - 1) / span);
}

std::string SetRuleText(const v1::SetRuleReply& reply) {
  return absl::StrCat("from round ", reply.first_round(),
                      " on: ", Names(reply.after()),
                      "\nuntil then:   ", Names(reply.before()), "\n");
}

std::string EvictText(int rank, const v1::EvictWorkerReply& reply) {
  return absl::StrCat(
      "rank ", rank, " (", Shown(reply.client()), ") is evicted; ",
      reply.committed() ? "its committed gradient stays in the open round"
                        : "it had not committed the open round",
      "\n");
}

std::string VersionText(const v1::GetVersionReply& reply) {
  return absl::StrCat("agg_server ", Shown(reply.version()), ", protocol ",
                      reply.protocol_version(), ": job ", Shown(reply.job()),
                      ", shard ", reply.ordinal(), " of ", reply.num_shards(),
                      ", backend ", Shown(reply.backend()), ", configuration ",
                      Shown(reply.fingerprint()), ", log level ",
                      reply.log_level(), "\n");
}

}  // namespace agg
