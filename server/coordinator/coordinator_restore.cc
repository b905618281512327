// Which checkpoint a job goes on from, and an operator's word on it (P29).
// Nothing is passed over in silence: what cannot be loaded is named, and waited
// for until it is there again or somebody says otherwise.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "server/base/field_error.h"
#include "server/base/log.h"
#include "server/base/utf8.h"
#include "server/checkpoint/checkpoint_json.h"
#include "server/checkpoint/checkpoint_state.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/job_facts.h"
#include "server/coordinator/job_record.h"
#include "server/coordinator/job_state.h"
#include "server/round/orderly_stop.h"

namespace agg {
namespace {

// A disk that is back is found, and a large one is not read all the time.
constexpr absl::Duration kTryAgain = absl::Seconds(15);
// It goes to workers, and gRPC carries at most some 8 KiB of it.
constexpr size_t kMaxTextBytes = 3000;

// Folders that differ, once each.
std::string FoldersText(const std::vector<CheckpointListing>& listings) {
  std::vector<std::string> folders;
  for (const CheckpointListing& listing : listings) {
    if (listing.folder.empty()) continue;
    if (std::count(folders.begin(), folders.end(), listing.folder) == 0) {
      folders.push_back(listing.folder);
    }
  }
  return absl::StrJoin(folders, ", ");
}

// A shard was lost, or another epoch has begun.
bool SaysNothingOfFiles(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) ||
         absl::IsCancelled(status);
}

bool HasUnsealed(const std::vector<CheckpointListing>& listings) {
  return std::any_of(
      listings.begin(), listings.end(),
      [](const CheckpointListing& listing) { return !listing.states.empty(); });
}

}  // namespace

// --- What there is -----------------------------------------------------------

void Coordinator::See(const std::vector<ShardInventory>& inventories) {
  MutexLock lock(&mutex_);
  seen_.clear();
  seen_of_other_.clear();
  for (const ShardInventory& inventory : inventories) {
    seen_.push_back(inventory.checkpoints);
    seen_of_other_.push_back(inventory.other_checkpoints);
  }
}

CheckpointChoice Coordinator::ChooseOf(
    std::vector<CheckpointListing> listings) {
  std::optional<VersionId> newest;
  {
    MutexLock lock(&mutex_);
    newest = state_.checkpoints()->newest();
  }
  absl::optional<VersionId> known;
  if (newest.has_value()) known = *newest;
  // In this life of the coordinator, or, as a folder says, in a former one.
  const uint64_t begun = std::max(begun_anew_.value_or(0), BegunAnew(listings));
  for (CheckpointListing& listing : listings) {
    auto& states = listing.states;
    states.erase(std::remove_if(states.begin(), states.end(),
                                [&](const CheckpointState& state) {
                                  return state.id.made < begun;
                                }),
                 states.end());
  }
  if (known.has_value() && known->made < begun) known.reset();
  return ChooseCheckpoint(listings, known);
}

// Since it has begun anew.
bool Coordinator::HasSaved() const {
  MutexLock lock(&mutex_);
  const std::optional<VersionId> newest = state_.checkpoints().newest();
  return newest.has_value() && newest->made >= *begun_anew_;
}

CheckpointChoice Coordinator::Choose(const std::optional<RestoreCall>& order) {
  borrows_ = false;
  if (!options_.checkpoint.enabled) return {};
  std::vector<CheckpointListing> own;
  std::vector<CheckpointListing> other;
  {
    MutexLock lock(&mutex_);
    own = seen_;
    other = seen_of_other_;
  }
  CheckpointChoice choice;
  if (order.has_value()) {
    if (!order->begin_anew) {
      for (const VersionId& id : SealedCheckpoints(own)) {
        if (id.version != order->version) continue;
        if (order->made != 0 && id.made != order->made) continue;
        choice = NamedCheckpoint(own, id);
        break;
      }
    }
    choice.ordered = true;
    return choice;
  }
  // A person's word, given in the configuration: what was there before counts
  // for nothing. What this life of the job has saved does.
  if (!options_.checkpoint.restore && !begun_anew_.has_value()) return {};
  if (begun_anew_.has_value() && !HasSaved()) return {};
  choice = ChooseOf(own);
  // The word may have been about the folder that cannot be listed.
  if (NothingSinceBegunAnew(own)) choice.unreadable.clear();
  // Another job's was what the one before had begun with.
  if (!choice.id.has_value() && choice.unreadable.empty() &&
      BegunAnew(own) == 0 && !options_.checkpoint.restore_job.empty()) {
    choice = ChooseCheckpoint(other, absl::nullopt);
    choice.borrowed = true;
    borrows_ = true;
    if (!choice.id.has_value() && choice.unreadable.empty()) {
      choice.unreadable = absl::StrCat(
          "checkpoint.restore_job is ", Quoted(options_.checkpoint.restore_job),
          ", and no shard sees a checkpoint of it in ", FoldersText(other));
    }
  }
  if (choice.id.has_value()) {
    const auto refusal = refused_.find(*choice.id);
    if (refusal != refused_.end() && clock_->Now() < refusal->second.until) {
      choice.refused = refusal->second.why;
    }
  }
  return choice;
}

