// One method for each command; a table finds it by its name.
#include "worker_client/tools/aggctl_commands.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"
#include "server/base/json.h"
#include "server/base/utf8.h"
#include "server/base/version.h"
#include "server/tls/tls_files.h"
#include "worker_client/npz/npz.h"
#include "worker_client/tools/aggctl_tables.h"
#include "worker_client/tools/doctor.h"
#include "worker_client/tools/doctor_config.h"
#include "worker_client/tools/pull_model.h"
#include "worker_client/tools/text_table.h"

namespace agg {

std::string AuditTable(const v1::ListAuditReply& reply) {
  TextTable table({{"TIME"},
                   {"ACTION"},
                   {"WHO"},
                   {"FROM"},
                   {"RANK", true},
                   {"TIMES", true},
                   {"WHAT"},
                   {"OUTCOME"}});
  for (const v1::AuditRecord& record : reply.records()) {
    table.AddRow(
        {Clock(absl::UnixEpoch() + absl::Seconds(record.time_seconds())),
         record.action(), record.who(), record.from(),
         record.rank() < 0 ? "" : absl::StrCat(record.rank()),
         absl::StrCat(record.times()), record.detail(), record.outcome()});
  }
  return table.ToString();
}

namespace {

using Admin = v1::Admin::Stub;

constexpr char kClearScreen[] = "\x1b[H\x1b[2J\x1b[3J";

// Asks a process who it is, what it is configured to, and what time it is.
ShardAnswer Ask(AdminClient* client) {
  ShardAnswer answer;
  answer.address = client->address();
  v1::GetVersionReply version;
  AggctlResult result =
      client->Ask(&Admin::GetVersion, v1::GetVersionRequest(), &version);
  if (!result.ok()) {
    // One that refuses answers all the same.
    (result.code == kAggctlRefused ? answer.no_description : answer.error) =
        result.message;
    return answer;
  }
  answer.version = version;
  v1::DescribeReply description;
  const absl::Time sent = absl::Now();
  result = client->Ask(&Admin::Describe, v1::DescribeRequest(), &description);
  const absl::Time received = absl::Now();
  if (!result.ok()) {
    answer.no_description = result.message;
    return answer;
  }
  answer.description = description;
  // Somewhere between the two its clock was read.
  answer.clock_error = (received - sent) / 2;
  answer.clock_offset = absl::UnixEpoch() +
                        absl::Seconds(description.time_seconds()) -
                        (sent + answer.clock_error);
  return answer;
}

// The shards that the doctor asks at the same time.
constexpr size_t kCallsAtOnce = 64;

// `"127.0.0.1:50051"` without its quotation marks: addresses have no escapes.
std::string Unquoted(std::string text) {
  if (text.size() >= 2 && text.front() == '"') {
    text = text.substr(1, text.size() - 2);
  }
  return text;
}

// Where the shards are, by ordinal: as shard 0 knows it, else as the process
// that was asked has it in its configuration.
std::vector<std::string> AddressesOf(const DoctorFacts& facts,
                                     const ShardAnswer& asked) {
  std::vector<std::string> addresses;
  if (facts.status.has_value()) {
    addresses.assign(facts.status->shards().begin(),
                     facts.status->shards().end());
  } else if (asked.description.has_value()) {
    for (const v1::ConfigField& field : asked.description->config()) {
      if (absl::StartsWith(field.path(), "shards[")) {
        addresses.push_back(Unquoted(field.value()));
      }
    }
  }
  if (addresses.empty()) addresses.push_back(asked.address);
  return addresses;
}

void AskForStatus(AdminClient* shard0, DoctorFacts* facts) {
  v1::StatusReply status;
  const AggctlResult result = shard0->Status(&status);
  if (result.ok()) {
    facts->status = status;
    facts->asked_at = absl::Now();
    facts->no_status.clear();
  } else {
    facts->no_status = result.message;
  }
}

void AskForCheckpoints(AdminClient* shard0, DoctorFacts* facts) {
  if (!facts->status.has_value() || !facts->status->has_checkpoint()) return;
  v1::RestoreReply reply;
  const AggctlResult result =
      shard0->Ask(&Admin::Restore, v1::RestoreRequest(), &reply);
  if (result.ok()) {
    facts->checkpoints = reply;
  } else {
    facts->no_checkpoints = result.message;
  }
}

// Asks `asked`, the process at flags.coordinator, which may be any shard, for
// the addresses of all, and then each of them, kCallsAtOnce at a time, each
// call for flags.timeout at most. What one does not answer is in the facts.
// Fails, as AdminClient does, if `asked` answers nothing at all.
AggctlResult GatherFacts(const AggctlFlags& flags, AdminClient* asked,
                         DoctorFacts* facts) {
  v1::StatusReply status;
  const AggctlResult reached = asked->Status(&status);
  if (reached.ok()) {
    facts->status = status;
    facts->asked_at = absl::Now();
  } else if (reached.code != kAggctlRefused) {
    return reached;  // not there, or frozen: nobody says where the others are
  }
  facts->no_status = reached.message;
  const ShardAnswer first = Ask(asked);
  const std::vector<std::string> addresses = AddressesOf(*facts, first);
  // The one that was asked is not asked again at another of its addresses.
  const size_t known = first.version.has_value()
                           ? static_cast<size_t>(first.version->ordinal())
                           : 0;
  facts->shards.resize(addresses.size());
  const auto ask_shard = [&](size_t s) {
    const bool same = s == known;
    std::unique_ptr<AdminClient> other;
    if (!same) {
      other = std::make_unique<AdminClient>(addresses[s], flags.timeout,
                                            flags.tls, flags.token_file);
    }
    AdminClient* const client = same ? asked : other.get();
    ShardAnswer* const answer = &facts->shards[s];
    *answer = same ? first : Ask(client);
    answer->address = addresses[s];
    if (s > 0) return;
    if (!facts->status.has_value()) AskForStatus(client, facts);
    AskForCheckpoints(client, facts);
  };
  // Many at once: behind a dead switch each call takes its whole timeout.
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < std::min(addresses.size(), kCallsAtOnce); ++t) {
    threads.emplace_back([&] {
      for (size_t s; (s = next++) < addresses.size();) ask_shard(s);
    });
  }
  for (std::thread& thread : threads) thread.join();
  facts->now = absl::Now();
  TlsFiles own;
  own.certificate = flags.tls.certificate;
  own.key = flags.tls.key;
  const absl::StatusOr<TlsContents> contents = ReadTlsFiles(own, facts->now);
  if (contents.ok()) facts->own_certificate = contents->expires.certificate;
  return {};
}

// One command with its connection.
class Session {
 public:
  Session(const AggctlFlags& flags, const AggctlOutput& output)
      : flags_(flags),
        output_(output),
        client_(flags.coordinator, flags.timeout, flags.tls, flags.token_file) {
  }

