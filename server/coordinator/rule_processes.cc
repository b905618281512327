// Questions first, which are pure; then polls, and rounds that ask.
#include "server/coordinator/rule_processes.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "server/base/field_error.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/base/utf8.h"
#include "server/combine/external.h"
#include "server/combine/rule_table.h"
#include "server/coordinator/coordinator_types.h"

namespace agg {

namespace {

// A message holds 8 MiB (proto/byte_buffer_frame.h), and has its own words.
constexpr size_t kMostQuestionBytes = size_t{7} << 20;
// Of a row in it, and of a segment beside its matrix, its name and its state.
constexpr size_t kMostRowBytes = 48;
constexpr size_t kMostSegmentBytes = 32;
// Words of a process that fails, and former processes that are known.
constexpr size_t kMostErrorBytes = 1024;
constexpr size_t kMostReplaced = 16;
// A wait sees within this time that it is over, whoever forgets to say so.
constexpr absl::Duration kLook = absl::Seconds(1);

std::vector<double> Packed(const GramMatrix& gram) {
  std::vector<double> packed;
  for (int i = 0; i < gram.num_rows(); ++i) {
    const absl::Span<const double> row = gram.UpperRow(i);
    packed.insert(packed.end(), row.begin(), row.end());
  }
  return packed;
}

std::string WhyNoStepScale(const CombineOptions& options,
                           const RuleOptions& rule) {
  if (rule.scope == Scope::kPerTensor) {
    return "1 with combination.scope \"per_tensor\": a step scale is of the "
           "whole model";
  }
  if (options.step_scale.kind != StepScale::kNone) {
    return absl::StrCat("1 with step_scale.kind ",
                        Quoted(StepScaleName(options.step_scale.kind)),
                        ", which scales the step already");
  }
  return "";
}

absl::Status CheckPoll(const RulePoll& poll) {
  if (!IsExternalName(poll.name)) {
    return FieldError("name", Quoted(poll.name), "[A-Za-z0-9_.-]{1,64}");
  }
  if (poll.process == 0) return FieldError("process", "0", "a random number");
  return ValidateText("client", poll.client);
}

}  // namespace

absl::StatusOr<RuleQuestion> MakeQuestion(const CombineOptions& options,
                                          const RuleOptions& rule,
                                          const CompactedRound& round,
                                          absl::Span<const RuleState> states,
                                          const RoundWords& words) {
  const bool per_tensor = rule.scope == Scope::kPerTensor;
  const size_t num_segments = per_tensor ? round.tensors.size() : 1;
  const size_t num_rows = static_cast<size_t>(round.num_rows());
  size_t num_bytes = num_rows * kMostRowBytes;
  for (size_t s = 0; s < num_segments; ++s) {
    num_bytes +=
        num_rows * (num_rows + 1) / 2 * sizeof(double) + kMostSegmentBytes;
    if (per_tensor) num_bytes += (*words.tensors)[s].size();
    if (s < states.size()) num_bytes += states[s].bytes.size();
  }
  if (num_bytes > kMostQuestionBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the question about ", num_rows, " rows of ", num_segments,
        per_tensor ? " tensors" : " model", " takes ", num_bytes,
        " bytes; allowed: ", kMostQuestionBytes,
        per_tensor ? " (scope \"global\" has one Gram matrix)" : ""));
  }
  RuleQuestion question;
  question.name = rule.external.name;
  question.epoch = words.epoch;
  question.round = words.round;
  question.no_step_scale = WhyNoStepScale(options, rule);
  question.rows = round.rows;
  for (const int row : round.kept) question.losses.push_back(words.losses[row]);
  for (size_t s = 0; s < num_segments; ++s) {
    RuleQuestion::Segment segment;
    if (per_tensor) segment.tensor = (*words.tensors)[s];
    segment.gram = Packed(per_tensor ? round.tensors[s] : round.total);
    if (s < states.size()) segment.state = states[s].bytes;
    question.segments.push_back(std::move(segment));
  }
  return question;
}

RuleProcesses::RuleProcesses(const Clock* clock, const CombineOptions& options)
    : clock_(clock) {
  // An answer to a question of a former coordinator is then none to this one's.
  std::random_device random;
  last_question_ = (uint64_t{random()} << 32) | random();
  std::vector<RuleOptions> rules = options.shadow_rules;
  rules.push_back(options.rule);
  names_.insert(options.rule.external.name);
  for (const RuleOptions& rule : rules) {
    if (!rule.rule->Has(kIsExternal)) continue;
    names_.insert(rule.external.name);
    places_[rule.external.name];
  }
}