RecoveryDecision Coordinator::Decide(
    uint64_t epoch, const std::vector<ShardInventory>& inventories) {
  bool carried_out = false;
  std::optional<RestoreCall> order = TakeOrder(&carried_out);
  if (carried_out) {
    // What it has led to may be there yet.
    using Kind = RecoveryDecision::Kind;
    const Kind kind = DecideRecovery(inventories, options_.replicated, epoch,
                                     Choose(std::nullopt))
                          .kind;
    if (kind == Kind::kGoOn || kind == Kind::kLoad) order.reset();
  }
  if (order.has_value()) {
    const CheckpointChoice choice = Choose(order);
    if (!order->begin_anew && !choice.id.has_value()) {
      EndOrder(absl::NotFoundError(
          absl::StrCat("no shard sees a sealed checkpoint of version ",
                       order->version, Remedies())));
    } else {
      RecoveryDecision decision =
          DecideRecovery(inventories, options_.replicated, epoch, choice);
      if (decision.kind != RecoveryDecision::Kind::kWait) {
        by_order_ = true;
        absl::StrAppend(&decision.text, ", as an operator has said");
        if (order->begin_anew) {
          // Whatever was said of the former one, that it had finished as well.
          JobFacts facts = decision.plans.front().facts;
          facts = {epoch, facts.number + 1, ""};
          for (RecoverPlan& plan : decision.plans) plan.facts = facts;
        }
        return decision;
      }
      EndOrder(absl::FailedPreconditionError(decision.text));
    }
  }
  by_order_ = false;
  RecoveryDecision decision = DecideRecovery(inventories, options_.replicated,
                                             epoch, Choose(std::nullopt));
  MutexLock lock(&mutex_);
  // What shards have not heard of yet: that a finished job goes on, say.
  for (RecoverPlan& plan : decision.plans) {
    if (plan.facts < state_.facts()) plan.facts = state_.facts();
  }
  return decision;
}

// Before it is done: else a kill -9 of all right after the answer would have
// the former job back. One folder that has it is enough, since the word may be
// about another one that is broken.
absl::Status Coordinator::KeepBeginning(uint64_t epoch) {
  std::vector<char> kept(static_cast<size_t>(peers_.size()), 0);
  const absl::Status status = peers_.ForEach([&](int ordinal, ShardPeer* peer) {
    Phase phase;
    phase.kind = PhaseKind::kSeal;
    phase.epoch = epoch;
    phase.begins_anew = true;
    phase.line = epoch;
    const PhaseWatch::Call call(&phase_watch_, ordinal, phase);
    const absl::Status written = peer->RunPhase(phase).status();
    kept[static_cast<size_t>(ordinal)] = written.ok();
    return written;
  });
  if (status.ok() || SaysNothingOfFiles(status)) return status;
  if (std::count(kept.begin(), kept.end(), 1) > 0) {
    LogWarning("that the job begins anew is not kept in all folders: ",
               status.message());
    return absl::OkStatus();
  }
  const absl::Status refused = absl::FailedPreconditionError(absl::StrCat(
      "no folder can keep that the job begins anew, so that it does not: ",
      status.message(),
      "; checkpoint.restore: \"none\" says it at each start"));
  EndOrder(refused);
  return refused;
}

