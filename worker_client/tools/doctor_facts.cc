// The order of the calls: any process says where the others are.
#include "worker_client/tools/doctor_facts.h"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/tls/tls_files.h"

namespace agg {

namespace {

using Admin = v1::Admin::Stub;

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

}  // namespace

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
  for (size_t s = 0; s < addresses.size(); ++s) {
    const bool same = s == known;
    std::unique_ptr<AdminClient> other;
    if (!same) {
      other = std::make_unique<AdminClient>(addresses[s], flags.timeout,
                                            flags.tls, flags.token_file);
    }
    AdminClient* const client = same ? asked : other.get();
    facts->shards.push_back(same ? first : Ask(client));
    facts->shards.back().address = addresses[s];
    if (s > 0) continue;
    if (!facts->status.has_value()) AskForStatus(client, facts);
    AskForCheckpoints(client, facts);
  }
  facts->now = absl::Now();
  TlsFiles own;
  own.certificate = flags.tls.certificate;
  own.key = flags.tls.key;
  const absl::StatusOr<TlsContents> contents = ReadTlsFiles(own, facts->now);
  if (contents.ok()) facts->own_certificate = contents->expires.certificate;
  return {};
}

}  // namespace agg
