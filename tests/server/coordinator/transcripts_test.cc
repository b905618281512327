// Replays transcripts/*.txt: joins, commits, closes and recoveries as plays. A
// scene begins with "== " and a sentence, and with a new job. It consists of
// lines "COMMAND NAME=VALUE ..", "----", the answers and an empty line. A
// command calls the real JobState, DecideClose or DecideRecovery, and says what
// that returned, and what shards and workers hear.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <istream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shard_plan.h"
#include "server/base/field_error.h"
#include "server/coordinator/close_policy.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/job_record.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/recovery_plan.h"
#include "server/round/recovery.h"
#include "server/round/shard_peer.h"
#include "tests/server/coordinator/recovery_actions.h"

namespace agg {
namespace {

constexpr uint64_t kEpoch = 100;
constexpr uint64_t kFirstSession = kEpoch * 4096;  // below those of the epoch

// --- Arguments and words ----------------------------------------------------

// Arguments of one command. A command takes those that it knows; what is left
// then, or cannot be read, is an error.
class Arguments {
 public:
  explicit Arguments(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      const std::pair<std::string, std::string> argument =
          absl::StrSplit(word, absl::MaxSplits('=', 1));
      if (!values_.insert(argument).second) {
        error_ = absl::StrCat(argument.first, " stands twice");
      }
    }
  }
  bool Has(const std::string& name) const { return values_.count(name) != 0; }
  std::string Text(const std::string& name, std::string missing = "") {
    const auto found = values_.find(name);
    if (found == values_.end()) return missing;
    std::string value = std::move(found->second);
    values_.erase(found);
    return value;
  }
  template <typename T>
  T Number(const std::string& name, T missing = 0) {
    return Read(name, Text(name, absl::StrCat(missing)), missing);
  }
  double Real(const std::string& name, double missing) {
    const std::string text = Text(name, absl::StrCat(missing));
    if (!absl::SimpleAtod(text, &missing)) Refuse(name, text, "a number");
    return missing;
  }
  int Choice(const std::string& name, const std::vector<std::string>& allowed) {
    const std::string text = Text(name, allowed[0]);
    const auto found = std::find(allowed.begin(), allowed.end(), text);
    if (found == allowed.end()) {
      Refuse(name, text, absl::StrJoin(allowed, ", "));
      return 0;
    }
    return static_cast<int>(found - allowed.begin());
  }
  bool Flag(const std::string& name) {
    return Choice(name, {"no", "yes"}) == 1;
  }
  template <typename T>
  std::vector<T> Numbers(const std::string& name) {
    std::vector<T> numbers;
    const std::string text = Text(name);
    for (const absl::string_view word :
         absl::StrSplit(text, ',', absl::SkipEmpty())) {
      numbers.push_back(Read(name, std::string(word), T{0}));
    }
    return numbers;
  }
  // Seconds; a time is counted from the scene's beginning.
  absl::Duration Seconds(const std::string& name, int missing = 0) {
    return absl::Seconds(Number(name, missing));
  }
  absl::Time At(const std::string& name = "at") {
    return absl::UnixEpoch() + Seconds(name);
  }
  // "s2" is the second session that the epoch has given; others are numbers.
  uint64_t Session(const std::string& name = "session") {
    const std::string text = Text(name, "0");
    absl::string_view digits = text;
    const bool of_epoch = absl::ConsumePrefix(&digits, "s");
    return Read(name, std::string(digits), uint64_t{0}) +
           (of_epoch ? kFirstSession : 0);
  }
  std::string Error() const {
    if (!error_.empty() || values_.empty()) return error_;
    return absl::StrCat("argument \"", values_.begin()->first,
                        "\" is not known to this command");
  }

 private:
  template <typename T>
  T Read(const std::string& name, const std::string& text, T number) {
    if (!absl::SimpleAtoi(text, &number)) Refuse(name, text, "a number");
    return number;
  }
  void Refuse(const std::string& name, const std::string& text,
              const std::string& allowed) {
    error_ = absl::StrCat(name, " is \"", text, "\"; allowed: ", allowed);
  }