absl::StatusOr<RuleProcesses::Place*> RuleProcesses::PlaceOf(
    const std::string& name) {
  if (names_.count(name) > 0) return &places_[name];
  std::vector<std::string> allowed;
  for (const std::string& one : names_) allowed.push_back(Quoted(one));
  return FieldError("name", Quoted(name), absl::StrJoin(allowed, ", "));
}

void RuleProcesses::EndPoll(const absl::Status& reason, Place* place,
                            Calls* calls) {
  if (place->poll == 0) return;
  place->poll = 0;
  calls->push_back(
      [give = std::exchange(place->give, nullptr), reason] { give(reason); });
}

// A new process takes the place of the one that was there.
absl::Status RuleProcesses::Enter(const RulePoll& poll, Place* place,
                                  Calls* calls) {
  const auto replaced = [&](const std::string& by) {
    return absl::AbortedError(absl::StrCat(
        "superseded: rule ", Quoted(poll.name), " is decided by process ", by,
        " now, which began later; end that one first"));
  };
  if (std::count(place->replaced.begin(), place->replaced.end(), poll.process) >
      0) {
    return replaced(place->client);
  }
  if (place->process != poll.process) {
    if (place->process != 0) {
      EndPoll(replaced(poll.client), place, calls);
      place->replaced.push_back(place->process);
      if (place->replaced.size() > kMostReplaced) place->replaced.pop_front();
    }
    LogInfoOf(absl::StrCat("rule process ", poll.name), "rule ",
              Quoted(poll.name), " is decided by process ", poll.client,
              place->process == 0
                  ? std::string()
                  : absl::StrCat(", in place of ", place->client));
  }
  place->process = poll.process;
  place->client = poll.client;
  place->identity = poll.identity;
  place->seen = clock_->Now();
  place->absent = false;
  // The same process on a new connection: the former one is broken.
  EndPoll(absl::CancelledError("the process asks again"), place, calls);
  return absl::OkStatus();
}

absl::Status RuleProcesses::TakeAnswer(RulePoll* poll, Place* place) {
  if (!poll->answer.has_value()) return absl::OkStatus();
  RuleAnswer& answer = *poll->answer;
  if (answer.question == place->last_answered) return absl::OkStatus();
  if (place->question == nullptr || place->answer.has_value() ||
      place->question->number != answer.question) {
    ++place->counts.late_answers;
    return absl::OkStatus();
  }
  const RuleQuestion& question = *place->question;
  place->last_answered = answer.question;
  ExternalAnswer taken;
  taken.name = poll->name;
  taken.segments = std::move(answer.segments);
  taken.step_scale = answer.step_scale;
  absl::Status fits;
  if (!answer.error.empty()) {
    // A character may be cut in two.
    taken.missing = absl::StrCat(
        "its function failed: ",
        ValidUtf8(absl::string_view(answer.error).substr(0, kMostErrorBytes)));
  } else {
    fits = CheckExternalAnswer(taken, question.segments.size(),
                               static_cast<int>(question.rows.size()));
    if (fits.ok() && taken.step_scale != 1.0 &&
        !question.no_step_scale.empty()) {
      fits = FieldError("step_scale", absl::StrCat(taken.step_scale),
                        question.no_step_scale);
    }
    if (!fits.ok()) {
      taken.missing = absl::StrCat("its answer is refused: ", fits.message());
    }
  }
  if (!taken.missing.empty()) taken.segments.clear();
  place->answer = std::move(taken);
  changed_.NotifyAll();
  if (fits.ok()) return fits;
  return absl::InvalidArgumentError(
      absl::StrCat("the answer is refused: ", fits.message()));
}

uint64_t RuleProcesses::Poll(RulePoll poll, Give give) {
  Calls calls;
  uint64_t number = 0;
  {
    MutexLock lock(&mutex_);
    absl::Status status = stopped_
                              ? absl::UnavailableError("the coordinator stops")
                              : CheckPoll(poll);
    Place* place = nullptr;
    if (status.ok()) {
      const absl::StatusOr<Place*> found = PlaceOf(poll.name);
      status = found.status();
      if (found.ok()) place = *found;
    }
    if (status.ok()) status = Enter(poll, place, &calls);
    if (status.ok()) status = TakeAnswer(&poll, place);
    if (!status.ok()) {
      calls.push_back([give = std::move(give), status] { give(status); });
    } else if (place->question != nullptr && !place->answer.has_value()) {
      calls.push_back([give = std::move(give), question = place->question] {
        give(question);
      });
    } else {
      number = ++last_poll_;
      place->poll = number;
      place->give = std::move(give);
    }
  }
  for (const auto& call : calls) call();
  return number;
}

