// Each message has one list of its fields, a function Fields, which writes a
// plain value into the message and reads it back. A phase's lists of numbers
// grow with tensors times workers, and so do a job's record and a checkpoint's
// text: only they are cut into several messages, as Parts lists them; the rest
// travels with the first or last one.
#include "server/rpc/phase_conversion.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/repeated_field.h"
#include "proto/manifest_message.h"
#include "proto/wave_plan.h"
#include "server/base/field_error.h"
#include "server/base/local_socket.h"
#include "server/base/status_macros.h"
#include "server/base/utf8.h"
#include "server/coordinator/coordinator_types.h"

namespace agg {

namespace {

using google::protobuf::RepeatedField;
using google::protobuf::RepeatedPtrField;

// Writes values into messages.
struct Writer {
  static constexpr bool kReads = false;
  static constexpr int num_shards = 0;
  template <typename Value>
  void Require(bool, absl::string_view, Value, absl::string_view) {}
  void CheckText(absl::string_view, const std::string&, int) {}
  static constexpr bool ok() { return true; }
};

// Reads messages, and believes nothing that it reads: `status` is the first
// error, of a field that has another value than it may have.
struct Reader {
  static constexpr bool kReads = true;
  template <typename Value>
  void Require(bool ok, absl::string_view field, Value value,
               absl::string_view allowed) {
    if (!ok) status.Update(FieldError(field, absl::StrCat(value), allowed));
  }
  void CheckText(absl::string_view field, const std::string& text,
                 int most_bytes) {
    status.Update(ValidateText(field, text, most_bytes));
  }
  bool ok() const { return status.ok(); }
  int num_shards = 0;  // of the job, whose parts are read; 0: none are
  absl::Status status;
};

// What Fields(A& ar, message, value) is given: the one that it changes is not
// const.
template <typename A, typename Message>
using MessageOf = std::conditional_t<A::kReads, const Message&, Message&>;
template <typename A, typename Value>
using ValueOf = std::conditional_t<A::kReads, Value&, const Value&>;

// Lists of numbers, and of messages, are appended to what is there. After an
// error nothing more is read.
template <typename A, typename From, typename To>
void Copy(A&, const RepeatedField<From>& from, std::vector<To>* to) {
  to->insert(to->end(), from.begin(), from.end());
}
template <typename A, typename From, typename To>
void Copy(A&, const std::vector<From>& from, RepeatedField<To>* to) {
  to->Add(from.begin(), from.end());
}
template <typename A, typename Message, typename List>
void Copy(A& ar, const RepeatedPtrField<Message>& from, List* to) {
  for (const Message& message : from) {
    if (!ar.ok()) return;
    std::decay_t<decltype((*to)[0])> value;
    Fields(ar, message, value);
    to->push_back(std::move(value));
  }
}
template <typename A, typename List, typename Message>
void Copy(A& ar, const List& from, RepeatedPtrField<Message>* to) {
  for (size_t i = 0; i < from.size(); ++i) Fields(ar, *to->Add(), from[i]);
}

// The lines of a function Fields, whose parameters are `ar`, `m` and `v`: how
// the field `name` of the message goes with a part of the value.

// A number, a text, or an enum whose values are the same ones in both.
#define AGG_FIELD(name, part)                                          \
  if constexpr (A::kReads) {                                           \
    (part) = static_cast<std::decay_t<decltype(part)>>(m.name());      \
  } else {                                                             \
    m.set_##name(static_cast<std::decay_t<decltype(m.name())>>(part)); \
  }
// An optional number: what is below 0 is none.
#define AGG_OPTIONAL(name, part)                  \
  if (A::kReads ? m.has_##name() : (part) >= 0) { \
    AGG_FIELD(name, part);                        \
  }
// Numbers or messages.
#define AGG_LIST(name, part)            \
  if constexpr (A::kReads) {            \
    Copy(ar, m.name(), &(part));        \
  } else {                              \
    Copy(ar, part, m.mutable_##name()); \
  }
// A message in the message: the expression, and its fields.
#define AGG_SUB(name)               \
  [&]() -> decltype(auto) {         \
    if constexpr (A::kReads) {      \
      return (m.name());            \
    } else {                        \
      return (*m.mutable_##name()); \
    }                               \
  }()
#define AGG_MESSAGE(name, part) Fields(ar, AGG_SUB(name), part)
// One that is written if `condition`, and read if it is there.
#define AGG_MESSAGE_IF(condition, name, part)     \
  if (A::kReads ? m.has_##name() : (condition)) { \
    AGG_MESSAGE(name, part);                      \
  }

// A number from the network that nobody here knows must not become an action.

using WireAction = v1::PhaseRequest::Recover;
static_assert(WireAction::VOID == static_cast<int>(CopyAction::kVoid) &&
              WireAction::KEEP == static_cast<int>(CopyAction::kKeep) &&
              WireAction::STEP == static_cast<int>(CopyAction::kStep) &&
              WireAction::LOAD == static_cast<int>(CopyAction::kLoad));
using Stage = CheckpointProgress::Stage;
using WireStage = v1::CheckpointProgress;
static_assert(WireStage::NONE == static_cast<int>(Stage::kNone) &&
              WireStage::WRITING == static_cast<int>(Stage::kWriting) &&
              WireStage::WRITTEN == static_cast<int>(Stage::kWritten) &&
              WireStage::FAILED == static_cast<int>(Stage::kFailed));

// --- Rows and their sums -----------------------------------------------------

template <typename A>
void Fields(A&, MessageOf<A, v1::RoundRow> m, ValueOf<A, RoundRow> v) {
  AGG_FIELD(rank, v.rank);
  AGG_FIELD(session, v.session);
  AGG_FIELD(attempt, v.attempt);
}

template <typename A>
void Fields(A& ar, MessageOf<A, v1::SliceGram> m, ValueOf<A, SliceGram> v) {
  AGG_FIELD(slice, v.slice);
  AGG_LIST(hi, v.hi);
  AGG_LIST(lo, v.lo);
}

template <typename A>
void Fields(A&, MessageOf<A, v1::SliceNorms> m, ValueOf<A, SliceNorms> v) {
  AGG_FIELD(slice, v.slice);
  AGG_FIELD(parameter_norm_squared, v.parameter_norm_squared);
  AGG_FIELD(update_norm_squared, v.update_norm_squared);
}

template <typename A>
void Fields(A& ar, MessageOf<A, v1::CloseOffer> m, ValueOf<A, CloseOffer> v) {
  AGG_FIELD(round, v.round);
  AGG_LIST(rows, v.rows);
  AGG_LIST(grams, v.result.grams);
  AGG_LIST(row_crc32c, v.result.row_crc32c);
  AGG_FIELD(seconds, v.result.seconds);
}

// A report that is held back is told within a second.
constexpr uint64_t kMaxMicrosecondsAgo = 60'000'000;

template <typename A>
void Fields(A&, MessageOf<A, v1::CompleteRow> m, ValueOf<A, CompleteRow> v) {
  AGG_FIELD(session, v.session);
  AGG_FIELD(round, v.round);
  AGG_FIELD(attempt, v.attempt);
  AGG_FIELD(waves, v.waves);
  if constexpr (A::kReads) {
    // What is no number of waves is none of them.
    if (m.waves() > kMaxWaves) v.waves = 0;
    v.ago = absl::Microseconds(
        std::min<uint64_t>(m.microseconds_ago(), kMaxMicrosecondsAgo));
  } else {
    m.set_microseconds_ago(static_cast<uint64_t>(
        std::max<int64_t>(absl::ToInt64Microseconds(v.ago), 0)));
  }
}

// --- Sessions, facts, and what a shard holds ---------------------------------

template <typename A>
void Fields(A& ar, MessageOf<A, v1::SessionChange> m,
            ValueOf<A, SessionChange> v) {
  AGG_FIELD(session, v.session);
  AGG_FIELD(rank, v.rank);
  AGG_FIELD(replaces, v.replaces);
  AGG_FIELD(keep_row, v.keep_row);
  AGG_FIELD(remove, v.remove);
  AGG_FIELD(seed_role, v.seed_role);
  AGG_FIELD(evicted, v.evicted);
  AGG_FIELD(reason, v.reason);
  AGG_FIELD(finished, v.finished);
  AGG_FIELD(first_round, v.first_round);
  AGG_FIELD(client, v.client);
  AGG_FIELD(identity, v.identity);
  ar.CheckText("reason", v.reason, kMaxReasonBytes);
  ar.CheckText("client", v.client, kMaxTextBytes);
  ar.CheckText("identity", v.identity, kMaxTextBytes);
}

template <typename A>
void Fields(A& ar, MessageOf<A, v1::JobFacts> m, ValueOf<A, JobFacts> v) {
  ar.CheckText("facts.text", m.text(), kMaxFactsBytes);
  AGG_FIELD(epoch, v.epoch);
  AGG_FIELD(number, v.number);
  AGG_FIELD(text, v.text);
}

// The part of a job of `num_shards`, as it was in the message.
template <typename A>
void RequirePart(A& ar, absl::string_view field, int32_t part,
                 int64_t num_shards) {
  const auto wire = static_cast<uint32_t>(part);
  ar.Require(wire < num_shards, field, wire,
             absl::StrCat("0 to ", num_shards - 1));
}

template <typename A>
void Fields(A& ar, MessageOf<A, v1::CopyState> m, ValueOf<A, CopyState> v) {
  AGG_FIELD(part, v.part);
  AGG_FIELD(version, v.id.version);
  AGG_FIELD(made, v.id.made);
  AGG_FIELD(prepared_by, v.prepared_by);
  AGG_FIELD(whole, v.whole);
  RequirePart(ar, "attach_reply.copies.part", v.part, ar.num_shards);
}

template <typename A>
void Fields(A& ar, MessageOf<A, v1::MemberState> m, ValueOf<A, MemberState> v) {
  AGG_FIELD(rank, v.rank);
  AGG_FIELD(session, v.session);
  AGG_FIELD(first_round, v.first_round);
  AGG_FIELD(client, v.client);
  AGG_FIELD(identity, v.identity);
  ar.Require(v.rank >= 0 && v.rank < kMaxPhaseWorkers,
             "attach_reply.members.rank", v.rank,
             absl::StrCat("0 to ", kMaxPhaseWorkers - 1));
  ar.Require(v.session != 0, "attach_reply.members.session", 0, "at least 1");
  ar.CheckText("attach_reply.members.client", v.client, kMaxTextBytes);
  ar.CheckText("attach_reply.members.identity", v.identity, kMaxTextBytes);
}

// A checkpoint may be of another number of shards than the job has now.
template <typename A>
void Fields(A& ar, MessageOf<A, v1::CheckpointState> m,
            ValueOf<A, CheckpointState> v) {
  AGG_FIELD(made, v.id.made);
  AGG_FIELD(version, v.id.version);
  AGG_FIELD(num_shards, v.num_shards);
  AGG_FIELD(manifest, v.manifest);
  AGG_LIST(parts, v.parts);
  ar.Require(m.num_shards() <= kMaxPhaseShards,
             "attach_reply.checkpoints.num_shards", m.num_shards(),
             absl::StrCat("0 to ", kMaxPhaseShards));
  constexpr char kParts[] = "attach_reply.checkpoints.parts";
  for (size_t i = 0; i < v.parts.size() && ar.ok(); ++i) {
    RequirePart(ar, kParts, v.parts[i], v.num_shards);
    if (i == 0) continue;
    const int before = v.parts[i - 1];
    ar.Require(v.parts[i] > before, kParts, v.parts[i],
               absl::StrCat("above ", before, ", the one before"));
  }
}

// A shard holds at most two copies: of its own part and of its neighbour's.
constexpr int kMaxCopies = 2;

// Lists are bounded on both sides: what is sent too much would make a shard
// that nobody can attach, what is received too much is refused before it takes
// memory.
#define AGG_LIST_UP_TO(most, name, part)                                   \
  ar.Require(m.name().size() <= (most), "attach_reply." #name,             \
             m.name().size(), absl::StrCat("at most ", most, " entries")); \
  if (m.name().size() <= (most)) {                                         \
    AGG_LIST(name, part);                                                  \
  }

template <typename A>
void Fields(A& ar, MessageOf<A, v1::AttachReply> m,
            ValueOf<A, ShardInventory> v) {
  AGG_FIELD(life, v.life);
  AGG_FIELD(local_socket, v.local_socket);
  AGG_FIELD(region_socket, v.region_socket);
  AGG_FIELD(member_epoch, v.member_epoch);
  AGG_FIELD(has_manifest, v.has_manifest);
  AGG_FIELD(highest_session, v.highest_session);
  AGG_LIST_UP_TO(kMaxCopies, copies, v.copies);
  AGG_LIST_UP_TO(kMaxPhaseWorkers, members, v.members);
  AGG_LIST_UP_TO(kMaxReportedCheckpoints, checkpoints, v.checkpoints.states);
  AGG_FIELD(checkpoint_folder, v.checkpoints.folder);
  AGG_FIELD(checkpoint_error, v.checkpoints.error);
  AGG_FIELD(begun_anew, v.checkpoints.begun_anew);
  AGG_LIST_UP_TO(kMaxReportedCheckpoints, other_checkpoints,
                 v.other_checkpoints.states);
  AGG_FIELD(other_checkpoint_folder, v.other_checkpoints.folder);
  AGG_FIELD(other_checkpoint_error, v.other_checkpoints.error);
  AGG_LIST_UP_TO(kMaxEndedSessions, ended_sessions, v.ended_sessions);
  AGG_MESSAGE(facts, v.facts);
}

// --- Phases ------------------------------------------------------------------

template <typename A>
void Fields(A&, MessageOf<A, v1::PhaseRequest::Version> m,
            ValueOf<A, VersionId> v) {
  AGG_FIELD(made, v.made);
  AGG_FIELD(version, v.version);
}

// All but the lists that may be cut.
template <typename A>
void Fields(A& ar, MessageOf<A, v1::StepPlan> m, ValueOf<A, StepPlan> v) {
  AGG_FIELD(per_tensor, v.per_tensor);
  AGG_LIST(excluded_ranks, v.excluded_ranks);
  AGG_FIELD(learning_rate, v.learning_rate);
  AGG_LIST(group_rates, v.group_rates);
  AGG_FIELD(step, v.step);
  AGG_FIELD(renews_state, v.renews_state);
}

template <typename A>
void Fields(A& ar, MessageOf<A, v1::PhaseRequest::Close> m,
            ValueOf<A, Phase> v) {
  AGG_LIST(rows, v.rows);
}

template <typename A>
void Fields(A& ar, MessageOf<A, v1::PhaseRequest::CompensatedGram> m,
            ValueOf<A, Phase> v) {
  AGG_LIST(tensors, v.tensors);
}

template <typename A>
void Fields(A&, MessageOf<A, v1::PhaseRequest::Publish> m,
            ValueOf<A, PublishPlan> v) {
  AGG_FIELD(version, v.version);
  AGG_FIELD(unchanged, v.unchanged);
  AGG_FIELD(seed, v.seed);
  AGG_FIELD(seed_session, v.seed_session);
  AGG_FIELD(seed_attempt, v.seed_attempt);
}

template <typename A>
void Fields(A&, MessageOf<A, v1::PhaseRequest::LoadSeed> m,
            ValueOf<A, PublishPlan> v) {
  AGG_FIELD(seed_session, v.seed_session);
  AGG_FIELD(seed_attempt, v.seed_attempt);
  if constexpr (A::kReads) v.seed = true;
}

template <typename A>
void Fields(A& ar, MessageOf<A, v1::PhaseRequest::Recover> m,
            ValueOf<A, RecoverPlan> v) {
  AGG_MESSAGE(target, v.target);
  AGG_FIELD(unseeded, v.unseeded);
  AGG_FIELD(home, v.home);
  AGG_FIELD(replica, v.replica);
  ar.Require(WireAction::Action_IsValid(m.home()), "recover.home",
             static_cast<int>(m.home()),
             "VOID (0), KEEP (1), STEP (2), LOAD (3)");
  // A replica is fetched and never loaded.
  ar.Require(WireAction::Action_IsValid(m.replica()) &&
                 m.replica() != WireAction::LOAD,
             "recover.replica", static_cast<int>(m.replica()),
             "VOID (0), KEEP (1), STEP (2)");
  AGG_MESSAGE(facts, v.facts);
}

template <typename A>
void Fields(A& ar, MessageOf<A, v1::PhaseRequest::Seal> m,
            ValueOf<A, Phase> v) {
  AGG_FIELD(keep, v.keep);
  AGG_FIELD(line, v.line);
  AGG_FIELD(begins_anew, v.begins_anew);
  AGG_MESSAGE_IF(v.checkpoint.empty() && !v.begins_anew, discard, v.id);
  ar.Require(v.keep >= 1, "seal.keep", v.keep, "at least 1");
}

template <typename A>
void Fields(A&, MessageOf<A, v1::Manifest> m,
            ValueOf<A, std::shared_ptr<const Manifest>> v) {
  if constexpr (A::kReads) {
    v = std::make_shared<const Manifest>(FromProto(m));
  } else {
    m = ToProto(*v);
  }
}

template <typename A>
void Fields(A&, MessageOf<A, v1::PhaseRequest::ReserveRow> m,
            ValueOf<A, SessionChange> v) {
  AGG_FIELD(rank, v.rank);
  AGG_FIELD(session, v.session);
}

// A phase without fields, or none but its text.
struct Nothing {};
template <typename A, typename Message>
void Fields(A&, Message&, Nothing) {}

// Each kind of phase: its names in PhaseKind, which are those of the cases of
// v1::PhaseRequest, its message there, and what of the phase `v` the message
// has.
#define AGG_PHASES(LINE)                                    \
  LINE(kClose, close, v)                                    \
  LINE(kCompensatedGram, compensated_gram, v)               \
  LINE(kNorms, norms, v.step)                               \
  LINE(kUpdate, update, v.step)                             \
  LINE(kPublish, publish, v.publish)                        \
  LINE(kAbandon, abandon, Nothing())                        \
  LINE(kLoadSeed, load_seed, v.publish)                     \
  LINE(kRecover, recover, v.recover)                        \
  LINE(kFetch, fetch, v.id)                                 \
  LINE(kOpen, open, v.id)                                   \
  LINE(kCapture, capture, v.id)                             \
  LINE(kCheckpointProgress, checkpoint_progress, Nothing()) \
  LINE(kSeal, seal, v)                                      \
  LINE(kReadManifest, read_manifest, v.id)                  \
  LINE(kVerify, verify, Nothing())                          \
  LINE(kSetManifest, set_manifest, v.manifest)              \
  LINE(kGetManifest, get_manifest, Nothing())               \
  LINE(kForgetManifest, forget_manifest, Nothing())         \
  LINE(kReserveRow, reserve_row, v.session)                 \
  LINE(kSetSession, set_session, v.session)                 \
  LINE(kSetFacts, set_facts, v.facts)

absl::StatusOr<PhaseKind> KindOf(v1::PhaseRequest::PhaseCase phase) {
  switch (phase) {
#define AGG_KIND(kind, name, part) \
  case v1::PhaseRequest::kind:     \
    return PhaseKind::kind;
    AGG_PHASES(AGG_KIND)
#undef AGG_KIND
    case v1::PhaseRequest::PHASE_NOT_SET:
      break;
  }
  std::vector<std::string> names;
#define AGG_NAME(kind, name, part) names.push_back(#name);
  AGG_PHASES(AGG_NAME)
#undef AGG_NAME
  return FieldError("phase", "none", absl::StrJoin(names, ", "));
}

// All but what Parts has. REQUIRES: v.kind is set.
template <typename A>
void Fields(A& ar, MessageOf<A, v1::PhaseRequest> m, ValueOf<A, Phase> v) {
  AGG_FIELD(epoch, v.epoch);
  AGG_FIELD(round, v.round);
  AGG_FIELD(wave, v.wave);
  ar.Require(m.wave() <= static_cast<uint32_t>(kMaxWaves), "wave", m.wave(),
             absl::StrCat("0 to ", kMaxWaves));
  if (v.kind != PhaseKind::kClose) {
    AGG_LIST(offered_rows, v.rows);
  }
  if (v.kind == PhaseKind::kUpdate) {
    AGG_MESSAGE(replica_step, v.replica_step);
    AGG_FIELD(unchanged, v.publish.unchanged);
    if constexpr (A::kReads) {
      v.publish.version = m.publish_version();
      v.publishes = v.publish.version != 0;
    } else if (v.publishes) {
      m.set_publish_version(v.publish.version);
    }
  }
  switch (v.kind) {
#define AGG_BODY(kind, name, part) \
  case PhaseKind::kind:            \
    return AGG_MESSAGE(name, part);
    AGG_PHASES(AGG_BODY)
#undef AGG_BODY
  }
}

// --- Parts: lists and texts that may be cut ----------------------------------

// Writes as much of each part as a message takes, where the last one ended.
class Cutter : public Writer {
 public:
  // `room`: for so many numbers. *sent: what has been sent of each part, in the
  // order in which they are written; of texts, bytes.
  Cutter(size_t room, std::vector<size_t>* sent) : room_(room), sent_(sent) {}

  template <typename From, typename To>
  void Next(const std::vector<From>& from, RepeatedField<To>* to) {
    const auto [begin, count] = Take(from.size(), room_);
    to->Add(from.begin() + begin, from.begin() + begin + count);
    room_ -= count;
  }
  // 8 bytes of a text count as a number.
  void Next(const std::string& from, std::string* to) {
    const auto [begin, count] = Take(from.size(), 8 * room_);
    to->append(from, begin, count);
    room_ -= (count + 7) / 8;
  }
  // Whether all parts have been sent to their ends.
  bool done() const { return done_; }

 private:
  // Where the next piece of a part begins, and its size.
  std::pair<size_t, size_t> Take(size_t size, size_t room) {
    if (part_ == sent_->size()) sent_->push_back(0);
    size_t& sent = (*sent_)[part_++];
    const size_t begin = sent;
    const size_t count = std::min(size - begin, room);
    sent += count;
    done_ &= sent == size;
    return {begin, count};
  }

  size_t room_;
  std::vector<size_t>* const sent_;
  size_t part_ = 0;
  bool done_ = true;
};

#define AGG_PART(name, part)           \
  if constexpr (A::kReads) {           \
    Append(m.name(), &(part));         \
  } else {                             \
    ar.Next(part, m.mutable_##name()); \
  }

template <typename From, typename To>
void Append(const From& from, To* to) {
  to->insert(to->end(), from.begin(), from.end());
}

template <typename A>
void Lists(A& ar, MessageOf<A, v1::StepPlan> m, ValueOf<A, StepPlan> v) {
  AGG_PART(coefficients, v.coefficients);
  AGG_PART(tensors, v.tensors);
  AGG_PART(trust, v.trust);
}

// The text of a checkpoint.
template <typename A, typename Message>
void Text(A& ar, Message& m, ValueOf<A, std::string> text) {
  AGG_PART(checkpoint, text);
}

template <typename A>
void Parts(A& ar, MessageOf<A, v1::PhaseRequest> m, ValueOf<A, Phase> v,
           ValueOf<A, std::string> record) {
  if (v.kind == PhaseKind::kNorms) Lists(ar, AGG_SUB(norms), v.step);
  if (v.kind == PhaseKind::kUpdate) {
    Lists(ar, AGG_SUB(update), v.step);
    Lists(ar, AGG_SUB(replica_step), v.replica_step);
  }
  if (v.kind == PhaseKind::kRecover) Text(ar, AGG_SUB(recover), v.checkpoint);
  if (v.kind == PhaseKind::kVerify) Text(ar, AGG_SUB(verify), v.checkpoint);
  if (v.kind == PhaseKind::kSeal) Text(ar, AGG_SUB(seal), v.checkpoint);
  AGG_PART(record, record);
}

}  // namespace

absl::Status PhaseAssembly::Add(const v1::PhaseRequest& request) {
  num_bytes_ += static_cast<int64_t>(request.ByteSizeLong());
  if (num_bytes_ > kMaxPhaseBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the phase has more than ", kMaxPhaseBytes, " bytes"));
  }
  Reader reader;
  if (case_ == v1::PhaseRequest::PHASE_NOT_SET) {
    case_ = request.phase_case();
    AGG_ASSIGN_OR_RETURN(phase_.kind, KindOf(case_));
    Fields(reader, request, phase_);
  } else if (request.phase_case() != case_ || request.epoch() != phase_.epoch ||
             request.round() != phase_.round) {
    return absl::InvalidArgumentError(
        absl::StrCat("a later message of a phase is of another one; allowed: ",
                     PhaseName(phase_.kind), " of epoch ", phase_.epoch,
                     " and round ", phase_.round, ", as the first message"));
  }
  Parts(reader, request, phase_, record_);
  return reader.ok() ? CheckSize() : reader.status;
}

namespace {

absl::Status CheckStep(absl::string_view name, const StepPlan& step) {
  // A varint of one byte becomes a number of four.
  if (static_cast<int64_t>(step.tensors.size()) <= kMaxPhaseTensors &&
      static_cast<int64_t>(step.trust.size()) <= kMaxPhaseTensors &&
      static_cast<int64_t>(step.excluded_ranks.size()) <= kMaxPhaseWorkers &&
      static_cast<int64_t>(step.coefficients.size()) <=
          kMaxPhaseTensors * kMaxPhaseWorkers) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "a ", name, " has ", step.tensors.size(), " tensors, ", step.trust.size(),
      " trust ratios, ", step.excluded_ranks.size(), " excluded ranks and ",
      step.coefficients.size(), " coefficients; allowed: of ", kMaxPhaseTensors,
      " tensors and ", kMaxPhaseWorkers, " workers at most"));
}

}  // namespace

absl::Status PhaseAssembly::CheckSize() const {
  if (phase_.rows.size() > kMaxPhaseWorkers) {
    return absl::ResourceExhaustedError(
        absl::StrCat(PhaseName(phase_.kind), " has ", phase_.rows.size(),
                     " rows; allowed: ", kMaxPhaseWorkers, " at most"));
  }
  if (static_cast<int64_t>(phase_.tensors.size()) > kMaxPhaseTensors) {
    return absl::ResourceExhaustedError(
        absl::StrCat("compensated_gram has ", phase_.tensors.size(),
                     " tensors; allowed: ", kMaxPhaseTensors, " at most"));
  }
  const absl::Status status = CheckStep("step", phase_.step);
  return status.ok() ? CheckStep("replica_step", phase_.replica_step) : status;
}

Phase PhaseAssembly::Take() {
  if (!record_.empty()) {
    phase_.record = std::make_shared<const std::string>(std::move(record_));
  }
  return std::move(phase_);
}

// --- Replies -----------------------------------------------------------------

namespace {

absl::Status ErrorOf(const v1::CheckpointProgress& progress) {
  if (!WireStage::Stage_IsValid(progress.stage())) {
    return FieldError("checkpoint.stage",
                      absl::StrCat(static_cast<int>(progress.stage())),
                      "NONE (0), WRITING (1), WRITTEN (2), FAILED (3)");
  }
  if (progress.stage() != WireStage::FAILED) return absl::OkStatus();
  // A failure without a code is a failure all the same.
  return progress.code() > 0 && progress.code() <= 16
             ? absl::Status(static_cast<absl::StatusCode>(progress.code()),
                            progress.message())
             : absl::UnknownError(progress.message());
}

// A stage that this release does not know is a failed checkpoint.
template <typename A>
void Fields(A&, MessageOf<A, v1::CheckpointProgress> m,
            ValueOf<A, CheckpointProgress> v) {
  AGG_FIELD(stage, v.stage);
  AGG_FIELD(made, v.id.made);
  AGG_FIELD(version, v.id.version);
  AGG_FIELD(file, v.part.file);
  AGG_FIELD(bytes, v.part.num_bytes);
  AGG_FIELD(crc32c, v.part.crc32c);
  AGG_FIELD(num_skipped, v.num_skipped);
  if constexpr (A::kReads) {
    v.error = ErrorOf(m);
    if (!v.error.ok()) v.stage = Stage::kFailed;
    if (v.stage != Stage::kWritten) v.part = {};
  } else {
    m.set_code(static_cast<int>(v.error.code()));
    m.set_message(std::string(v.error.message()));
  }
}

template <typename A>
void Fields(A&, MessageOf<A, v1::NarrowingLoss> m,
            ValueOf<A, NarrowingLoss> v) {
  AGG_OPTIONAL(slice, v.slice);
  AGG_FIELD(num_infinite, v.num_infinite);
  AGG_FIELD(num_compared, v.num_compared);
  AGG_FIELD(num_vanished, v.num_vanished);
}

// What is no list of slices, and no text: it is in the last message alone.
template <typename A>
void Fields(A& ar, MessageOf<A, v1::PhaseReply> m, ValueOf<A, PhaseResult> v) {
  AGG_FIELD(seconds, v.seconds);
  AGG_LIST(incomplete_ranks, v.incomplete_ranks);
  AGG_LIST(row_crc32c, v.row_crc32c);
  AGG_OPTIONAL(not_finite_slice, v.not_finite_slice);
  AGG_MESSAGE_IF(v.narrowing.slice >= 0 || v.narrowing.num_compared > 0,
                 narrowing, v.narrowing);
  AGG_MESSAGE_IF(
      v.checkpoint.stage != Stage::kNone || v.checkpoint.num_skipped > 0,
      checkpoint, v.checkpoint);
  AGG_MESSAGE_IF(v.job_manifest != nullptr, job_manifest, v.job_manifest);
}

// At least the encoded size of one entry.
int64_t EncodedBytes(const SliceGram& gram) {
  return static_cast<int64_t>(gram.hi.size() + gram.lo.size()) * 8 + 32;
}
constexpr int64_t kNormsBytes = 32;

// Numbers that `bytes` have room for: none takes more than 8 on the wire.
size_t RoomIn(int64_t bytes) {
  return static_cast<size_t>(std::max<int64_t>(1, bytes / 8));
}

}  // namespace

bool PhaseRequests::Next(v1::PhaseRequest* request) {
  if (done_) return false;
  request->Clear();
  const std::string none;
  Cutter cutter(RoomIn(max_bytes_), &sent_);
  if (std::exchange(first_, false)) {
    Fields(cutter, *request, phase_);
  } else {
    request->set_epoch(phase_.epoch);
    request->set_round(phase_.round);
  }
  Parts(cutter, *request, phase_,
        phase_.record == nullptr ? none : *phase_.record);
  done_ = cutter.done();
  request->set_more(!done_);
  return true;
}

PhaseReplies::PhaseReplies(PhaseResult result, int64_t max_bytes)
    : result_(std::move(result)), max_bytes_(max_bytes) {}

bool PhaseReplies::AddSlices(v1::PhaseReply* reply, int64_t* bytes) {
  // Whether an entry of that many bytes goes into this message, too.
  const auto fits = [&](int64_t entry_bytes) {
    if (*bytes > 0 && *bytes + entry_bytes > max_bytes_) return false;
    *bytes += entry_bytes;
    return true;
  };
  Writer writer;
  for (; grams_ < result_.grams.size(); ++grams_) {
    if (!fits(EncodedBytes(result_.grams[grams_]))) return false;
    Fields(writer, *reply->add_grams(), result_.grams[grams_]);
  }
  for (; norms_ < result_.norms.size(); ++norms_) {
    if (!fits(kNormsBytes)) return false;
    Fields(writer, *reply->add_norms(), result_.norms[norms_]);
  }
  return true;
}

bool PhaseReplies::Next(v1::PhaseReply* reply) {
  if (done_) return false;
  reply->Clear();
  int64_t bytes = 0;
  if (!AddSlices(reply, &bytes)) return true;
  Cutter cutter(RoomIn(max_bytes_ - bytes), &sent_);
  cutter.Next(result_.manifest, reply->mutable_manifest());
  if (!cutter.done()) return true;
  Fields(cutter, *reply, result_);
  done_ = true;
  return true;
}

void AppendReply(const v1::PhaseReply& reply, const GramSink& sink,
                 PhaseResult* result) {
  Reader reader;
  for (const v1::SliceGram& message : reply.grams()) {
    SliceGram gram;
    Fields(reader, message, gram);
    sink(std::move(gram));
  }
  Copy(reader, reply.norms(), &result->norms);
  result->manifest.append(reply.manifest());
  Fields(reader, reply, *result);
}

// --- Attach ------------------------------------------------------------------

namespace {

// Limit of a path, and of an error that names it.
constexpr size_t kMaxFolderBytes = 1024;

// The newest ones of a shard's checkpoints.
void KeepReported(std::vector<CheckpointState>* checkpoints) {
  std::sort(checkpoints->begin(), checkpoints->end(),
            [](const CheckpointState& a, const CheckpointState& b) {
              return b.id < a.id;
            });
  if (checkpoints->size() > kMaxReportedCheckpoints) {
    checkpoints->resize(kMaxReportedCheckpoints);
  }
}

// They are for people, and a path may be long. A character that is cut would
// make the status of the job no message.
void CutTexts(CheckpointListing* listing) {
  listing->folder = ValidUtf8(listing->folder.substr(0, kMaxFolderBytes));
  listing->error = ValidUtf8(listing->error.substr(0, kMaxFolderBytes));
}

}  // namespace

void AddInventory(ShardInventory inventory, v1::AttachReply* reply) {
  KeepReported(&inventory.checkpoints.states);
  KeepReported(&inventory.other_checkpoints.states);
  Writer writer;
  Fields(writer, *reply, inventory);
}

absl::StatusOr<ShardInventory> FromProto(const v1::AttachReply& reply,
                                         int num_shards) {
  ShardInventory inventory;
  Reader reader;
  reader.num_shards = num_shards;
  Fields(reader, reply, inventory);
  if (!reader.ok()) return reader.status;
  // They go to the workers as they are.
  for (std::string* name :
       {&inventory.local_socket, &inventory.region_socket}) {
    if (!IsLocalSocketName(*name)) name->clear();
  }
  CutTexts(&inventory.checkpoints);
  CutTexts(&inventory.other_checkpoints);
  return inventory;
}

std::shared_ptr<const CloseOffer> FromProto(const v1::CloseOffer& message) {
  if (static_cast<int64_t>(message.rows_size()) > kMaxPhaseWorkers ||
      message.row_crc32c_size() != message.rows_size()) {
    return nullptr;
  }
  auto offer = std::make_shared<CloseOffer>();
  Reader reader;
  Fields(reader, message, *offer);
  return offer;
}

v1::AttachReply ReportOf(const std::vector<CompleteRow>& rows,
                         const CloseOffer* offer) {
  v1::AttachReply reply;
  Writer writer;
  if (offer != nullptr) Fields(writer, *reply.mutable_offer(), *offer);
  Copy(writer, rows, reply.mutable_complete_rows());
  return reply;
}

std::vector<CompleteRow> CompleteRowsOf(const v1::AttachReply& reply) {
  std::vector<CompleteRow> rows;
  Reader reader;
  Copy(reader, reply.complete_rows(), &rows);
  return rows;
}

}  // namespace agg