  std::map<std::string, std::string> values_;
  std::string error_;
};

std::string Session(uint64_t session) {
  if (session == 0) return "observer";
  return session > kFirstSession
             ? absl::StrCat("session s", session - kFirstSession)
             : absl::StrCat("session ", session);
}

std::string Text(absl::Time time) {
  return absl::StrCat(absl::ToUnixSeconds(time));
}

std::string Text(const absl::Status& status) {
  if (status.ok()) return "OK";
  return absl::StrCat(absl::StatusCodeToString(status.code()),
                      IsLimitError(status) ? " (a limit)" : "", ": ",
                      status.message());
}

std::string Text(const std::vector<int32_t>& numbers) {
  return numbers.empty() ? "none" : absl::StrJoin(numbers, " ");
}

std::string Text(const OutcomeAnswer& answer) {
  if (!answer.ok()) return Text(answer.status());
  if (IsPending(answer)) return "waits";
  const RoundResult& result = **answer;
  if (result.kind == OutcomeKind::kSeeded) return "its seed is published";
  return absl::StrCat(
      result.included ? "included in version " : "not included in version ",
      result.version, " of epoch ", result.epoch, ", of ranks ",
      Text(result.ranks), result.finished ? "; the job is over" : "");
}

std::string Text(const SessionChange& change) {
  if (change.finished) return "shards hear: the job is over";
  std::string text =
      absl::StrCat("shards hear: ", Session(change.session), " of rank ",
                   change.rank, change.remove ? " is over" : "");
  if (change.replaces != 0) {
    absl::StrAppend(&text, " replaces ", Session(change.replaces));
  }
  if (change.seed_role) absl::StrAppend(&text, " seeds");
  if (change.keep_row) absl::StrAppend(&text, ", its row stays");
  if (!change.identity.empty()) {
    absl::StrAppend(&text, ", of identity ", change.identity);
  }
  return text;
}

std::string Text(const JoinResult& result) {
  std::string text = absl::StrCat(
      "epoch ", result.epoch, ", from round ", result.first_round, ", ",
      !result.seeded ? result.seed_role ? "it seeds" : "another one seeds"
                     : absl::StrCat("version ", result.version, " of epoch ",
                                    result.made));
  if (result.replaced != 0) {
    absl::StrAppend(&text, ", instead of ", Session(result.replaced));
  }
  if (result.committed) absl::StrAppend(&text, ", has committed");
  if (result.rewound) absl::StrAppend(&text, ", its past is given up");
  if (result.finished) absl::StrAppend(&text, ", the job is over");
  return text;
}

const char* Text(JobEventKind kind) {
  static const char* const kTexts[] = {
      "shard lost", "the job is over", "superseded", "it seeds now", "draining",
      "expired",    "evicted",         "waiting",    "worker lost"};
  return kTexts[static_cast<int>(kind)];
}

std::string Text(const VersionId& id) {
  return absl::StrCat(id.made, ".", id.version);
}

const char* Text(RecoveryDecision::Kind kind) {
  static const char* const kTexts[] = {"nothing", "wait",   "go on",
                                       "load",    "rewind", "unseeded"};
  return kTexts[static_cast<int>(kind)];
}

// --- The stage --------------------------------------------------------------

// What a scene has: a job in epoch 100, a picture of a round in its place where
// only the close policy is asked, and what shards hold.
class Stage {
 public:
  Stage() { NewJob(); }