  AggctlResult Status() {
    v1::StatusReply status;
    const AggctlResult result = client_.Status(&status);
    const absl::Time now = absl::Now();
    return Show(result, status, [&] {
      return absl::StrCat(StatusText(status, now),
                          status.workers_size() > 0 ? "\n" : "",
                          status.workers_size() > 0 ? WorkersTable(status, now)
                                                    : std::string());
    });
  }

  AggctlResult Workers() {
    v1::StatusReply status;
    const AggctlResult result = client_.Status(&status);
    return Show(result, status,
                [&] { return WorkersTable(status, absl::Now()); });
  }

  AggctlResult Tensors() {
    return Ask(&Admin::ListTensors, v1::ListTensorsRequest(), TensorsTable);
  }

  // Each look asks for the rounds after the last one seen.
  AggctlResult Rounds() {
    v1::ListRoundsRequest request;
    request.set_limit(flags_.last);
    bool first = true;
    for (int look = 1;; ++look) {
      v1::ListRoundsReply reply;
      AggctlResult result = client_.Ask(&Admin::ListRounds, request, &reply);
      if (result.ok()) {
        result = EmitRounds(reply, first, NumMissed(request, reply));
      }
      if (!result.ok() || !flags_.follow || look == flags_.count) {
        return result;
      }
      if (reply.rounds_size() > 0) {
        const v1::RoundOutcome& last = reply.rounds().rbegin()->outcome();
        request.set_after_epoch(last.epoch());
        request.set_after_round(last.round());
      }
      // From here on every round counts, also where there was none yet.
      request.set_limit(0);
      first = false;
      absl::SleepFor(flags_.interval);
    }
  }

  AggctlResult Top() {
    for (int look = 1;; ++look) {
      v1::StatusReply status;
      v1::ListRoundsReply rounds;
      v1::ListRoundsRequest request;
      request.set_limit(flags_.last);
      AggctlResult result = client_.Status(&status);
      if (result.ok())
        result = client_.Ask(&Admin::ListRounds, request, &rounds);
      if (result.ok()) {
        const absl::Time now = absl::Now();
        if (output_.terminal && !flags_.json) output_.print(kClearScreen);
        result = Show(result, status, [&] {
          return absl::StrCat(StatusText(status, now), RateText(rounds), "\n",
                              WorkersTable(status, now), "\n",
                              RoundsTable(rounds, /*header=*/true));
        });
      }
      if (!result.ok() || look == flags_.count) return result;
      absl::SleepFor(flags_.interval);
    }
  }

