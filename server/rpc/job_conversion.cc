// Field by field, and nothing else. A Commit is checked in
// server/coordinator/coordinator_types.h; here only what a plain value cannot
// express is refused.
#include "server/rpc/job_conversion.h"

#include <cmath>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/byte_buffer_frame.h"
#include "proto/traceparent.h"
#include "server/base/field_error.h"
#include "server/base/job_phase.h"
#include "server/base/status_macros.h"
#include "server/rpc/stream_pulls.h"

namespace agg {

// Checks what the message's types cannot say: that kind and dtype are known,
// and that somebody pushes.

namespace {

// A field of what comes with a frame, which has one value allowed.
absl::Status CheckSame(absl::string_view field, uint64_t value,
                       uint64_t allowed) {
  if (value == allowed) return absl::OkStatus();
  return FieldError(field, absl::StrCat(value),
                    absl::StrCat(allowed, ", as the frame's meta says"));
}

}  // namespace

absl::StatusOr<FrameHeader> FromProto(const v1::FrameMeta& meta,
                                      int64_t payload_bytes) {
  if (meta.kind() != v1::GRADIENT && meta.kind() != v1::SEED) {
    return absl::InvalidArgumentError(absl::StrCat(
        "meta.kind is ", meta.kind(), "; allowed: GRADIENT (0), SEED (1)"));
  }
  if (meta.dtype() < v1::F32 || meta.dtype() > v1::I8) {
    return absl::InvalidArgumentError(
        absl::StrCat("meta.dtype is ", meta.dtype(),
                     "; allowed: F32 (1), BF16 (2), F16 (3), I8 (4)"));
  }
  // 0 is nobody's (P26), and before any epoch it would name nobody's row.
  if (meta.session() == 0) {
    return FieldError("meta.session", "0", "the session of a JoinReply");
  }
  FrameHeader header;
  header.epoch = meta.epoch();
  header.session = meta.session();
  header.round = meta.round();
  header.attempt = meta.attempt();
  header.kind = static_cast<PushKind>(meta.kind());
  header.dtype = static_cast<DType>(meta.dtype());
  header.slices.assign(meta.slices().begin(), meta.slices().end());
  header.crc32c.assign(meta.crc32c().begin(), meta.crc32c().end());
  header.absent_slices.assign(meta.absent_slices().begin(),
                              meta.absent_slices().end());
  header.payload_bytes = payload_bytes;
  header.in_place = meta.in_place();
  header.on_device = meta.on_device();
  return header;
}

v1::PushAck MakePushAck(const FrameHeader& header, const FrameResult& result) {
  v1::PushAck ack;
  ack.set_epoch(header.epoch);
  ack.set_round(header.round);
  ack.set_kind(static_cast<v1::PushKind>(header.kind));
  ack.set_closed(result.closed);
  ack.set_attempt(header.attempt);
  return ack;
}

v1::PushAck MakeOutcomeAck(const v1::CommitRequest& commit) {
  v1::PushAck ack;
  ack.set_epoch(commit.epoch());
  ack.set_round(commit.round());
  ack.set_attempt(commit.attempt());
  return ack;
}

absl::Status CheckRequests(const FrameReader& frame) {
  const v1::FrameMeta& meta = frame.meta();
  const std::optional<v1::CommitRequest>& commit = frame.commit();
  const std::optional<v1::PullRequest>& pull = frame.pull();
  if (meta.kind() == v1::SEED && (commit.has_value() || pull.has_value())) {
    return absl::InvalidArgumentError(
        "meta.kind is SEED (1) in a frame with commit or pull; allowed: "
        "GRADIENT (0)");
  }
  if (commit.has_value()) {
    AGG_RETURN_IF_ERROR(CheckSame("commit.kind", commit->kind(), v1::GRADIENT));
    AGG_RETURN_IF_ERROR(
        CheckSame("commit.epoch", commit->epoch(), meta.epoch()));
    AGG_RETURN_IF_ERROR(
        CheckSame("commit.session", commit->session(), meta.session()));
    AGG_RETURN_IF_ERROR(
        CheckSame("commit.round", commit->round(), meta.round()));
    AGG_RETURN_IF_ERROR(
        CheckSame("commit.attempt", commit->attempt(), meta.attempt()));
  }
  if (!pull.has_value()) return absl::OkStatus();
  absl::Status status = CheckSame("pull.latest", pull->latest(), 0);
  if (status.ok())
    status = CheckSame("pull.version", pull->version(), meta.round() + 1);
  if (status.ok() && pull->epoch() != 0) {
    status = CheckSame("pull.epoch", pull->epoch(), meta.epoch());
  }
  return status.ok() ? QueryOf(*pull).status() : status;
}

namespace {

v1::JobEvent::Kind ToProto(JobEventKind kind) {
  switch (kind) {
    case JobEventKind::kShardLost:
      return v1::JobEvent::SHARD_LOST;
    case JobEventKind::kFinished:
      return v1::JobEvent::FINISHED;
    case JobEventKind::kSuperseded:
      return v1::JobEvent::SUPERSEDED;
    case JobEventKind::kSeedRole:
      return v1::JobEvent::SEED_ROLE;
    case JobEventKind::kDraining:
      return v1::JobEvent::DRAINING;
    case JobEventKind::kExpired:
      return v1::JobEvent::EXPIRED;
    case JobEventKind::kEvicted:
      return v1::JobEvent::EVICTED;
    case JobEventKind::kWaiting:
      return v1::JobEvent::WAITING;
    case JobEventKind::kWorkerLost:
      return v1::JobEvent::WORKER_LOST;
  }
  return v1::JobEvent::KIND_UNSPECIFIED;
}

v1::RoundOutcome::Kind ToProto(OutcomeKind kind) {
  switch (kind) {
    case OutcomeKind::kApplied:
      return v1::RoundOutcome::APPLIED;
    case OutcomeKind::kSkipped:
      return v1::RoundOutcome::SKIPPED;
    case OutcomeKind::kSeeded:
      return v1::RoundOutcome::SEEDED;
  }
  return v1::RoundOutcome::KIND_UNSPECIFIED;
}

v1::CheckpointStatus ToProto(const CheckpointStatus& status) {
  v1::CheckpointStatus result;
  result.set_version(status.version);
  result.set_made(status.made);
  if (status.made != 0) {
    result.set_age_seconds(absl::ToDoubleSeconds(status.age));
  }
  result.set_writing(status.writing);
  result.set_last_error(status.last_error);
  result.set_num_failed(status.num_failed);
  result.set_num_sealed(status.num_sealed);
  result.set_restored_version(status.restored_version);
  result.set_restored_made(status.restored_made);
  result.set_restore(status.restore);
  return result;
}

// Whether a sum of squares says something. One that is NaN or infinite says
// nothing that the row does not say: the row has overflowed as well and will be
// excluded.
bool IsSaid(double sum) { return std::isfinite(sum) || sum < 0.0; }

v1::WorkerStatus ToProto(const WorkerState& worker) {
  v1::WorkerStatus result;
  result.set_rank(worker.rank);
  result.set_client(worker.client);
  result.set_committed(worker.committed);
  result.set_lease_remaining_seconds(
      absl::ToDoubleSeconds(worker.lease_remaining));
  result.set_attending(worker.attending);
  result.set_waited_for_seconds(absl::ToDoubleSeconds(worker.waited_for));
  result.set_late_rows(worker.late_rows);
  result.set_last_rows(worker.last_rows);
  result.set_lateness_seconds(absl::ToDoubleSeconds(worker.lateness));
  result.set_transports(worker.transports.text);
  return result;
}

}  // namespace

v1::CombinationNames ToProto(const CombinationNames& names) {
  v1::CombinationNames result;
  result.set_rule(names.rule);
  result.set_scope(names.scope);
  result.set_step_scale(names.step_scale);
  return result;
}

v1::JoinReply ToProto(const JoinResult& result, const JobInfo& job) {
  v1::JoinReply reply;
  reply.set_session(result.session);
  reply.set_epoch(result.epoch);
  reply.set_version(result.version);
  reply.set_seeded(result.seeded);
  reply.set_seed_role(result.seed_role);
  reply.set_first_round(result.first_round);
  reply.set_committed(result.committed);
  reply.set_finished(result.finished);
  for (const std::string& shard : job.shards) reply.add_shards(shard);
  reply.set_push_dtype(static_cast<v1::DType>(job.push_dtype));
  reply.set_pull_dtype(static_cast<v1::DType>(job.pull_dtype));
  reply.set_lease_ms(absl::ToInt64Milliseconds(job.lease));
  reply.set_job(job.job);
  reply.set_optimizer(job.optimizer);
  reply.set_rule(result.combination.rule);
  reply.set_scope(result.combination.scope);
  reply.set_step_scale(result.combination.step_scale);
  reply.set_workers(job.workers);
  reply.mutable_shard_lives()->Add(result.shard_lives.begin(),
                                   result.shard_lives.end());
  // A process does not attach itself, so shard 0's is not in the result.
  for (size_t i = 0; i < result.local_sockets.size(); ++i) {
    reply.add_local_sockets(i == 0 ? job.local_socket
                                   : result.local_sockets[i]);
  }
  for (size_t i = 0; i < result.region_sockets.size(); ++i) {
    reply.add_region_sockets(i == 0 ? job.region_socket
                                    : result.region_sockets[i]);
  }
  reply.set_rewound(result.rewound);
  reply.set_made(result.made);
  reply.set_pipelined(job.pipelined);
  return reply;
}

JoinCall FromProto(const v1::JoinParts& request) {
  JoinCall call;
  call.rank = request.rank();
  call.client = request.client();
  call.resume_session = request.resume_session();
  call.resume_version = request.resume_version();
  call.resume_made = request.resume_made();
  return call;
}

v1::JobEvent ToProto(const JobEvent& event) {
  v1::JobEvent result;
  result.set_kind(ToProto(event.kind));
  result.set_version(event.version);
  result.set_message(event.message);
  return result;
}

v1::RoundOutcome ToProto(const RoundResult& outcome) {
  v1::RoundOutcome result;
  result.set_epoch(outcome.epoch);
  result.set_round(outcome.round);
  result.set_version(outcome.version);
  result.set_kind(ToProto(outcome.kind));
  result.set_included(outcome.included);
  result.mutable_ranks()->Add(outcome.ranks.begin(), outcome.ranks.end());
  result.mutable_excluded_ranks()->Add(outcome.excluded_ranks.begin(),
                                       outcome.excluded_ranks.end());
  result.set_learning_rate(outcome.learning_rate);
  result.set_gain(outcome.gain);
  result.set_tau(outcome.tau);
  result.set_orthogonality(outcome.orthogonality);
  result.set_finished(outcome.finished);
  result.set_message(outcome.message);
  result.set_loss(outcome.loss);
  result.set_combined_norm(outcome.combined_norm);
  *result.mutable_combination() = ToProto(outcome.combination);
  result.mutable_absent_tensors()->Add(outcome.absent_tensors.begin(),
                                       outcome.absent_tensors.end());
  result.mutable_differing_ranks()->Add(outcome.differing_ranks.begin(),
                                        outcome.differing_ranks.end());
  return result;
}

namespace {

v1::RuleProcess ToProto(const RuleProcessStatus& status) {
  v1::RuleProcess process;
  process.set_name(status.name);
  process.set_connected(status.connected);
  process.set_client(status.client);
  process.set_identity(status.identity);
  process.set_answers(status.answers);
  process.set_missing_answers(status.missing_answers);
  process.set_late_answers(status.late_answers);
  process.set_last_seconds(status.last_seconds);
  process.set_last_missing(status.last_missing);
  return process;
}

}  // namespace

v1::StatusReply ToProto(const JobStatus& status,
                        const std::optional<RoundResult>& last,
                        const JobInfo& job) {
  v1::StatusReply reply;
  reply.set_job(job.job);
  reply.set_epoch(status.epoch);
  reply.set_phase(PhaseName(status.phase));
  reply.set_round(status.round);
  reply.set_version(status.version);
  for (const WorkerState& worker : status.workers) {
    *reply.add_workers() = ToProto(worker);
  }
  reply.mutable_missing_ranks()->Add(status.missing_ranks.begin(),
                                     status.missing_ranks.end());
  for (const std::string& shard : job.shards) reply.add_shards(shard);
  reply.set_message(status.message);
  if (last.has_value()) *reply.mutable_last_outcome() = ToProto(*last);
  *reply.mutable_combination() = ToProto(status.combination);
  if (status.next_combination != status.combination) {
    *reply.mutable_next_combination() = ToProto(status.next_combination);
  }
  reply.set_expected_workers(job.workers);
  reply.mutable_differing_ranks()->Add(status.differing_ranks.begin(),
                                       status.differing_ranks.end());
  for (const RuleProcessStatus& process : status.rule_processes) {
    *reply.add_rule_processes() = ToProto(process);
  }
  reply.set_min_workers(status.min_workers);
  reply.set_round_timeout_seconds(absl::ToDoubleSeconds(status.round_timeout));
  reply.set_below_floor_seconds(absl::ToDoubleSeconds(status.below_floor_for));
  reply.set_coordinator_life(job.coordinator_life);
  reply.set_history(status.history);
  reply.set_recovering(status.recovering);
  reply.set_replicated(status.replicated);
  if (status.checkpoint.configured) {
    *reply.mutable_checkpoint() = ToProto(status.checkpoint);
  }
  return reply;
}

RulePoll FromProto(v1::ServeRuleRequest request, const std::string& identity) {
  RulePoll poll;
  poll.name = std::move(*request.mutable_name());
  poll.process = request.process();
  poll.client = std::move(*request.mutable_client());
  poll.identity = identity;
  if (!request.has_answer()) return poll;
  v1::RuleAnswer& from = *request.mutable_answer();
  RuleAnswer& answer = poll.answer.emplace();
  answer.question = from.question();
  answer.error = std::move(*from.mutable_error());
  answer.step_scale = from.has_step_scale() ? from.step_scale() : 1.0;
  for (v1::RuleWeights& segment : *from.mutable_segments()) {
    answer.segments.push_back(
        {{segment.weights().begin(), segment.weights().end()},
         std::move(*segment.mutable_state())});
  }
  return poll;
}

v1::RuleQuestion ToProto(const RuleQuestion& question) {
  v1::RuleQuestion message;
  message.set_number(question.number);
  message.set_epoch(question.epoch);
  message.set_round(question.round);
  message.set_shadow(question.shadow);
  for (size_t i = 0; i < question.rows.size(); ++i) {
    v1::RuleRow* const row = message.add_rows();
    row->set_rank(question.rows[i].rank);
    row->set_examples(question.rows[i].examples);
    row->set_accumulation(question.rows[i].accumulation);
    if (!std::isnan(question.losses[i])) row->set_loss(question.losses[i]);
  }
  for (const RuleQuestion::Segment& segment : question.segments) {
    v1::RuleSegment* const part = message.add_segments();
    part->set_tensor(segment.tensor);
    part->mutable_gram()->Add(segment.gram.begin(), segment.gram.end());
    part->set_state(segment.state);
  }
  return message;
}

absl::Status CheckMessageSize(int64_t manifest_bytes, const JobInfo& job) {
  if (job.shards.size() < 2) return absl::OkStatus();
  constexpr int64_t kRoom = kMaxMessageBytes - (int64_t{64} << 10);
  if (manifest_bytes <= kRoom) return absl::OkStatus();
  return FieldError(
      "manifest", absl::StrCat(manifest_bytes, " bytes"),
      absl::StrCat("with ", job.shards.size(), " shards, ", kRoom, " bytes"));
}

absl::StatusOr<CommitCall> FromProto(const v1::CommitRequest& request) {
  if (request.kind() != v1::GRADIENT && request.kind() != v1::SEED) {
    return FieldError("commit.kind",
                      absl::StrCat(static_cast<int>(request.kind())),
                      "GRADIENT (0), SEED (1)");
  }
  CommitCall call;
  call.epoch = request.epoch();
  call.session = request.session();
  call.round = request.round();
  call.attempt = request.attempt();
  call.row_crc32c.assign(request.row_crc32c().begin(),
                         request.row_crc32c().end());
  call.kind =
      request.kind() == v1::SEED ? PushKind::kSeed : PushKind::kGradient;
  // 0 is what a client sends that does not set the field.
  call.info.row.examples = request.examples() == 0 ? 1 : request.examples();
  call.info.row.accumulation =
      request.accumulation() == 0 ? 1 : request.accumulation();
  if (request.has_micro_norm_squared_sum() &&
      IsSaid(request.micro_norm_squared_sum())) {
    call.info.row.micro_norm_squared_sum = request.micro_norm_squared_sum();
  }
  call.info.row.loss_scale =
      request.loss_scale() == 0.0 ? 1.0 : request.loss_scale();
  if (request.has_loss()) call.info.loss = request.loss();
  if (IsTraceparent(request.traceparent())) {
    call.info.traceparent = request.traceparent();
  }
  call.info.parameters_digest = request.parameters_digest();
  call.info.absent_tensors = request.absent_tensors();
  return call;
}

}  // namespace agg