  // Plays a line and appends what is said. Returns what is wrong with the line.
  std::string Play(const std::string& line, std::vector<std::string>* said) {
    static const auto* const kCommands =
        new std::map<std::string, void (Stage::*)(Arguments*)>{
            {"close", &Stage::Close},
            {"commit", &Stage::Commit},
            {"decide", &Stage::Decide},
            {"evict", &Stage::Evict},
            {"expire", &Stage::Expire},
            {"fail", &Stage::Fail},
            {"forget_manifest", &Stage::ForgetManifest},
            {"grace", &Stage::Grace},
            {"job", &Stage::Job},
            {"join", &Stage::Join},
            {"leave", &Stage::Leave},
            {"look", &Stage::Look},
            {"outcome", &Stage::Outcome},
            {"owner", &Stage::Owner},
            {"prepare", &Stage::Prepare},
            {"publish", &Stage::Publish},
            {"publish_seed", &Stage::PublishSeed},
            {"record", &Stage::Record},
            {"recover", &Stage::Recover},
            {"renew", &Stage::Renew},
            {"report", &Stage::Report},
            {"restored", &Stage::Restored},
            {"round", &Stage::Round},
            {"rounds", &Stage::Rounds},
            {"shard", &Stage::Shard},
            {"stay_finished", &Stage::StayFinished},
            {"timeout", &Stage::Timeout},
            {"wave", &Stage::Wave},
            {"waves", &Stage::Waves},
        };
    std::vector<std::string> words =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.empty()) return "the line has blanks alone";
    const auto command = kCommands->find(words[0]);
    if (command == kCommands->end()) {
      return absl::StrCat("command \"", words[0], "\" is not known");
    }
    words.erase(words.begin());
    Arguments arguments(words);
    said_.clear();
    (this->*command->second)(&arguments);
    said->insert(said->end(), said_.begin(), said_.end());
    return arguments.Error();
  }

 private:
  void Say(const std::string& line) { said_.push_back(line); }
  void Say(uint64_t session, const std::string& what) {
    Say(absl::StrCat(Session(session), ": ", what));
  }
  void SayEffects() {
    const JobEffects effects = job_->TakeEffects();
    for (const SessionChange& change : effects.changes) Say(Text(change));
    std::map<uint64_t, std::string> heard;
    for (const auto& [session, event] : effects.events) {
      absl::StrAppend(&heard[session], heard[session].empty() ? "" : ", ",
                      Text(event.kind));
    }
    for (size_t i = 0; i < effects.ended.size(); ++i) {
      const auto& [session, reason] = effects.ended[i];
      const char* kind = DepartureName(effects.departures[i].kind);
      const std::string what = heard[session];
      Say(absl::StrCat(Session(session), " is over (", kind,
                       what.empty() ? "" : "; hears: ", what,
                       "): ", Text(reason)));
      heard.erase(session);
    }
    for (const auto& [session, what] : heard) {
      Say(absl::StrCat(session == 0 ? "each worker" : Session(session),
                       " hears: ", what));
    }
  }

  // --- The job and its members.

  void NewJob() {
    job_.emplace(options_, num_shards_, &arrivals_, kEpoch, absl::UnixEpoch());
  }

  void Job(Arguments* arguments) {
    options_.workers = arguments->Number("workers", 1);
    options_.min_workers = arguments->Number("min_workers", 1);
    options_.quorum = arguments->Number("quorum", 0);
    options_.start_timeout = arguments->Seconds("start_timeout");
    options_.round_timeout = arguments->Seconds("round_timeout");
    options_.floor_policy = static_cast<FloorPolicy>(
        arguments->Choice("floor", {"wait", "warn", "fail"}));
    options_.floor_timeout = arguments->Seconds("floor_timeout");
    options_.lease = arguments->Seconds("lease", 30);
    options_.max_rounds = arguments->Number("max_rounds", 0);
    options_.pipelined = arguments->Flag("pipelined");
    num_shards_ = arguments->Number("shards", 1);
    NewJob();
  }

  // These ranks have joined, the first has seeded, and round 0 is open.
  void Prepare(Arguments* arguments) {
    const int elements = arguments->Number("elements", 3);
    for (const int32_t rank : arguments->Numbers<int32_t>("ranks")) {
      Arguments join(
          {absl::StrCat("rank=", rank), absl::StrCat("elements=", elements)});
      Join(&join);
    }
    Arguments seed({"session=s1", "kind=seed"});
    Commit(&seed);
    job_->FinishSeed(0, absl::UnixEpoch());
    job_->CloseIfDue(absl::UnixEpoch());  // it begins
    said_.clear();
  }

