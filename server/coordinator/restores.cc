// Nothing is passed over in silence: what cannot be loaded is named, and waited
// for until it is there again or somebody says otherwise.
#include "server/coordinator/restores.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "kernels/optimizer_table.h"
#include "server/base/field_error.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/base/utf8.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/coordinator/job_record.h"
#include "server/coordinator/job_state.h"
#include "server/round/phase.h"
#include "server/round/shard_peer.h"

namespace agg {

namespace {

// A disk that is back is found, and a large one is not read all the time.
constexpr absl::Duration kAskAgain = absl::Seconds(15);
// It goes to workers, and gRPC carries at most some 8 KiB of it.
constexpr size_t kMaxRefusalBytes = 3000;

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

absl::Status OrderUnderWay() {
  return absl::FailedPreconditionError(
      "another restore or resume is under way");
}

bool HasUnsealed(const std::vector<CheckpointListing>& listings) {
  return std::any_of(
      listings.begin(), listings.end(),
      [](const CheckpointListing& listing) { return !listing.states.empty(); });
}

}  // namespace

// --- What there is ----------------------------------------------------------

void Restores::See(const std::vector<ShardInventory>& inventories) {
  MutexLock lock(&context_->mutex);
  awaits_person_ = false;
  seen_.clear();
  seen_of_other_.clear();
  for (const ShardInventory& inventory : inventories) {
    seen_.push_back(inventory.checkpoints);
    seen_of_other_.push_back(inventory.other_checkpoints);
  }
  context_->state.checkpoints()->NoteListed();
}

bool Restores::SeesSealed() const {
  MutexLock lock(&context_->mutex);
  return !SealedCheckpoints(seen_).empty();
}

CheckpointChoice Restores::ChooseOf(std::vector<CheckpointListing> listings) {
  std::optional<VersionId> newest;
  {
    MutexLock lock(&context_->mutex);
    newest = context_->state.checkpoints()->newest();
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
bool Restores::HasSaved() const {
  MutexLock lock(&context_->mutex);
  const std::optional<VersionId> newest =
      context_->state.checkpoints()->newest();
  return newest.has_value() && newest->made >= *begun_anew_;
}

CheckpointChoice Restores::Choose(const std::optional<RestoreCall>& order) {
  borrows_ = false;
  if (!context_->options.checkpoint.enabled) return {};
  std::vector<CheckpointListing> own;
  std::vector<CheckpointListing> other;
  {
    MutexLock lock(&context_->mutex);
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
  if (!context_->options.checkpoint.restore && !begun_anew_.has_value())
    return {};
  if (begun_anew_.has_value() && !HasSaved()) return {};
  choice = ChooseOf(own);
  // The word may have been about the folder that cannot be listed.
  if (NothingSinceBegunAnew(own)) choice.unreadable.clear();
  // Another job's was what the one before had begun with.
  if (!choice.id.has_value() && choice.unreadable.empty() &&
      BegunAnew(own) == 0 &&
      !context_->options.checkpoint.restore_job.empty()) {
    choice = ChooseCheckpoint(other, absl::nullopt);
    choice.borrowed = true;
    borrows_ = true;
    if (!choice.id.has_value() && choice.unreadable.empty()) {
      choice.unreadable = absl::StrCat(
          "checkpoint.restore_job is ",
          Quoted(context_->options.checkpoint.restore_job),
          ", and no shard sees a checkpoint of it in ", FoldersText(other));
    }
  }
  if (choice.id.has_value()) {
    const auto refusal = refused_.find(*choice.id);
    if (refusal != refused_.end() &&
        context_->clock->Now() < refusal->second.until) {
      choice.refused = refusal->second.why;
    }
  }
  return choice;
}

RecoveryDecision Restores::Decide(
    uint64_t epoch, const std::vector<ShardInventory>& inventories) {
  bool carried_out = false;
  std::optional<RestoreCall> order = TakeOrder(&carried_out);
  if (carried_out) {
    // What it has led to may be there yet.
    using Kind = RecoveryDecision::Kind;
    const Kind kind = DecideRecovery(inventories, context_->options.replicated,
                                     epoch, Choose(std::nullopt))
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
      RecoveryDecision decision = DecideRecovery(
          inventories, context_->options.replicated, epoch, choice);
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
  RecoveryDecision decision = DecideRecovery(
      inventories, context_->options.replicated, epoch, Choose(std::nullopt));
  MutexLock lock(&context_->mutex);
  // What shards have not heard of yet: that a finished job goes on, say.
  for (RecoverPlan& plan : decision.plans) {
    if (plan.facts < context_->state.facts())
      plan.facts = context_->state.facts();
  }
  return decision;
}

// Before it is done: else a kill -9 of all right after the answer would have
// the former job back. One folder that has it is enough, since the word may be
// about another one that is broken.
absl::Status Restores::KeepBeginning(uint64_t epoch) {
  std::vector<char> kept(static_cast<size_t>(context_->peers.size()), 0);
  const absl::Status status =
      context_->peers.ForEach([&](int ordinal, ShardPeer* peer) {
        Phase phase = PhaseOf(PhaseKind::kSeal, epoch);
        phase.begins_anew = true;
        phase.line = epoch;
        const PhaseWatch::Call call(&context_->phase_watch, ordinal, phase);
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

absl::Status Restores::Begin(uint64_t epoch, const RecoveryDecision& decision) {
  if (by_order_ && decision.anew()) {
    AGG_RETURN_IF_ERROR(KeepBeginning(epoch));
  }
  NoteBeginning(epoch, decision);
  return absl::OkStatus();
}

void Restores::NoteBeginning(uint64_t epoch, const RecoveryDecision& decision) {
  const bool anew = decision.anew();
  if (by_order_ ? anew : !context_->options.checkpoint.restore) {
    if (by_order_ || !begun_anew_.has_value()) {
      begun_anew_ = anew ? epoch : decision.target.made;
    }
  }
  if (!context_->options.checkpoint.enabled || !anew) return;
  std::string text;
  MutexLock lock(&context_->mutex);
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
        : context_->options.checkpoint.restore
            ? absl::StrCat("an operator has said before that the job begins "
                           "anew, by a Seed, as ",
                           BegunAnewName(BegunAnew(seen_)), " says")
            : "checkpoint.restore is \"none\": the job begins anew, by a Seed",
        "; ", sealed.size(), " checkpoints stay in ", FoldersText(seen_),
        ", the newest of ", CheckpointText(sealed.front()));
    LogWarning(text);
  }
  context_->state.checkpoints()->NoteRestore(text);
}

// --- A person is waited for -------------------------------------------------

std::string Restores::Remedies() const {
  std::vector<CheckpointId> complete;
  {
    MutexLock lock(&context_->mutex);
    complete = CompleteCheckpoints(seen_);
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

absl::Status Restores::AwaitPerson(const std::string& what) {
  {
    // The order waits, too: nothing has been done by it.
    MutexLock lock(&context_->mutex);
    if (order_.has_value() && !order_->carried_out) order_->taken = false;
  }
  return Awaiting(what);
}

absl::Status Restores::Awaiting(const std::string& what) {
  awaits_person_ = true;
  std::string text = absl::StrCat("the job waits, since it does not begin ",
                                  "anew or go back by itself: ", what);
  if (text.size() > kMaxRefusalBytes) {
    text.resize(kMaxRefusalBytes);
    text = ValidUtf8(text);  // a path's last character may be cut
    text += "..";
  }
  return absl::FailedPreconditionError(absl::StrCat(text, Remedies()));
}

absl::Status Restores::Refused(const VersionId& id,
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
  refused_[id] = {std::string(status.message()),
                  context_->clock->Now() + kAskAgain};
  return Awaiting(std::string(named.message()));
}

absl::StatusOr<std::string> Restores::ReadCheckpoint(
    uint64_t epoch, const VersionId& id, CheckpointManifest* manifest) {
  std::vector<CheckpointListing> listings;
  {
    MutexLock lock(&context_->mutex);
    listings = borrows_ ? seen_of_other_ : seen_;
  }
  absl::Status error;
  for (int shard = 0; shard < context_->peers.size(); ++shard) {
    const auto& known = listings[shard].states;
    const auto found = std::find_if(
        known.begin(), known.end(),
        [&](const auto& state) { return state.id == id && state.manifest; });
    if (found == known.end()) continue;
    Phase phase = PhaseOf(PhaseKind::kReadManifest, epoch);
    phase.id = id;
    absl::StatusOr<PhaseResult> result;
    {
      const PhaseWatch::Call call(&context_->phase_watch, shard, phase);
      result = context_->peers.peer(shard)->RunPhase(phase);
    }
    if (!result.ok()) {
      // All have the same one: another shard's disk may be better.
      if (error.ok() || absl::IsUnavailable(result.status())) {
        error = absl::Status(result.status().code(),
                             absl::StrCat(context_->peers.peer(shard)->name(),
                                          ": ", result.status().message()));
      }
      continue;
    }
    AGG_ASSIGN_OR_RETURN(CheckpointManifest parsed,
                         ParseCheckpointManifest(result->manifest));
    RestoringJob job;
    job.job = borrows_ ? context_->options.checkpoint.restore_job
                       : context_->options.job;
    job.optimizer = LineOf(context_->options.optimizer.kind).name;
    job.num_state_arrays = OptimizerStateArrays(context_->options.optimizer);
    AGG_RETURN_IF_ERROR(CheckRestorable(parsed, job));
    *manifest = std::move(parsed);
    return std::move(result->manifest);
  }
  if (!error.ok()) return error;
  return absl::NotFoundError("no shard reports its manifest");
}

// --- An operator's word -----------------------------------------------------

// Each checkpoint that was sealed since the folders were listed has removed
// others, as CheckpointFolder::Retire says. `found`: the newest one first.
void Restores::DropRetired(std::vector<FoundCheckpoint>* found) const {
  if (context_->state.checkpoints()->kept().empty()) return;
  const uint64_t line = context_->state.job()->line();
  const auto keep = static_cast<size_t>(context_->options.checkpoint.keep);
  std::set<uint64_t> versions;  // of those that stay
  found->erase(std::remove_if(found->begin(), found->end(),
                              [&](const FoundCheckpoint& one) {
                                if (one.id.made < line) return false;
                                return versions.size() >= keep ||
                                       !versions.insert(one.id.version).second;
                              }),
               found->end());
}

// What the shards listed when they were attached last, and what was sealed
// since, less what is gone again.
RestoreResult Restores::Found() const {
  RestoreResult result;
  for (const CheckpointId& id : SealedCheckpoints(seen_)) {
    result.found.push_back(
        {id, MissingText(NamedCheckpoint(seen_, id), /*shards=*/{})});
  }
  auto& found = result.found;
  for (const VersionId& id : context_->state.checkpoints()->kept()) {
    if (std::none_of(found.begin(), found.end(),
                     [&](const FoundCheckpoint& f) { return f.id == id; })) {
      found.push_back({id, ""});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const FoundCheckpoint& a, const FoundCheckpoint& b) {
              return b.id < a.id;
            });
  DropRetired(&found);
  return result;
}

absl::StatusOr<RestoreCall> Restores::ParseRestore(const std::string& text) {
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

// What Decide would make of the call with what the shards have listed last.
absl::StatusOr<RestoreResult> Restores::Foresee(const RestoreCall& call,
                                                RestoreResult found) const {
  MutexLock lock(&context_->mutex);
  AGG_RETURN_IF_ERROR(CheckMayOrder());
  // Also between two epochs: parameters may be in memory still.
  const JobState* const job = context_->state.job();
  const bool trains = job != nullptr && job->seeded();
  if (call.begin_anew) {
    found.text = absl::StrCat(
        "the job would begin anew: workers seed it, and the checkpoints that "
        "are there stay, and count for nothing",
        trains ? absl::StrCat("; it was at version ", job->version(),
                              ", and what shards still have of that in memory "
                              "would be lost")
               : "");
    return found;
  }
  const auto named =
      std::find_if(found.found.begin(), found.found.end(), [&](const auto& f) {
        return f.id.version == call.version &&
               (call.made == 0 || f.id.made == call.made);
      });
  if (named == found.found.end()) {
    return absl::NotFoundError(absl::StrCat(
        "no shard sees a sealed checkpoint of version ", call.version));
  }
  if (!named->missing.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint ", CheckpointText(named->id),
                     " is not complete: ", named->missing));
  }
  found.text = absl::StrCat(
      "the job would go on from ", CheckpointText(named->id),
      trains ? absl::StrCat("; it is at version ", job->version(),
                            ", and what it has trained since would be given up")
             : "",
      "; its parts are complete by their names, all of them are read first, "
      "and the job stays as it is if one is damaged");
  return found;
}

void Restores::Restore(
    const RestoreCall& call,
    std::function<void(absl::StatusOr<RestoreResult>)> done) {
  if (!context_->options.checkpoint.enabled) {
    return done(absl::FailedPreconditionError(
        "checkpoint.path is not configured: there are no checkpoints"));
  }
  RestoreResult found;
  bool running = false;
  {
    MutexLock lock(&context_->mutex);
    found = Found();
    running = context_->state.epoch_on() && context_->state.job()->seeded();
    found.text = context_->state.epoch_on()
                     ? context_->state.checkpoints()
                           ->Status(context_->clock->Now())
                           .restore
                     : context_->state.Status(context_->clock->Now()).message;
  }
  if (call.look) return done(found);
  if (call.begin_anew && running) {
    return done(absl::FailedPreconditionError(
        "the job has parameters, which would be lost: stop it, and start it "
        "with checkpoint.restore: \"none\", or under another name"));
  }
  if (call.dry_run) return done(Foresee(call, std::move(found)));
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

absl::StatusOr<ResumeResult> Restores::MayResume() const {
  MutexLock lock(&context_->mutex);
  AGG_RETURN_IF_ERROR(order_.has_value() ? OrderUnderWay() : absl::OkStatus());
  return context_->state.MayResume();
}

void Restores::Resume(std::function<void(absl::StatusOr<ResumeResult>)> done) {
  absl::StatusOr<ResumeResult> resumed = absl::UnknownError("");
  {
    MutexLock lock(&context_->mutex);
    if (order_.has_value()) {
      resumed = OrderUnderWay();
    } else {
      resumed = context_->state.Resume();
    }
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
    MutexLock lock(&context_->mutex);
    context_->state.NoteChange();
  }
  done(given);
}

absl::Status Restores::CheckMayOrder() const {
  if (context_->stop || context_->state.draining()) {
    return absl::UnavailableError("draining: the coordinator is shutting down");
  }
  return order_.has_value() ? OrderUnderWay() : absl::OkStatus();
}

absl::Status Restores::GiveOrder(Order order, const absl::Status& why) {
  TellingLock lock(&context_->mutex);
  AGG_RETURN_IF_ERROR(CheckMayOrder());
  order_ = std::move(order);
  order_->until = context_->clock->Now() + kOrderTimeout;
  // Also one that is beginning: what it does was decided without the order,
  // and CompleteOrder would take it for what the order has led to.
  lock.Tell(context_->state.EndEpoch(why, context_->clock->Now()));
  context_->changed.NotifyAll();
  return absl::OkStatus();
}

std::optional<RestoreCall> Restores::TakeOrder(bool* carried_out) {
  MutexLock lock(&context_->mutex);
  if (!order_.has_value()) return {};
  order_->taken = true;
  if (order_->kind == Order::Kind::kResume) return {};
  *carried_out = order_->carried_out;
  return order_->restore;
}

// It must not be done hours later, when a shard is back and its caller has
// turned to something else. What a recovery has begun stays: to leave it half
// done would cost more.
void Restores::ExpireOrder() {
  TellingLock lock(&context_->mutex);
  if (!order_.has_value() || order_->taken ||
      context_->clock->Now() < order_->until) {
    return;
  }
  const absl::Status accepting = context_->state.CheckAcceptingCalls();
  const absl::Status status = absl::UnavailableError(
      absl::StrCat("not begun within ", absl::FormatDuration(kOrderTimeout),
                   ", and not done later either: ",
                   accepting.ok() ? "a phase of the former epoch has not ended"
                                  : accepting.message(),
                   "; the call may be repeated"));
  // The facts said already that the job goes on.
  if (order_->kind == Order::Kind::kResume) context_->state.NoteChange();
  LogWarning("what an operator has asked for is dropped: ", status.message());
  lock.Tell([done = std::move(order_->done), status] { done(status); });
  order_.reset();
}

bool Restores::Resumes() const {
  MutexLock lock(&context_->mutex);
  return order_.has_value() && order_->kind == Order::Kind::kResume;
}

void Restores::EndOrder(const absl::StatusOr<std::string>& result) {
  TellingLock lock(&context_->mutex);
  if (!order_.has_value()) return;
  LogWarning("what an operator has asked for ",
             result.ok() ? "is done: " : "cannot be done: ",
             result.ok() ? *result : result.status().message());
  lock.Tell([done = std::move(order_->done), result] { done(result); });
  order_.reset();
}

// What was answered holds also if all processes are killed at once: so a
// checkpoint has it first, where there are any.
void Restores::CompleteOrder(const std::string& text) {
  std::optional<Order::Kind> kind;
  bool finished = false;
  bool has_it = false;
  {
    MutexLock lock(&context_->mutex);
    if (!order_.has_value() || order_->carried_out ||
        !context_->state.epoch_on()) {
      return;
    }
    order_->carried_out = true;
    kind = order_->kind;
    finished = context_->state.finished();
    has_it = context_->state.job()->seeded() &&
             context_->state.checkpoints()->Has(context_->state.job()->id());
  }
  if (*kind == Order::Kind::kResume && finished) {
    return EndOrder(absl::FailedPreconditionError(absl::StrCat(
        "the job went back to a version at which it had finished: ", text)));
  }
  if (*kind == Order::Kind::kBeginAnew ||
      !context_->options.checkpoint.enabled) {
    return EndOrder(text);
  }
  if (has_it) {
    const absl::Status sealed = SealFacts();
    return sealed.ok() ? EndOrder(text) : EndOrder(sealed);
  }
  MutexLock lock(&context_->mutex);
  context_->state.checkpoints()->Request(
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
absl::Status Restores::SealFacts() {
  VersionId id;
  uint64_t epoch = 0;
  std::string facts;
  {
    MutexLock lock(&context_->mutex);
    id = context_->state.job()->id();
    epoch = context_->state.job()->epoch();
    facts = FactsText(context_->state.facts());
  }
  CheckpointManifest manifest;
  AGG_ASSIGN_OR_RETURN(const std::string text,
                       ReadCheckpoint(epoch, id, &manifest));
  manifest.facts = facts;
  AGG_ASSIGN_OR_RETURN(JobRecord record, ParseJobRecord(manifest.record));
  record.started = false;  // as the job has it now
  manifest.record = context_->TextOf(std::move(record));
  return Seal(epoch, CheckpointManifestJson(manifest));
}

absl::Status Restores::Seal(uint64_t epoch, const std::string& checkpoint) {
  Phase phase = PhaseOf(PhaseKind::kSeal, epoch);
  phase.checkpoint = checkpoint;
  // All: nothing is removed before the job has saved something of its own.
  phase.keep = std::numeric_limits<int>::max();
  phase.line = std::numeric_limits<uint64_t>::max();
  return context_->RunPhase(phase);
}

}  // namespace agg