void RuleProcesses::CancelPoll(uint64_t number) {
  if (number == 0) return;
  MutexLock lock(&mutex_);
  for (auto& [name, place] : places_) {
    if (place.poll != number) continue;
    place.poll = 0;
    place.give = nullptr;
    place.seen = clock_->Now();
  }
}

ExternalAnswer RuleProcesses::Missing(const std::string& name, std::string why,
                                      Place* place) {
  ++place->counts.missing_answers;
  place->counts.last_missing = why;
  ExternalAnswer missing;
  missing.name = name;
  missing.missing = std::move(why);
  return missing;
}

ExternalAnswer RuleProcesses::NotAsked(const std::string& name,
                                       const absl::Status& reason) {
  MutexLock lock(&mutex_);
  const absl::StatusOr<Place*> place = PlaceOf(name);
  if (place.ok()) {
    return Missing(name, std::string(reason.message()), *place);
  }
  ExternalAnswer missing;
  missing.name = name;
  missing.missing = std::string(reason.message());
  return missing;
}

bool RuleProcesses::WaitOn(const std::string& name, bool is_over,
                           absl::Time deadline) {
  MutexLock lock(&mutex_);
  const absl::Time now = clock_->Now();
  if (places_[name].answer.has_value() || stopped_ || is_over ||
      now >= deadline) {
    return false;
  }
  changed_.WaitFor(&mutex_, std::min(deadline - now, kLook));
  return true;
}

ExternalAnswer RuleProcesses::Ask(RuleQuestion question, absl::Duration timeout,
                                  const std::function<bool()>& over) {
  const std::string name = question.name;
  const absl::Time began = clock_->Now();
  Give give;
  std::shared_ptr<const RuleQuestion> asked;
  {
    MutexLock lock(&mutex_);
    const absl::StatusOr<Place*> found = PlaceOf(name);
    if (!found.ok()) {
      ExternalAnswer missing;
      missing.name = name;
      missing.missing = std::string(found.status().message());
      return missing;
    }
    Place* const place = *found;
    if (place->absent) {
      return Missing(name,
                     "no process has asked for rounds since the last one "
                     "that waited for it",
                     place);
    }
    question.number = ++last_question_;
    asked = std::make_shared<const RuleQuestion>(std::move(question));
    place->question = asked;
    place->answer.reset();
    if (place->poll != 0) {
      place->poll = 0;
      give = std::exchange(place->give, nullptr);
    }
  }
  if (give != nullptr) give(asked);
  // `over` may take the lock of who ends this wait, so it has none of ours.
  bool is_over = over != nullptr && over();
  while (WaitOn(name, is_over, began + timeout)) {
    is_over = over != nullptr && over();
  }
  MutexLock lock(&mutex_);
  Place* const place = &places_[name];
  const absl::Time now = clock_->Now();
  place->question = nullptr;
  std::optional<ExternalAnswer> answer =
      std::exchange(place->answer, std::nullopt);
  if (!answer.has_value()) {
    if (stopped_) return Missing(name, "the coordinator stops", place);
    if (is_over) return Missing(name, "the epoch is over", place);
    place->absent = place->poll == 0;
    return Missing(
        name,
        place->process == 0
            ? absl::StrCat("no process has asked for rounds within ",
                           absl::FormatDuration(timeout))
            : absl::StrCat("process ", place->client, " has not answered in ",
                           absl::FormatDuration(timeout)),
        place);
  }
  if (!answer->missing.empty()) return Missing(name, answer->missing, place);
  ++place->counts.answers;
  place->counts.last_seconds = absl::ToDoubleSeconds(now - began);
  return *std::move(answer);
}

void RuleProcesses::CheckDeadlines() { changed_.NotifyAll(); }

void RuleProcesses::Stop() {
  Calls calls;
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    for (auto& [name, place] : places_) {
      EndPoll(absl::UnavailableError("the coordinator stops"), &place, &calls);
    }
    changed_.NotifyAll();
  }
  for (const auto& call : calls) call();
}

std::vector<RuleProcessStatus> RuleProcesses::Status() const {
  MutexLock lock(&mutex_);
  const absl::Time now = clock_->Now();
  std::vector<RuleProcessStatus> all;
  for (const auto& [name, place] : places_) {
    RuleProcessStatus status = place.counts;
    status.name = name;
    status.client = place.client;
    status.identity = place.identity;
    status.connected = place.process != 0 && !place.absent &&
                       (place.poll != 0 || place.question != nullptr ||
                        now - place.seen < kThere);
    all.push_back(std::move(status));
  }
  return all;
}

}  // namespace agg