  // Epoch 90 has ended at version 5, whose history began in epoch 80. Rank 1
  // was in with session 40, and its row of round 4, attempt 3, is used.
  void Restored(Arguments* arguments) {
    JobStart start;
    start.id = {90, arguments->Number<uint64_t>("version", 5)};
    start.manifest = Manifest{{{"w", {3}, "", false}}};
    start.members = {{1, 40, 2, "w1", arguments->Text("identity")}};
    start.highest_session = 44;
    start.record.history = 80;
    start.record.started = true;
    RoundResult kept;
    kept.epoch = 90;
    kept.round = 4;
    kept.version = 5;
    kept.ranks = {1};
    kept.attempts = {{40, 3}};
    if (!arguments->Flag("forgotten")) start.record.outcomes = {kept};
    start.record.used_rows[1] = {40, 4, 3};
    job_.emplace(options_, num_shards_, &arrivals_, kEpoch, absl::UnixEpoch(),
                 std::move(start));
  }

  static JoinCall CallOf(Arguments* arguments) {
    JoinCall call;
    call.rank = arguments->Number("rank", 0);
    call.manifest =
        Manifest{{{"w", {arguments->Number("elements", 3)}, "", false}}};
    call.resume_session = arguments->Session("resume");
    call.resume_version = arguments->Number<uint64_t>("version");
    call.resume_made = arguments->Number<uint64_t>("made");
    call.identity = arguments->Text("identity");
    call.may_take_over = arguments->Flag("may_take_over");
    call.max_own_sessions = arguments->Number("max_own_sessions", 0);
    call.max_sessions = arguments->Number("max_sessions", 0);
    return call;
  }

  void Join(Arguments* arguments) {
    const JoinCall call = CallOf(arguments);
    const absl::Time now = arguments->At();
    const bool refused = arguments->Flag("refused");  // by a shard
    const absl::Status status = job_->CheckJoin(call);
    const absl::StatusOr<uint64_t> session =
        status.ok() ? job_->SessionFor(call) : status;
    if (!session.ok()) {
      return Say(
          absl::StrCat("rank ", call.rank, ": ", Text(session.status())));
    }
    if (job_->Resumes(*session)) {
      const JoinResult result = job_->ResumeJoin(call, now);
      return Say(result.session,
                 absl::StrCat(result.resumed ? "goes on, " : "", Text(result)));
    }
    const SessionChange change = job_->BeginJoin(call, *session);
    if (refused) {
      Say(Text(change));
      job_->CancelJoin(change);
    } else {
      Say(absl::StrCat(
          Text(change), ", from round ", change.first_round,
          "; it hears: ", Text(job_->FinishJoin(call, change, now))));
    }
    SayEffects();
  }

  // A call that is taken says nothing, nor does a Commit that waits.
  void SayError(uint64_t session, const absl::Status& status) {
    if (!status.ok()) Say(session, Text(status));
    SayEffects();
  }
  void Leave(Arguments* arguments) {
    const uint64_t session = arguments->Session();
    SayError(session, job_->Leave(session, arguments->At()));
  }
  void Renew(Arguments* arguments) {
    const uint64_t session = arguments->Session();
    SayError(session, job_->Renew(session, arguments->At()));
  }
  void Grace(Arguments* arguments) {
    const uint64_t session = arguments->Session();
    SayError(session, job_->BeginGrace(session, arguments->At()));
  }
  void Expire(Arguments* arguments) {
    const absl::Time next = job_->ExpireLeases(arguments->At());
    SayEffects();
    Say(next == absl::InfiniteFuture()
            ? "no lease is left"
            : absl::StrCat("the next lease ends at ", Text(next)));
  }
  void Evict(Arguments* arguments) {
    const absl::StatusOr<Eviction> eviction =
        job_->Evict(arguments->Number("rank", 0), arguments->Text("reason"));
    if (!eviction.ok()) return Say(Text(eviction.status()));
    Say(eviction->session,
        eviction->committed ? "evicted, has committed" : "evicted");
    SayEffects();
  }
  void Owner(Arguments* arguments) {
    const uint64_t session = arguments->Session();
    Say(session,
        absl::StrCat("belongs to identity ", *job_->sessions().Owner(session)));
  }
  void ForgetManifest(Arguments* /*arguments*/) { job_->ForgetManifest(); }
  void StayFinished(Arguments* arguments) {
    job_->StayFinished(arguments->Text("why"), /*failed=*/false);
    SayEffects();
  }

