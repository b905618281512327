#include "server/status/status_json.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/base/json_writer.h"
#include "server/round/round_report.h"
#include "server/round_log/round_log_status.h"
#include "server/status/round_history.h"

namespace agg {
namespace {

void WriteWorker(const WorkerState& worker, JsonWriter* json) {
  json->BeginObject();
  json->Key("rank").Integer(worker.rank);
  json->Key("client").String(worker.client.substr(0, 200));
  json->Key("committed").Bool(worker.committed);
  json->Key("attending").Bool(worker.attending);
  json->Key("waited").Number(absl::ToDoubleSeconds(worker.waited_for));
  json->EndObject();
}

void WriteJob(const JobStatus& job, JsonWriter* json) {
  json->BeginObject();
  json->Key("phase").String(job.phase);
  json->Key("epoch").String(absl::StrCat(job.epoch));
  json->Key("version").Integer(static_cast<int64_t>(job.version));
  json->Key("round").Integer(static_cast<int64_t>(job.round));
  json->Key("seeded").Bool(job.seeded);
  json->Key("message").String(job.message);
  json->Key("rule").String(job.combination.rule);
  json->Key("scope").String(job.combination.scope);
  json->Key("step_scale").String(job.combination.step_scale);
  json->Key("missing").BeginArray();
  for (const int32_t rank : job.missing_ranks) json->Integer(rank);
  json->EndArray();
  json->Key("workers").BeginArray();
  for (const WorkerState& worker : job.workers) WriteWorker(worker, json);
  json->EndArray();
  json->EndObject();
}

void WriteShard(const ShardStatus& shard, JsonWriter* json) {
  json->BeginObject();
  json->Key("ordinal").Integer(shard.ordinal);
  // Epochs are beyond what JavaScript's numbers hold exactly, in principle.
  json->Key("epoch").String(absl::StrCat(shard.epoch));
  json->Key("attached").Bool(shard.attached);
  json->Key("published").Bool(shard.published);
  json->Key("version").Integer(static_cast<int64_t>(shard.version));
  json->Key("slices").Integer(shard.num_slices);
  json->Key("elements").Integer(shard.num_elements);
  json->Key("memory_planned_bytes").Integer(shard.memory_planned_bytes);
  json->Key("memory_budget_bytes").Integer(shard.memory_budget_bytes);
  if (shard.device_memory_total_bytes > 0) {
    json->Key("device_memory_planned_bytes")
        .Integer(shard.device_memory_planned_bytes);
    json->Key("device_memory_budget_bytes")
        .Integer(shard.device_memory_budget_bytes);
    json->Key("device_memory_used_bytes")
        .Integer(shard.device_memory_used_bytes);
    json->Key("device_memory_total_bytes")
        .Integer(shard.device_memory_total_bytes);
  }
  json->Key("push_bytes").Integer(shard.push_bytes);
  json->Key("duplicate_bytes").Integer(shard.duplicate_bytes);
  json->Key("pull_bytes").Integer(shard.pull_bytes);
  json->Key("crc_errors").Integer(shard.crc_errors);
  json->Key("revoked_snapshots").Integer(shard.revoked_snapshots);
  json->Key("early_grams").Integer(shard.early_grams);
  json->Key("grams_at_close").Integer(shard.grams_at_close);
  json->Key("backend").String(shard.backend);
  json->Key("backend_errors").Integer(shard.backend_errors);
  json->EndObject();
}

}  // namespace

void WriteServer(const StatusPageOptions& options, JsonWriter* json) {
  json->Key("server").BeginObject();
  json->Key("job").String(options.metrics.job);
  json->Key("version").String(options.metrics.version);
  json->Key("ordinal").Integer(options.metrics.ordinal);
  json->Key("workers").Integer(options.metrics.workers);
  json->Key("rule").String(options.metrics.rule);
  json->Key("scope").String(options.metrics.scope);
  json->Key("step_scale").String(options.metrics.step_scale);
  json->Key("shards").BeginArray();
  for (const std::string& address : options.shards) json->String(address);
  json->EndArray();
  json->Key("coordinator").BeginObject();
  json->Key("host").String(options.coordinator_host);
  json->Key("port").Integer(options.coordinator_port);
  json->EndObject();
  json->EndObject();
}

std::string StatusJson(const StatusPageOptions& options,
                       const ShardStatus& shard,
                       const std::optional<JobStatus>& job,
                       const RoundHistory* history,
                       const std::optional<RoundLogStatus>& round_log,
                       uint64_t after) {
  JsonWriter json;
  json.BeginObject();
  json.Key("instance").String(options.instance);
  WriteServer(options, &json);
  json.Key("job");
  if (job.has_value()) {
    WriteJob(*job, &json);
  } else {
    json.Null();
  }
  json.Key("shard");
  WriteShard(shard, &json);
  if (history != nullptr) history->Write(after, &json);
  if (round_log.has_value()) {
    json.Key("round_log").BeginObject();
    json.Key("records").Integer(static_cast<int64_t>(round_log->records));
    json.Key("errors").Integer(static_cast<int64_t>(round_log->errors));
    json.EndObject();
  }
  json.EndObject();
  return json.Take();
}

}  // namespace agg