// Before any shard gives up what it has in memory for it.
absl::Status Coordinator::Verify(uint64_t epoch,
                                 const std::string& checkpoint) {
  return RunPhases([&](int) {
    Phase phase;
    phase.kind = PhaseKind::kVerify;
    phase.epoch = epoch;
    phase.checkpoint = checkpoint;
    return phase;
  });
}

// Before anything is done: what becomes of the checkpoints.
void Coordinator::NoteBeginning(uint64_t epoch,
                                const RecoveryDecision& decision) {
  using Kind = RecoveryDecision::Kind;
  const bool anew =
      decision.kind == Kind::kNothing || decision.kind == Kind::kUnseeded;
  if (by_order_ ? anew : !options_.checkpoint.restore) {
    if (by_order_ || !begun_anew_.has_value()) {
      begun_anew_ = anew ? epoch : decision.target.made;
    }
  }
  if (!options_.checkpoint.enabled || !anew) return;
  std::string text;
  MutexLock lock(&mutex_);
  const std::vector<CheckpointId> sealed = SealedCheckpoints(seen_);
  if (sealed.empty()) {
    // Nobody can tell folders that are new from folders that were emptied.
    text = absl::StrCat(
        "no shard sees a sealed checkpoint in ", FoldersText(seen_),
        HasUnsealed(seen_) ? ", where parts lie that were never sealed" : "",
        ": the job begins anew, by a Seed");
    LogInfo(text);
  } else {
    text = absl::StrCat(
        by_order_ ? "an operator has said that the job begins anew, by a Seed"
        : options_.checkpoint.restore
            ? absl::StrCat("an operator has said before that the job begins "
                           "anew, by a Seed, as ",
                           BegunAnewName(BegunAnew(seen_)), " says")
            : "checkpoint.restore is \"none\": the job begins anew, by a Seed",
        "; ", sealed.size(), " checkpoints stay in ", FoldersText(seen_),
        ", the newest of ", CheckpointText(sealed.front()));
    LogWarning(text);
  }
  state_.checkpoints()->NoteRestore(text);
  if (decision.kind == Kind::kNothing && by_order_) {
    state_.AdoptFacts(
        decision.plans.empty() ? JobFacts() : decision.plans.front().facts, 0);
  }
}

// --- A person is waited for --------------------------------------------------

std::string Coordinator::Remedies() const {
  std::vector<CheckpointId> complete;
  std::string folders;
  {
    MutexLock lock(&mutex_);
    complete = CompleteCheckpoints(seen_);
    folders = FoldersText(seen_);
  }
  std::string text = "; put back what is missing";
  for (const CheckpointId& id : complete) {
    if (refused_.count(id) != 0) continue;
    absl::StrAppend(&text, ", or go on from ", CheckpointText(id), " with `",
                    "aggctl restore ", CheckpointFolderName(id), "`");
    break;
  }
  return absl::StrCat(text,
                      ", or begin anew with `aggctl restore none` (or "
                      "checkpoint.restore: \"none\")");
}

absl::Status Coordinator::AwaitPerson(const std::string& what) {
  awaits_person_ = true;
  std::string text = absl::StrCat("the job waits, since it does not begin ",
                                  "anew or go back by itself: ", what);
  if (text.size() > kMaxTextBytes) {
    text.resize(kMaxTextBytes);
    text = ValidUtf8(text);  // a path's last character may be cut
    text += "..";
  }
  return absl::FailedPreconditionError(absl::StrCat(text, Remedies()));
}

absl::Status Coordinator::Refused(const VersionId& id,
                                  const absl::Status& status) {
  const absl::Status named = absl::Status(
      status.code(), absl::StrCat("checkpoint ", CheckpointText(id),
                                  " cannot be loaded: ", status.message()));
  if (SaysNothingOfFiles(status)) return named;
  if (by_order_) {
    // What the job does now it decides by itself, as if nobody had said a word.
    const absl::Status refused = absl::FailedPreconditionError(named.message());
    EndOrder(refused);
    return refused;
  }
  refused_[id] = {std::string(status.message()), clock_->Now() + kTryAgain};
  return AwaitPerson(std::string(named.message()));
}

// --- An operator's word ------------------------------------------------------

RestoreResult Coordinator::Found() const {
  RestoreResult result;
  for (const CheckpointId& id : SealedCheckpoints(seen_)) {
    result.found.push_back(
        {id, MissingText(NamedCheckpoint(seen_, id), /*shards=*/{})});
  }
  return result;
}