  // --- Commits and rounds.

  void Commit(Arguments* arguments) {
    CommitCall call;
    call.epoch = arguments->Number("epoch", kEpoch);
    call.session = arguments->Session();
    call.round = arguments->Number<uint64_t>("round");
    call.kind = arguments->Choice("kind", {"gradient", "seed"}) == 0
                    ? PushKind::kGradient
                    : PushKind::kSeed;
    call.attempt = arguments->Number<uint32_t>("attempt");
    call.row_crc32c = arguments->Numbers<uint32_t>("crc32c");
    call.with_frame = arguments->Flag("with_frame");
    RowInfo& row = call.info.row;
    row.examples = arguments->Number("examples", row.examples);
    row.accumulation = arguments->Number("accumulation", row.accumulation);
    row.loss_scale = arguments->Real("loss_scale", row.loss_scale);
    const OutcomeAnswer answer = job_->Commit(call, arguments->At());
    if (!IsPending(answer)) Say(call.session, Text(answer));
  }
  // `to`: of several rounds, of which only the versions are said.
  void Outcome(Arguments* arguments) {
    OutcomeQuery query;
    query.round = arguments->Number<uint64_t>("round");
    query.session = arguments->Session();
    query.attempt = arguments->Number<uint32_t>("attempt");
    if (!arguments->Has("to")) {
      return Say(query.session, Text(job_->Answer(query)));
    }
    std::vector<int32_t> used, unused;
    const auto to = arguments->Number<uint64_t>("to");
    for (; query.round <= to; ++query.round) {
      const OutcomeAnswer answer = job_->Answer(query);
      if (!answer.ok() || IsPending(answer)) {
        Say(query.session, Text(answer));
      } else {
        ((*answer)->included ? used : unused)
            .push_back(static_cast<int32_t>((*answer)->version));
      }
    }
    Say(query.session, absl::StrCat("included in versions ", Text(used),
                                    "; not in ", Text(unused)));
  }
  // That many rounds of one worker: it commits, and the version is published.
  void Rounds(Arguments* arguments) {
    const uint64_t session = arguments->Session();
    for (int left = arguments->Number("count", 0); left > 0; --left) {
      Arguments commit({absl::StrCat("session=", session),
                        absl::StrCat("round=", job_->version())});
      Commit(&commit);
      Arguments publish({});
      Publish(&publish);
    }
    said_.clear();
  }
  void PublishSeed(Arguments* arguments) {
    job_->FinishSeed(arguments->Number<uint32_t>("attempt"), arguments->At());
  }
  // A shard has a row, or so many waves of it, completely.
  void Report(Arguments* arguments) {
    CompleteRow row;
    row.session = arguments->Session();
    row.round = arguments->Number<uint64_t>("round");
    row.attempt = arguments->Number<uint32_t>("attempt");
    row.waves = arguments->Number("waves", 0);
    job_->NoteComplete(arguments->Number("shard", 0), {row},
                       /*takes_commits=*/true, arguments->At());
  }
  void Close(Arguments* arguments) {
    const std::optional<ClosingRound> round = job_->CloseIfDue(arguments->At());
    if (!round.has_value()) return Say("it stays open");
    std::vector<int32_t> ranks;
    for (const auto& [rank, row] : round->contributions) ranks.push_back(rank);
    Say(absl::StrCat("round ", round->round, " closes with rows of ranks ",
                     Text(ranks)));
  }
  void Fail(Arguments* arguments) {
    if (!job_->FailIfDue(arguments->At())) return Say("it goes on");
    Say(absl::StrCat("it fails: ", job_->end_reason()));
    SayEffects();
  }
  // The round that is closed goes wave by wave; `wave`: the next one has run.
  void Waves(Arguments* arguments) {
    job_->BeginWaves(arguments->Number("count", 1));
    SayNextWave();
  }
  void Wave(Arguments* arguments) {
    const std::vector<int32_t> dropped = arguments->Numbers<int32_t>("dropped");
    job_->AdvanceWave({dropped.begin(), dropped.end()});
    SayNextWave();
  }
  void SayNextWave() {
    const WaveStep step = job_->NextWave();
    if (step.kind == WaveStep::Kind::kFinish) return Say("all waves have run");
    Say(step.kind == WaveStep::Kind::kRun
            ? absl::StrCat("wave ", step.wave, " has ranks ", Text(step.ranks))
            : absl::StrCat("the next wave waits for ranks ",
                           Text(job_->MissingRanks())));
  }
  void Publish(Arguments* arguments) {
    RoundResult result;
    result.epoch = kEpoch;
    result.round = job_->version();
    result.version = job_->version() + 1;
    result.finished = arguments->Flag("finished");
    result.excluded_ranks = arguments->Numbers<int32_t>("excluded");
    for (const auto& [rank, contribution] : job_->contributions()) {
      if (std::count(result.excluded_ranks.begin(), result.excluded_ranks.end(),
                     rank) == 0) {
        result.ranks.push_back(rank);
      }
    }
    job_->FinishRound(&result, arguments->At());
    Say(absl::StrCat("version ", job_->version(), " of ranks ",
                     Text(result.ranks)));
    SayEffects();
  }