  AggctlResult SetRule() {
    v1::SetRuleRequest request;
    if (flags_.rule.has_value()) request.set_rule(*flags_.rule);
    if (flags_.scope.has_value()) request.set_scope(*flags_.scope);
    if (flags_.step_scale.has_value()) {
      request.set_step_scale(*flags_.step_scale);
    }
    if (flags_.force_step_scale.has_value()) {
      request.set_force_step_scale(*flags_.force_step_scale);
    }
    if (flags_.learning_rate.has_value()) {
      request.set_learning_rate(*flags_.learning_rate);
    }
    if (flags_.adacons_beta.has_value()) {
      request.set_adacons_beta(*flags_.adacons_beta);
    }
    if (flags_.adacons_rescale.has_value()) {
      request.set_adacons_rescale(*flags_.adacons_rescale);
    }
    if (flags_.adacons_unsort.has_value()) {
      request.set_adacons_unsort(*flags_.adacons_unsort);
    }
    if (flags_.krum_byzantine_workers.has_value()) {
      request.set_krum_byzantine_workers(*flags_.krum_byzantine_workers);
    }
    if (flags_.krum_selected.has_value()) {
      request.set_krum_selected(*flags_.krum_selected);
    }
    return Ask(&Admin::SetRule, request, SetRuleText);
  }

  AggctlResult Evict() {
    v1::EvictWorkerRequest request;
    request.set_rank(*flags_.rank);
    request.set_reason(flags_.reason);
    return Ask(&Admin::EvictWorker, request,
               [&](const v1::EvictWorkerReply& reply) {
                 return EvictText(*flags_.rank, reply);
               });
  }

  AggctlResult Drain() {
    return Ask(&Admin::Drain, v1::DrainRequest(), [&](const v1::DrainReply&) {
      return absl::StrCat(client_.address(),
                          " finishes its round, refuses the rest, and ends\n");
    });
  }

  AggctlResult Checkpoint() {
    return Ask(&Admin::TakeCheckpoint, v1::TakeCheckpointRequest(),
               CheckpointText, flags_.wait);
  }

  AggctlResult Restore() {
    v1::RestoreRequest request;
    request.set_checkpoint(flags_.argument);
    request.set_dry_run(flags_.dry_run);
    // Without one nothing is restored, and the answer is there at once.
    absl::optional<absl::Duration> wait;
    if (!flags_.argument.empty() && !flags_.dry_run) wait = flags_.wait;
    return Ask(&Admin::Restore, request, RestoreText, wait);
  }

  AggctlResult Resume() {
    v1::ResumeRequest request;
    request.set_dry_run(flags_.dry_run);
    return Ask(
        &Admin::Resume, request,
        [&](const v1::ResumeReply& reply) {
          return ResumeText(reply, flags_.dry_run);
        },
        flags_.wait);
  }

  AggctlResult SetLogLevel() {
    v1::SetLogLevelRequest request;
    request.set_level(flags_.argument);
    return Ask(&Admin::SetLogLevel, request,
               [&](const v1::SetLogLevelReply& reply) {
                 return absl::StrCat("log level ", flags_.argument, ", was ",
                                     reply.before(), "\n");
               });
  }

  AggctlResult Health() {
    const AggctlResult result = client_.Health(flags_.argument);
    if (!result.ok()) return result;
    return Emit(output_,
                flags_.json ? "{\"status\":\"SERVING\"}\n" : "SERVING\n");
  }

  // Prints the client's own version even if there is no server.
  AggctlResult Version() {
    if (!flags_.json) {
      const AggctlResult result =
          Emit(output_, absl::StrCat("aggctl ", kVersion, "\n"));
      if (!result.ok()) return result;
    }
    return Ask(&Admin::GetVersion, v1::GetVersionRequest(), VersionText);
  }

  AggctlResult Audit() {
    v1::ListAuditRequest request;
    request.set_limit(flags_.last);
    return Ask(&Admin::ListAudit, request, AuditTable);
  }

  AggctlResult Doctor() {
    if (!flags_.config.empty()) return DoctorOfConfig();
    DoctorFacts facts;
    const AggctlResult result = GatherFacts(flags_, &client_, &facts);
    if (!result.ok()) return result;
    const Diagnosis diagnosis = Diagnose(std::move(facts));
    const AggctlResult written =
        Emit(output_,
             flags_.json ? DiagnosisJson(diagnosis) : DiagnosisText(diagnosis));
    return Judged(written, diagnosis.findings);
  }