absl::StatusOr<RestoreCall> Coordinator::ParseRestore(const std::string& text) {
  RestoreCall call;
  if (text.empty()) {
    call.look = true;
    return call;
  }
  if (text == "none") {
    call.begin_anew = true;
    return call;
  }
  const absl::optional<CheckpointId> id = ParseCheckpointFolderName(text);
  if (id.has_value()) {
    call.made = id->made;
    call.version = id->version;
    return call;
  }
  if (absl::SimpleAtoi(text, &call.version)) return call;
  return FieldError("checkpoint", Quoted(text.substr(0, 100)),
                    "VERSION; MADE-VERSION, as its folder is called; none");
}

void Coordinator::Restore(
    const RestoreCall& call,
    std::function<void(absl::StatusOr<RestoreResult>)> done) {
  if (!options_.checkpoint.enabled) {
    return done(absl::FailedPreconditionError(
        "checkpoint.path is not configured: there are no checkpoints"));
  }
  RestoreResult found;
  bool running = false;
  {
    MutexLock lock(&mutex_);
    found = Found();
    running = state_.epoch_on() && state_.job()->seeded();
    found.text = state_.epoch_on()
                     ? state_.checkpoints()->Status(clock_->Now()).restore
                     : state_.Status(clock_->Now()).message;
  }
  if (call.look) return done(found);
  if (call.begin_anew && running) {
    return done(absl::FailedPreconditionError(
        "the job has parameters, which would be lost: stop it, and start it "
        "with checkpoint.restore: \"none\", or under another name"));
  }
  Order order;
  order.kind =
      call.begin_anew ? Order::Kind::kBeginAnew : Order::Kind::kCheckpoint;
  order.restore = call;
  order.done = [done, found](absl::StatusOr<std::string> text) {
    if (!text.ok()) return done(text.status());
    RestoreResult result = found;
    result.text = *std::move(text);
    done(std::move(result));
  };
  const absl::Status given = GiveOrder(
      std::move(order),
      OrderlyStop(absl::StrCat("an operator has the job go back to version ",
                               call.version)));
  if (!given.ok()) done(given);
}

void Coordinator::Resume(
    std::function<void(absl::StatusOr<ResumeResult>)> done) {
  absl::StatusOr<ResumeResult> resumed = absl::UnknownError("");
  {
    MutexLock lock(&mutex_);
    resumed = order_.has_value() ? absl::FailedPreconditionError(
                                       "another restore or resume is under way")
                                 : state_.Resume();
  }
  if (!resumed.ok()) return done(resumed.status());
  Order order;
  order.kind = Order::Kind::kResume;
  order.resume = *resumed;
  order.done = [done, resumed](const absl::StatusOr<std::string>& text) {
    if (!text.ok()) return done(text.status());
    done(resumed);
  };
  const absl::Status given = GiveOrder(
      std::move(order), OrderlyStop("an operator has the finished job go on"));
  if (given.ok()) return;
  {
    // The facts said already that the job goes on.
    MutexLock lock(&mutex_);
    state_.NoteChange();
  }
  done(given);
}

absl::Status Coordinator::GiveOrder(Order order, const absl::Status& why) {
  DeferredCalls calls;
  {
    MutexLock lock(&mutex_);
    if (stop_ || state_.draining()) {
      return absl::UnavailableError(
          "draining: the coordinator is shutting down");
    }
    if (order_.has_value()) {
      return absl::FailedPreconditionError(
          "another restore or resume is under way");
    }
    order_ = std::move(order);
    order_->until = clock_->Now() + kOrderTimeout;
    // Also one that is beginning: what it does was decided without the order,
    // and CompleteOrder would take it for what the order has led to.
    calls = state_.EndEpoch(why, clock_->Now());
    changed_.NotifyAll();
  }
  calls.Run();
  return absl::OkStatus();
}

std::optional<RestoreCall> Coordinator::TakeOrder(bool* carried_out) {
  MutexLock lock(&mutex_);
  if (!order_.has_value()) return {};
  order_->taken = true;
  if (order_->kind == Order::Kind::kResume) return {};
  *carried_out = order_->carried_out;
  return order_->restore;
}

void Coordinator::PutOrderBack() {
  MutexLock lock(&mutex_);
  if (order_.has_value() && !order_->carried_out) order_->taken = false;
}