  void Look(Arguments* /*arguments*/) {
    std::vector<int32_t> in;
    for (const auto& [rank, member] : job_->members()) in.push_back(rank);
    std::vector<std::string> committed;
    for (const auto& [rank, row] : job_->contributions()) {
      committed.push_back(absl::StrCat(rank));
      if (row.attempt == 0) continue;
      absl::StrAppend(&committed.back(), " (attempt ", row.attempt, ", crc32c ",
                      absl::StrJoin(row.row_crc32c, " "), ")");
    }
    std::string text = absl::StrCat(
        job_->seeded() ? absl::StrCat("version ", job_->version()) : "unseeded",
        "; in: ", Text(in), "; committed: ",
        committed.empty() ? "none" : absl::StrJoin(committed, " "),
        "; missing: ", Text(job_->MissingRanks()));
    if (job_->waiting_since() != absl::InfiniteFuture()) {
      absl::StrAppend(&text, "; first row at ", Text(job_->waiting_since()));
    }
    if (job_->seed_committed().has_value()) {
      absl::StrAppend(&text, "; seed of ", Session(*job_->seed_committed()));
    }
    if (!job_->manifest().has_value()) absl::StrAppend(&text, "; no manifest");
    if (job_->ManifestIsUnheld()) absl::StrAppend(&text, "; unheld manifest");
    if (job_->finished()) {
      absl::StrAppend(&text, "; finished: ", job_->end_reason());
    }
    Say(text);
  }

  // What outlives the coordinator.
  void Record(Arguments* /*arguments*/) {
    JobRecord record;
    job_->FillRecord(&record);
    Say(absl::StrCat(job_->seeded() ? "seeded" : "unseeded", ", version ",
                     Text(job_->id()), ", history of epoch ", job_->history(),
                     job_->started() ? ", started" : ""));
    Say(absl::StrCat("kept: history of epoch ", record.history,
                     record.started ? ", started, " : ", ",
                     record.outcomes.size(), " outcome"));
    for (const auto& [rank, row] : record.used_rows) {
      Say(absl::StrCat("kept: row of rank ", rank, ", ", Session(row.session),
                       ", round ", row.round, ", attempt ", row.attempt));
    }
  }

  // --- The close policy.