  AggctlResult DoctorOfConfig() {
    const Findings findings = CheckConfigFile(flags_.config, flags_.parameters,
                                              ThisMachine(), absl::Now());
    const AggctlResult written =
        Emit(output_, flags_.json
                          ? FindingsJson(findings)
                          : absl::StrCat(flags_.config, ": ", Summary(findings),
                                         "\n\n", FindingsText(findings)));
    return Judged(written, findings);
  }

  AggctlResult Pull() {
    // This call fails with another exit code if the server is not there than
    // if it refuses; PullModel cannot tell the two apart.
    v1::StatusReply status;
    const AggctlResult reached = client_.Status(&status);
    if (!reached.ok()) return reached;
    const absl::StatusOr<PulledModel> model =
        PullModel(flags_.coordinator, flags_.tls, flags_.version,
                  flags_.timeout, nullptr, flags_.token_file);
    if (!model.ok()) return {kAggctlRefused, model.status().ToString()};
    const absl::Status written = WriteNpz(flags_.argument, model->tensors);
    if (!written.ok()) return {kAggctlLocal, std::string(written.message())};
    if (!flags_.json) {
      return Emit(output_, Describe(*model, flags_.argument) + "\n");
    }
    const Json line = {{"version", model->version},
                       {"tensors", model->tensors.size()},
                       {"parameters", model->num_parameters},
                       {"file", flags_.argument}};
    return Emit(output_, JsonLine(line) + "\n");
  }

 private:
  // Calls a method of Admin (AdminClient::Ask), and shows the reply.
  template <typename Request, typename Reply, typename Text>
  AggctlResult Ask(grpc::Status (Admin::*method)(grpc::ClientContext*,
                                                 const Request&, Reply*),
                   const Request& request, const Text& text,
                   absl::optional<absl::Duration> wait = absl::nullopt) {
    Reply reply;
    const AggctlResult result = client_.Ask(method, request, &reply, wait);
    return Show(result, reply, [&] { return text(reply); });
  }

  // How doctor ends.
  static AggctlResult Judged(const AggctlResult& written,
                             const Findings& findings) {
    if (!written.ok() || findings.ok()) return written;
    return {kAggctlUnwell, Summary(findings)};
  }

  // The reply as JSON, or what `text` makes of it.
  AggctlResult Show(const AggctlResult& result,
                    const google::protobuf::Message& reply,
                    const std::function<std::string()>& text) {
    if (!result.ok()) return result;
    return Emit(output_, flags_.json ? JsonOf(reply) : text());
  }

  // JSON: one line per round.
  AggctlResult EmitRounds(const v1::ListRoundsReply& reply, bool first,
                          uint64_t num_missed) {
    if (!flags_.json) {
      if (!first && reply.rounds_size() == 0) return {};
      return Emit(output_, absl::StrCat(MissedText(num_missed),
                                        RoundsTable(reply, first)));
    }
    std::string lines;
    for (const v1::RoundRecord& round : reply.rounds()) lines += JsonOf(round);
    return Emit(output_, lines);
  }

  const AggctlFlags& flags_;
  const AggctlOutput& output_;
  AdminClient client_;
};

}  // namespace

AggctlResult Emit(const AggctlOutput& output, const std::string& text) {
  if (output.print(Shown(text, /*keep_lines=*/true))) return {};
  return {kAggctlLocal, "cannot write to standard output"};
}

AggctlResult RunAggctl(const AggctlFlags& flags, const AggctlOutput& output) {
  using Run = AggctlResult (Session::*)();
  static constexpr std::pair<absl::string_view, Run> kCommands[] = {
      {"status", &Session::Status},   {"workers", &Session::Workers},
      {"tensors", &Session::Tensors}, {"rounds", &Session::Rounds},
      {"top", &Session::Top},         {"set-rule", &Session::SetRule},
      {"evict", &Session::Evict},     {"checkpoint", &Session::Checkpoint},
      {"restore", &Session::Restore}, {"resume", &Session::Resume},
      {"drain", &Session::Drain},     {"loglevel", &Session::SetLogLevel},
      {"pull", &Session::Pull},       {"version", &Session::Version},
      {"audit", &Session::Audit},     {"health", &Session::Health},
      {"doctor", &Session::Doctor},
  };
  const absl::Status tls = CheckTlsOptions(flags.tls, absl::Now());
  if (!tls.ok()) return {kAggctlUsage, std::string(tls.message())};
  Session session(flags, output);
  for (const auto& [name, run] : kCommands) {
    if (name == flags.command) return (session.*run)();
  }
  return {kAggctlUsage,
          absl::StrCat("\"", flags.command, "\" is not a server's command")};
}

}  // namespace agg