// It must not be done hours later, when a shard is back and its caller has
// turned to something else. What a recovery has begun stays: to leave it half
// done would cost more.
void Coordinator::ExpireOrder() {
  std::function<void(absl::StatusOr<std::string>)> done;
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    if (!order_.has_value() || order_->taken || clock_->Now() < order_->until) {
      return;
    }
    const absl::Status accepting = state_.CheckAcceptingCalls();
    status = absl::UnavailableError(absl::StrCat(
        "not begun within ", absl::FormatDuration(kOrderTimeout),
        ", and not done later either: ",
        accepting.ok() ? "a phase of the former epoch has not ended"
                       : accepting.message(),
        "; the call may be repeated"));
    // The facts said already that the job goes on.
    if (order_->kind == Order::Kind::kResume) state_.NoteChange();
    done = std::move(order_->done);
    order_.reset();
  }
  LogWarning("what an operator has asked for is dropped: ", status.message());
  done(status);
}

bool Coordinator::Resumes() const {
  MutexLock lock(&mutex_);
  return order_.has_value() && order_->kind == Order::Kind::kResume;
}

void Coordinator::EndOrder(const absl::StatusOr<std::string>& result) {
  std::function<void(absl::StatusOr<std::string>)> done;
  {
    MutexLock lock(&mutex_);
    if (!order_.has_value()) return;
    done = std::move(order_->done);
    order_.reset();
  }
  LogWarning("what an operator has asked for ",
             result.ok() ? "is done: " : "cannot be done: ",
             result.ok() ? *result : result.status().message());
  done(result);
}

// What was answered holds also if all processes are killed at once: so a
// checkpoint has it first, where there are any.
void Coordinator::CompleteOrder(const std::string& text) {
  std::optional<Order::Kind> kind;
  bool finished = false;
  bool has_it = false;
  {
    MutexLock lock(&mutex_);
    if (!order_.has_value() || order_->carried_out || !state_.epoch_on()) {
      return;
    }
    order_->carried_out = true;
    kind = order_->kind;
    finished = state_.finished();
    has_it =
        state_.job()->seeded() && state_.checkpoints()->Has(state_.job()->id());
  }
  if (*kind == Order::Kind::kResume && finished) {
    return EndOrder(absl::FailedPreconditionError(absl::StrCat(
        "the job went back to a version at which it had finished: ", text)));
  }
  if (*kind == Order::Kind::kBeginAnew || !options_.checkpoint.enabled) {
    return EndOrder(text);
  }
  if (has_it) {
    const absl::Status sealed = SealFacts();
    if (sealed.ok()) return EndOrder(text);
    return EndOrder(sealed);
  }
  MutexLock lock(&mutex_);
  state_.checkpoints()->Request(
      [this, text](const absl::StatusOr<TakenCheckpoint>& taken) {
        if (taken.ok()) return EndOrder(text);
        EndOrder(absl::Status(
            taken.status().code(),
            absl::StrCat(text,
                         "; but no checkpoint has it yet, so that it is "
                         "forgotten if all shards are lost: ",
                         taken.status().message())));
      });
}

// The last checkpoint of a finished job says that it has finished. Its parts
// stay as they are.
absl::Status Coordinator::SealFacts() {
  VersionId id;
  uint64_t epoch = 0;
  std::string facts;
  {
    MutexLock lock(&mutex_);
    id = state_.job()->id();
    epoch = state_.job()->epoch();
    facts = FactsText(state_.facts());
  }
  CheckpointManifest manifest;
  const absl::StatusOr<std::string> text = ReadCheckpoint(epoch, id, &manifest);
  if (!text.ok()) return text.status();
  manifest.facts = facts;
  absl::StatusOr<JobRecord> record = ParseJobRecord(manifest.record);
  if (!record.ok()) return record.status();
  record->started = false;  // as the job has it now
  manifest.record = TextOf(*std::move(record));
  return RunPhases([&](int) {
    Phase phase;
    phase.kind = PhaseKind::kSeal;
    phase.epoch = epoch;
    phase.checkpoint = CheckpointManifestJson(manifest);
    phase.keep = std::numeric_limits<int>::max();
    phase.line = std::numeric_limits<uint64_t>::max();  // nothing is removed
    return phase;
  });
}

}  // namespace agg