  // A picture of a round that is asked about in the place of the job's.
  void Round(Arguments* arguments) {
    CloseSnapshot& round = round_.emplace();
    round.started = !arguments->Flag("before_start");
    round.num_members = arguments->Number("members", 0);
    round.num_waiting = arguments->Number("waiting", 0);
    round.num_contributions = arguments->Number("rows", 0);
    round.num_joining = arguments->Number("joining", 0);
    const int32_t in = round.num_members + round.num_joining;
    round.num_live = arguments->Number("live", in);
    round.num_in = arguments->Number("in", in);
    round.all_left = arguments->Flag("all_left");
    round.opened_at = absl::UnixEpoch();
    round.waiting_since = arguments->At("first_row_at");
    round.usual_timeout = arguments->Seconds("usual_timeout");
    if (arguments->Has("below_floor_since")) {
      round.below_floor_since = arguments->At("below_floor_since");
    }
  }
  void Decide(Arguments* arguments) {
    const absl::Time now = arguments->At();
    const CloseSnapshot snapshot = round_.value_or(job_->close_snapshot());
    const CloseDecision decision =
        DecideClose(CloseOptionsOf(options_), snapshot, now);
    std::string text = absl::StrCat("at ", Text(now), " it ");
    if (!decision.start) absl::StrAppend(&text, "does not begin and ");
    if (decision.start && !snapshot.started)
      absl::StrAppend(&text, "begins and ");
    absl::StrAppend(&text, decision.close ? "closes" : "stays open");
    if (decision.fail) absl::StrAppend(&text, "; the job fails");
    if (decision.ask_again_at != absl::InfiniteFuture()) {
      absl::StrAppend(&text, "; asks again at ", Text(decision.ask_again_at));
    }
    Say(text);
  }
  void Timeout(Arguments* /*arguments*/) {
    const absl::Duration timeout = TimeoutOf(
        CloseOptionsOf(options_), round_.value_or(job_->close_snapshot()));
    Say(absl::StrCat("timeout ", absl::FormatDuration(timeout)));
  }

  // --- Recovery.

  // What a shard reports, or `count` of them. The first one behind a `recover`
  // begins a new list.
  void Shard(Arguments* arguments) {
    if (asked_) shards_.clear();
    asked_ = false;
    Holding shard;
    shard.member_epoch = arguments->Number<uint64_t>("member", 10);
    shard.home = arguments->Text("home", "-");
    shard.replica = arguments->Text("replica", "-");
    shard.strays = arguments->Numbers<int>("strays");
    shards_.insert(shards_.end(), arguments->Number("count", 1), shard);
  }
  void Recover(Arguments* arguments) {
    asked_ = true;
    const int num_shards = static_cast<int>(shards_.size());
    std::vector<ShardInventory> inventories(num_shards);
    for (int i = 0; i < num_shards; ++i) {
      inventories[i].member_epoch = shards_[i].member_epoch;
      AddCopy(i, shards_[i].home, &inventories[i]);
      AddCopy((i + num_shards - 1) % num_shards, shards_[i].replica,
              &inventories[i]);
      for (const int part : shards_[i].strays) {
        AddCopy(part, "10.7", &inventories[i]);
      }
    }
    const bool alone = arguments->Flag("alone");
    const RecoveryDecision decision = DecideRecovery(
        inventories, !alone, arguments->Number<uint64_t>("epoch", 20),
        ParseChoice(arguments->Text("checkpoint", "-")));
    std::string text = Text(decision.kind);
    if (!(decision.target == VersionId())) {
      absl::StrAppend(&text, " at ", Text(decision.target));
    }
    if (decision.checkpoint.has_value()) {
      absl::StrAppend(&text, " from checkpoint ", Text(*decision.checkpoint));
    }
    Say(absl::StrCat(text, decision.fetch ? ", then fetch: " : ": ",
                     decision.text));
    if (num_shards > 0) Say(PlansText(decision, alone));
  }
  static std::string PlansText(const RecoveryDecision& decision, bool alone) {
    return absl::StrJoin(
        decision.plans, "  ", [&](std::string* out, const RecoverPlan& plan) {
          absl::StrAppend(out, ActionText(plan.home), alone ? "" : "/",
                          alone ? "" : ActionText(plan.replica));
          if (plan.unseeded) absl::StrAppend(out, " unseeded");
          if (!(plan.target == decision.target)) {
            absl::StrAppend(out, " to ", Text(plan.target));
          }
        });
  }

  struct Holding {
    uint64_t member_epoch = 0;
    std::string home;
    std::string replica;
    std::vector<int> strays;  // parts that are not this shard's, at 10.7
  };

  CoordinatorOptions options_ = [] {
    CoordinatorOptions options;
    options.max_workers = 8;
    return options;
  }();
  int num_shards_ = 1;
  ArrivalTimes arrivals_{/*mad_factor=*/0.0};
  std::optional<JobState> job_;
  std::optional<CloseSnapshot> round_;
  std::vector<Holding> shards_;
  bool asked_ = false;  // about shards_
  std::vector<std::string> said_;
};

// --- The replay -------------------------------------------------------------

// Plays what `text` has. Returns a paragraph for each answer that is not the
// expected one, and for each line that cannot be played.
std::vector<std::string> Replay(const std::string& name, std::istream* text) {
  std::vector<std::string> failures;
  std::optional<Stage> stage;
  std::string scene;
  std::vector<std::string> got, expected;
  int block = 0;  // the line that the open block begins at; 0: none is open
  bool answering = false;
  int number = 0;
  const auto fail = [&](int at, const std::string& what) {
    failures.push_back(
        absl::StrCat(name, ":", at, ": ", what, "\nin the scene: ", scene));
  };
  const auto end_block = [&] {
    if (block != 0 && !answering) fail(block, "no ---- ends these commands");
    if (block != 0 && answering && got != expected) {
      fail(block, absl::StrCat("expected:\n  ", absl::StrJoin(expected, "\n  "),
                               "\ngot:\n  ", absl::StrJoin(got, "\n  ")));
    }
    block = 0;
    answering = false;
    got.clear();
    expected.clear();
  };
  for (std::string line; std::getline(*text, line);) {
    ++number;
    if (line.empty()) {
      end_block();
    } else if (answering) {
      expected.push_back(line);
    } else if (line == "----") {
      if (block == 0) fail(number, "---- without a command");
      answering = true;
    } else if (absl::StartsWith(line, "== ")) {
      end_block();
      scene = line.substr(3);
      stage.emplace();
    } else if (line[0] == '#') {
      continue;
    } else if (!stage.has_value()) {
      fail(number, "a command before the first scene");
    } else {
      if (block == 0) block = number;
      const std::string error = stage->Play(line, &got);
      if (!error.empty()) fail(number, error);
    }
  }
  end_block();
  return failures;
}

class TranscriptsTest : public testing::TestWithParam<const char*> {};

TEST_P(TranscriptsTest, AreReplayed) {
  const std::string path =
      absl::StrCat("tests/server/coordinator/transcripts/", GetParam(), ".txt");
  std::ifstream text(path);
  ASSERT_TRUE(text.is_open()) << path;
  for (const std::string& failure : Replay(path, &text)) {
    ADD_FAILURE() << failure;
  }
  EXPECT_TRUE(text.eof());
}

INSTANTIATE_TEST_SUITE_P(All, TranscriptsTest,
                         testing::Values("join", "commit", "close", "recover"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           return std::string(info.param);
                         });

TEST(ReplayTest, NamesWhatIsNotAsExpected) {
  const auto replay = [](const std::string& text) {
    std::istringstream stream("== A job.\n" + text);
    return absl::StrJoin(Replay("a.txt", &stream), "\n");
  };
  const std::string look =
      "unseeded; in: none; committed: none; missing: none; no manifest";
  EXPECT_EQ(replay("look\n----\n" + look), "");
  EXPECT_EQ(replay("look\n----\nseeded\n"),
            "a.txt:2: expected:\n  seeded\ngot:\n  " + look +
                "\nin the scene: A job.");
  EXPECT_THAT(replay("fly rank=1\n----\n"),
              testing::HasSubstr("a.txt:2: command \"fly\" is not known"));
  EXPECT_THAT(replay("leave rank=1\n----\n"),
              testing::HasSubstr("argument \"rank\" is not known"));
  EXPECT_THAT(replay("leave session=x\n----\n"),
              testing::HasSubstr("session is \"x\"; allowed: a number"));
  EXPECT_THAT(
      replay("job floor=low\n----\n"),
      testing::HasSubstr("floor is \"low\"; allowed: wait, warn, fail"));
  EXPECT_THAT(replay("job workers=1 workers=2\n----\n"),
              testing::HasSubstr("workers stands twice"));
  EXPECT_THAT(replay("job workers=1\n\nlook\n"),
              testing::HasSubstr("a.txt:2: no ---- ends these commands"));
}

}  // namespace
}  // namespace agg
