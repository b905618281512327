// The record as JSON: people can read it in a checkpoint's manifest, and a
// field that a later release adds disturbs nobody.
#include "server/coordinator/job_record.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/base/field_error.h"
#include "server/base/json.h"
#include "server/base/status_macros.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/rule_table.h"
#include "server/coordinator/coordinator_types.h"

namespace agg {

namespace {

// --- Written -----------------------------------------------------------------

Json RuleJson(const RuleOptions& options) {
  return Json{{"rule", std::string(options.rule->name)},
              {"scope", std::string(ScopeName(options.scope))},
              {"beta", LosslessNumber(options.adacons.beta)},
              {"epsilon", LosslessNumber(options.adacons.epsilon)},
              {"rescale", static_cast<int>(options.adacons.rescale)}};
}

// A rule's memory: one object for each segment.
Json SegmentsJson(const std::vector<RuleState>& segments) {
  Json list = Json::array();
  for (const RuleState& segment : segments) {
    list.push_back(Json{{"values", LosslessNumbers(segment.values)}});
  }
  return list;
}

Json StepScaleJson(const StepScaleState& state) {
  return Json{
      {"variance", LosslessNumber(state.variance)},
      {"variance_weight", LosslessNumber(state.variance_weight)},
      {"mean_squared", LosslessNumber(state.mean_squared)},
      {"mean_squared_weight", LosslessNumber(state.mean_squared_weight)},
      {"num_samples", state.num_samples},
      {"tau", LosslessNumber(state.tau)}};
}

Json OutcomeJson(const RecordedOutcome& recorded) {
  const RoundResult& outcome = recorded.outcome;
  Json included = Json::array();
  for (const auto& row : recorded.included) {
    included.push_back(Json{{"session", row.first}, {"attempt", row.second}});
  }
  return Json{{"epoch", outcome.epoch},
              {"round", outcome.round},
              {"version", outcome.version},
              {"kind", static_cast<int>(outcome.kind)},
              {"ranks", Json(outcome.ranks)},
              {"excluded_ranks", Json(outcome.excluded_ranks)},
              {"learning_rate", LosslessNumber(outcome.learning_rate)},
              {"gain", LosslessNumber(outcome.gain)},
              {"tau", LosslessNumber(outcome.tau)},
              {"orthogonality", LosslessNumber(outcome.orthogonality)},
              {"finished", outcome.finished},
              {"message", outcome.message},
              {"loss", LosslessNumber(outcome.loss)},
              {"combined_norm", LosslessNumber(outcome.combined_norm)},
              {"rule", outcome.combination.rule},
              {"scope", outcome.combination.scope},
              {"step_scale", outcome.combination.step_scale},
              {"absent_tensors", Json(outcome.absent_tensors)},
              {"differing_ranks", Json(outcome.differing_ranks)},
              {"included", std::move(included)}};
}

// --- Read --------------------------------------------------------------------

// An enumerator by its number, from 0 to `last`. (Enumerators of AdaCons'
// rescale and of outcomes are only ever added at the end.)
template <typename Enum>
void TakeEnum(const JsonMembers& members, const char* name, Enum last,
              Enum* value) {
  uint8_t number = 0;
  members.TakeInteger(name, &number);
  if (number > static_cast<uint8_t>(last)) {
    members.Add(name, std::to_string(number),
                "0 to " + std::to_string(static_cast<int>(last)));
    return;
  }
  *value = static_cast<Enum>(number);
}

RuleOptions ReadRule(const JsonMembers& members) {
  RuleOptions options;
  std::string rule;
  std::string scope;
  members.Take("rule", &rule);
  members.Take("scope", &scope);
  const Rule* const found = FindRule(rule);
  if (found == nullptr) {
    members.Add("rule", Quoted(rule), RuleNames(", "));
  } else {
    options.rule = found;
  }
  const absl::StatusOr<Scope> parsed = ParseScope("scope", scope);
  members.Add(parsed.status());
  if (parsed.ok()) options.scope = *parsed;
  members.Take("beta", &options.adacons.beta);
  members.Take("epsilon", &options.adacons.epsilon);
  TakeEnum(members, "rescale", AdaconsRescale::kMatchMean,
           &options.adacons.rescale);
  return options;
}

std::vector<RuleState> ReadSegments(const JsonMembers& members,
                                    const char* name) {
  std::vector<RuleState> segments;
  members.TakeList(name, [&](const JsonMembers& segment) {
    segments.emplace_back();
    segment.Take("values", &segments.back().values);
  });
  return segments;
}

StepScaleState ReadStepScale(const JsonMembers& members) {
  StepScaleState state;
  members.Take("variance", &state.variance);
  members.Take("variance_weight", &state.variance_weight);
  members.Take("mean_squared", &state.mean_squared);
  members.Take("mean_squared_weight", &state.mean_squared_weight);
  members.TakeInteger("num_samples", &state.num_samples);
  members.Take("tau", &state.tau);
  return state;
}

RecordedOutcome ReadOutcome(const JsonMembers& members) {
  RecordedOutcome recorded;
  RoundResult& outcome = recorded.outcome;
  members.TakeInteger("epoch", &outcome.epoch);
  members.TakeInteger("round", &outcome.round);
  members.TakeInteger("version", &outcome.version);
  TakeEnum(members, "kind", OutcomeKind::kSeeded, &outcome.kind);
  members.TakeIntegers("ranks", &outcome.ranks);
  members.TakeIntegers("excluded_ranks", &outcome.excluded_ranks);
  members.Take("learning_rate", &outcome.learning_rate);
  members.Take("gain", &outcome.gain);
  members.Take("tau", &outcome.tau);
  members.Take("orthogonality", &outcome.orthogonality);
  members.Take("finished", &outcome.finished);
  members.Take("message", &outcome.message);
  members.Take("loss", &outcome.loss);
  members.Take("combined_norm", &outcome.combined_norm);
  members.Take("rule", &outcome.combination.rule);
  members.Take("scope", &outcome.combination.scope);
  members.Take("step_scale", &outcome.combination.step_scale);
  if (members.Has("absent_tensors")) {  // else of an older release
    members.TakeIntegers("absent_tensors", &outcome.absent_tensors);
    members.TakeIntegers("differing_ranks", &outcome.differing_ranks);
  }
  members.TakeList("included", [&](const JsonMembers& row) {
    uint64_t session = 0;
    uint32_t attempt = 0;
    row.TakeInteger("session", &session);
    row.TakeInteger("attempt", &attempt);
    recorded.included[session] = attempt;
  });
  return recorded;
}

void ReadUsedRow(const JsonMembers& members, JobRecord* record) {
  int32_t rank = 0;
  UsedRow row;
  members.TakeInteger("rank", &rank);
  members.TakeInteger("session", &row.session);
  members.TakeInteger("round", &row.round);
  members.TakeInteger("attempt", &row.attempt);
  record->used_rows[rank] = row;
}

JobRecord ReadRecord(const JsonMembers& members) {
  JobRecord record;
  members.TakeInteger("history", &record.history);
  if (members.Has("line")) members.TakeInteger("line", &record.line);
  members.Take("started", &record.started);
  members.TakeInteger("num_steps", &record.num_steps);
  members.TakeObject(
      "rule", [&](const JsonMembers& rule) { record.rule = ReadRule(rule); });
  record.state.rule = ReadSegments(members, "state");
  members.TakeList("shadow_rules", [&](const JsonMembers& shadow) {
    record.shadow_rules.push_back(ReadRule(shadow));
    record.state.shadow_rules.push_back(ReadSegments(shadow, "state"));
  });
  members.TakeObject("step_scale", [&](const JsonMembers& step_scale) {
    record.state.step_scale = ReadStepScale(step_scale);
  });
  members.TakeList("outcomes", [&](const JsonMembers& outcome) {
    record.outcomes.push_back(ReadOutcome(outcome));
  });
  members.TakeList("used_rows",
                   [&](const JsonMembers& row) { ReadUsedRow(row, &record); });
  return record;
}

// What a rule's memory of `before` is for `now`.
std::vector<RuleState> Carried(const RuleOptions& before,
                               const RuleOptions& now,
                               const std::vector<RuleState>& segments,
                               size_t num_tensors) {
  CombineOptions options_before;
  options_before.rule = before;
  CombineOptions options_now;
  options_now.rule = now;
  CombineState state;
  state.rule = segments;
  CarryState(options_before, options_now, &state);
  const size_t num_segments = now.scope == Scope::kPerTensor ? num_tensors : 1;
  if (state.rule.size() != num_segments) state.rule.clear();
  return std::move(state.rule);
}

}  // namespace

std::string JobRecordText(const JobRecord& record) {
  Json shadows = Json::array();
  for (size_t i = 0; i < record.shadow_rules.size(); ++i) {
    Json shadow = RuleJson(record.shadow_rules[i]);
    // A shadow that has not been evaluated yet has no memory.
    shadow["state"] = i < record.state.shadow_rules.size()
                          ? SegmentsJson(record.state.shadow_rules[i])
                          : Json::array();
    shadows.push_back(std::move(shadow));
  }
  Json outcomes = Json::array();
  for (const RecordedOutcome& outcome : record.outcomes) {
    outcomes.push_back(OutcomeJson(outcome));
  }
  Json used_rows = Json::array();
  for (const auto& row : record.used_rows) {
    used_rows.push_back(Json{{"rank", row.first},
                             {"session", row.second.session},
                             {"round", row.second.round},
                             {"attempt", row.second.attempt}});
  }
  return JsonLine(Json{{"history", record.history},
                       {"line", record.line},
                       {"started", record.started},
                       {"num_steps", record.num_steps},
                       {"rule", RuleJson(record.rule)},
                       {"state", SegmentsJson(record.state.rule)},
                       {"shadow_rules", std::move(shadows)},
                       {"step_scale", StepScaleJson(record.state.step_scale)},
                       {"outcomes", std::move(outcomes)},
                       {"used_rows", std::move(used_rows)}});
}

std::string JobRecordText(JobRecord record, int64_t max_bytes, bool* cut) {
  std::string text = JobRecordText(record);
  *cut = static_cast<int64_t>(text.size()) > max_bytes;
  if (!*cut) return text;
  text.clear();  // before the next one takes memory
  text.shrink_to_fit();
  record.shadow_rules.clear();
  record.state.shadow_rules.clear();
  return JobRecordText(record);
}

absl::StatusOr<JobRecord> ParseJobRecord(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr,
                                /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::DataLossError("the job's record is not a JSON object");
  }
  FieldErrors errors;
  JobRecord record = ReadRecord(JsonMembers(json, "record.", &errors));
  if (!errors.empty()) return errors.status();
  return record;
}

CombineState StateToGoOnWith(const JobRecord& record, const CombineOptions& now,
                             size_t num_tensors) {
  CombineState state;
  state.step_scale = record.state.step_scale;
  state.rule = Carried(record.rule, now.rule, record.state.rule, num_tensors);
  // Shadows are known by their places: the configuration has no names for them.
  for (size_t i = 0; i < now.shadow_rules.size(); ++i) {
    state.shadow_rules.emplace_back();
    if (i >= record.shadow_rules.size() ||
        i >= record.state.shadow_rules.size()) {
      continue;
    }
    state.shadow_rules.back() =
        Carried(record.shadow_rules[i], now.shadow_rules[i],
                record.state.shadow_rules[i], num_tensors);
  }
  return state;
}

// An outcome has ranks, and attempts by session: which session a rank had
// follows from the last row of the rank that was used.

namespace {

RowOrigin OriginOf(const RecordedOutcome& recorded, const UsedRow& used) {
  const auto included = recorded.included.find(used.session);
  if (included == recorded.included.end()) return RowOrigin();
  return {included->first, included->second, {}};
}

void AddRow(int32_t rank, const RowOrigin& origin, RoundReport* report) {
  RowInfo row;
  row.rank = rank;
  report->rows.push_back(row);
  report->origins.push_back(origin);
}

void AddRows(const RecordedOutcome& recorded,
             const std::map<int32_t, UsedRow>& used_rows, RoundReport* report) {
  for (const int32_t rank : recorded.outcome.ranks) {
    const auto used = used_rows.find(rank);
    AddRow(rank,
           used == used_rows.end() ? RowOrigin()
                                   : OriginOf(recorded, used->second),
           report);
  }
  for (const int32_t rank : recorded.outcome.excluded_ranks) {
    AddRow(rank, RowOrigin(), report);
  }
}

}  // namespace

std::vector<RoundReport> RestoredReports(const JobRecord& record,
                                         const VersionId& reported) {
  std::vector<RoundReport> reports;
  for (const RecordedOutcome& recorded : record.outcomes) {
    const RoundResult& outcome = recorded.outcome;
    if (!(reported < VersionId{outcome.epoch, outcome.version})) continue;
    RoundReport report;
    report.restored = true;
    report.epoch = outcome.epoch;
    // Of an older one the record has no more than that it was there.
    if (outcome.epoch >= record.history) report.history = record.history;
    report.round = outcome.round;
    report.version = outcome.version;
    report.applied = outcome.kind == OutcomeKind::kApplied;
    report.message = outcome.message;
    report.combination = outcome.combination;
    report.decision.excluded_ranks = outcome.excluded_ranks;
    report.decision.finished = outcome.finished;
    AddRows(recorded, record.used_rows, &report);
    reports.push_back(report);
  }
  return reports;
}

// Applies the change to a copy of the options and has it validated as a
// configuration would be, so that both have the same errors.

namespace {

bool IsEmpty(const RuleChange& change) {
  return !change.rule.has_value() && !change.scope.has_value() &&
         !change.step_scale.has_value() &&
         !change.force_step_scale.has_value() &&
         !change.learning_rate.has_value() &&
         !change.adacons_beta.has_value() &&
         !change.adacons_rescale.has_value() &&
         !change.krum_byzantine_workers.has_value() &&
         !change.krum_selected.has_value();
}

// An option that only rules with this trait have, and that is set.
absl::Status CheckTrait(const Rule& rule, RuleTrait trait,
                        absl::string_view field, const std::string& value) {
  if (rule.Has(trait)) return absl::OkStatus();
  return FieldError(field, value,
                    absl::StrCat("with rule ", NamesOfRulesWith(trait),
                                 "; the rule is ", Quoted(rule.name)));
}

absl::Status ChangeKrum(const RuleChange& change, RuleOptions* options) {
  absl::Status status;
  if (change.krum_byzantine_workers.has_value()) {
    status.Update(CheckTrait(*options->rule, kTakesKrumOptions,
                             "krum_byzantine_workers",
                             absl::StrCat(*change.krum_byzantine_workers)));
    options->krum.byzantine_workers = *change.krum_byzantine_workers;
  }
  if (change.krum_selected.has_value()) {
    status.Update(CheckTrait(*options->rule, kSelectsSeveral, "krum_selected",
                             absl::StrCat(*change.krum_selected)));
    options->krum.selected = *change.krum_selected;
  }
  return status;
}

absl::Status ChangeAdacons(const RuleChange& change, RuleOptions* options) {
  absl::Status status;
  if (change.adacons_beta.has_value()) {
    status.Update(CheckTrait(*options->rule, kTakesAdaconsOptions,
                             "adacons_beta",
                             absl::StrCat(*change.adacons_beta)));
    options->adacons.beta = *change.adacons_beta;
  }
  if (!change.adacons_rescale.has_value()) return status;
  status.Update(CheckTrait(*options->rule, kTakesAdaconsOptions,
                           "adacons_rescale", Quoted(*change.adacons_rescale)));
  if (!status.ok()) return status;
  AGG_ASSIGN_OR_RETURN(
      const AdaconsRescale rescale,
      ParseAdaconsRescale("adacons_rescale", *change.adacons_rescale));
  options->adacons.rescale = rescale;
  return status;
}

void TakeRule(const Rule* rule, int32_t workers, RuleOptions* options) {
  if (rule != options->rule) options->scope = rule->default_scope;
  const auto is_new = [&](RuleTrait trait) {
    return rule->Has(trait) && !options->rule->Has(trait);
  };
  if (is_new(kTakesKrumOptions)) {
    options->krum.byzantine_workers = DefaultByzantineWorkers(workers);
  }
  if (is_new(kSelectsSeveral)) options->krum.selected = KrumOptions().selected;
  if (is_new(kTakesAdaconsOptions)) {
    // Epsilon is as configured: no change touches it.
    options->adacons.beta = AdaconsOptions().beta;
    options->adacons.rescale = AdaconsOptions().rescale;
  }
  options->rule = rule;
}

absl::Status ChangeRule(const RuleChange& change, int32_t workers,
                        RuleOptions* options) {
  if (change.rule.has_value()) {
    AGG_ASSIGN_OR_RETURN(const Rule* rule, ParseRule("rule", *change.rule));
    TakeRule(rule, workers, options);
  }
  if (change.scope.has_value()) {
    AGG_ASSIGN_OR_RETURN(const Scope scope, ParseScope("scope", *change.scope));
    options->scope = scope;
  }
  absl::Status status = ChangeAdacons(change, options);
  status.Update(ChangeKrum(change, options));
  return status;
}

bool SameRule(const RuleOptions& a, const RuleOptions& b) {
  return a.rule == b.rule && a.scope == b.scope &&
         a.adacons.beta == b.adacons.beta &&
         a.adacons.epsilon == b.adacons.epsilon &&
         a.adacons.rescale == b.adacons.rescale;
}

}  // namespace

absl::StatusOr<CombineOptions> ChangedCombination(const CombineOptions& before,
                                                  const RuleChange& change,
                                                  int32_t workers) {
  if (IsEmpty(change)) {
    return absl::InvalidArgumentError(
        "nothing to change: must name a rule, scope, step_scale, "
        "learning_rate or an option of theirs");
  }
  CombineOptions after = before;
  AGG_RETURN_IF_ERROR(ChangeRule(change, workers, &after.rule));
  if (change.step_scale.has_value()) {
    AGG_ASSIGN_OR_RETURN(const StepScale kind,
                         ParseStepScale("step_scale", *change.step_scale));
    after.step_scale.kind = kind;
  }
  if (change.force_step_scale.has_value()) {
    after.step_scale.force = *change.force_step_scale;
  }
  if (change.learning_rate.has_value()) {
    after.schedule.learning_rate = *change.learning_rate;
  }
  AGG_RETURN_IF_ERROR(ValidateCombineOptions(after));
  return after;
}

CombinationNames NamesOf(const CombineOptions& options) {
  return {std::string(options.rule.rule->name),
          std::string(ScopeName(options.rule.scope)),
          std::string(StepScaleName(options.step_scale.kind))};
}

void CarryState(const CombineOptions& before, const CombineOptions& after,
                CombineState* state) {
  if (!SameRule(before.rule, after.rule)) state->rule.clear();
}

// Facts as JSON, so that people can read them in a checkpoint's manifest, and a
// field that a later release adds disturbs nobody.

namespace {

// A text of an older release lacks these.
constexpr char kByzantineWorkers[] = "krum_byzantine_workers";
constexpr char kSelected[] = "krum_selected";

// Every field, and those that only some rules may have where they are set.
Json RuleJson(const RuleChange& change) {
  Json json{
      {"rule", change.rule.value_or("")},
      {"scope", change.scope.value_or("")},
      {"step_scale", change.step_scale.value_or("")},
      {"force_step_scale", change.force_step_scale.value_or(false)},
      {"learning_rate", LosslessNumber(change.learning_rate.value_or(0))}};
  json["adacons"] = change.adacons_beta.has_value();
  json["adacons_beta"] = LosslessNumber(change.adacons_beta.value_or(0));
  json["adacons_rescale"] = change.adacons_rescale.value_or("");
  if (change.krum_byzantine_workers.has_value()) {
    json[kByzantineWorkers] = *change.krum_byzantine_workers;
  }
  if (change.krum_selected.has_value()) {
    json[kSelected] = *change.krum_selected;
  }
  return json;
}

RuleChange ReadRuleChange(const JsonMembers& members) {
  RuleChange change;
  change.rule.emplace();
  change.scope.emplace();
  change.step_scale.emplace();
  change.force_step_scale.emplace();
  change.learning_rate.emplace();
  members.Take("rule", &*change.rule);
  members.Take("scope", &*change.scope);
  members.Take("step_scale", &*change.step_scale);
  members.Take("force_step_scale", &*change.force_step_scale);
  members.Take("learning_rate", &*change.learning_rate);
  bool adacons = false;
  members.Take("adacons", &adacons);
  if (adacons) {
    change.adacons_beta.emplace();
    change.adacons_rescale.emplace();
    members.Take("adacons_beta", &*change.adacons_beta);
    members.Take("adacons_rescale", &*change.adacons_rescale);
  }
  if (members.Has(kByzantineWorkers)) {
    members.TakeInteger(kByzantineWorkers,
                        &change.krum_byzantine_workers.emplace());
  }
  if (members.Has(kSelected)) {
    members.TakeInteger(kSelected, &change.krum_selected.emplace());
  }
  return change;
}

constexpr char kEvicted[] = "evicted";  // a text of an older release lacks it

Json EvictedList(const std::vector<EvictedSession>& evicted) {
  Json list = Json::array();
  for (const EvictedSession& one : evicted) {
    list.push_back(Json{{"session", one.session}, {"reason", one.reason}});
  }
  return list;
}

constexpr char kReduction[] = "reduction";  // likewise

Json ReductionJson(const KeptReduction& made) {
  Json last = Json::array();
  for (const auto& [rank, name] : made.last) {
    last.push_back(
        Json{{"rank", rank}, {"giver", name.giver}, {"call", name.call}});
  }
  return Json{{"sums", LosslessNumbers(made.sums)},
              {"ranks", made.ranks},
              {"left_out", made.left_out},
              {"last", std::move(last)}};
}

KeptReduction ReadReduction(const JsonMembers& members) {
  KeptReduction made;
  members.Take("sums", &made.sums);
  members.TakeIntegers("ranks", &made.ranks);
  members.TakeIntegers("left_out", &made.left_out);
  members.TakeList("last", [&](const JsonMembers& one) {
    int32_t rank = 0;
    GiverCall name;
    one.TakeInteger("rank", &rank);
    one.TakeInteger("giver", &name.giver);
    one.TakeInteger("call", &name.call);
    made.last[rank] = name;
  });
  if (made.sums.empty()) members.Add("sums", "empty", "at least one");
  if (made.ranks.empty()) members.Add("ranks", "empty", "at least one");
  return made;
}

Json RuleList(const std::optional<RuleChange>& change) {
  Json list = Json::array();
  if (change.has_value()) list.push_back(RuleJson(*change));
  return list;
}

}  // namespace

void AddEvicted(const std::vector<EvictedSession>& more,
                std::vector<EvictedSession>* evicted) {
  for (const EvictedSession& one : more) {
    const bool known =
        std::any_of(evicted->begin(), evicted->end(),
                    [&](const auto& it) { return it.session == one.session; });
    if (!known) evicted->push_back(one);
  }
  if (evicted->size() <= kMaxEvictedSessions) return;
  evicted->erase(evicted->begin(),
                 evicted->end() - static_cast<int64_t>(kMaxEvictedSessions));
}

JobChanges AfterRewind(const JobChanges& sealed, const JobChanges& newest) {
  JobChanges changes = sealed;
  if (newest.rule.has_value()) {
    changes.rule = newest.rule;
    changes.next_rule = newest.next_rule;
    changes.next_round = newest.next_round;
  }
  AddEvicted(newest.evicted, &changes.evicted);
  if (newest.reduction != nullptr) changes.reduction = newest.reduction;
  return changes;
}

std::string JobChangesText(const JobChanges& changes) {
  if (!changes.finished && !changes.rule.has_value() &&
      !changes.next_rule.has_value() && changes.evicted.empty() &&
      changes.reduction == nullptr) {
    return "";
  }
  Json json{{"finished", changes.finished},
            {"failed", changes.failed},
            {"end_reason", changes.end_reason},
            {"rule", RuleList(changes.rule)},
            {"next_rule", RuleList(changes.next_rule)},
            {"next_round", changes.next_round}};
  if (!changes.evicted.empty()) json[kEvicted] = EvictedList(changes.evicted);
  if (changes.reduction != nullptr) {
    json[kReduction] = Json::array({ReductionJson(*changes.reduction)});
  }
  return JsonLine(json);
}

absl::StatusOr<JobChanges> ParseJobChanges(absl::string_view text) {
  JobChanges changes;
  if (text.empty()) return changes;
  const Json json = Json::parse(text.begin(), text.end(), nullptr,
                                /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::DataLossError("the job's facts are not a JSON object");
  }
  FieldErrors errors;
  const JsonMembers members(json, "facts.", &errors);
  members.Take("finished", &changes.finished);
  members.Take("failed", &changes.failed);
  members.Take("end_reason", &changes.end_reason);
  members.TakeList("rule", [&](const JsonMembers& rule) {
    changes.rule = ReadRuleChange(rule);
  });
  members.TakeList("next_rule", [&](const JsonMembers& rule) {
    changes.next_rule = ReadRuleChange(rule);
  });
  members.TakeInteger("next_round", &changes.next_round);
  std::vector<EvictedSession> evicted;
  if (members.Has(kEvicted)) {
    members.TakeList(kEvicted, [&](const JsonMembers& one) {
      evicted.emplace_back();
      one.TakeInteger("session", &evicted.back().session);
      one.Take("reason", &evicted.back().reason);
    });
  }
  if (members.Has(kReduction)) {
    members.TakeList(kReduction, [&](const JsonMembers& one) {
      changes.reduction =
          std::make_shared<const KeptReduction>(ReadReduction(one));
    });
  }
  if (!errors.empty()) return errors.status();
  AddEvicted(evicted, &changes.evicted);
  return changes;
}

std::string FactsText(const JobFacts& facts) {
  return JsonLine(Json{
      {"epoch", facts.epoch}, {"number", facts.number}, {"text", facts.text}});
}

absl::StatusOr<JobFacts> ParseFacts(absl::string_view text) {
  JobFacts facts;
  if (text.empty()) return facts;
  const Json json = Json::parse(text.begin(), text.end(), nullptr,
                                /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::DataLossError("the checkpoint's facts are not a JSON object");
  }
  FieldErrors errors;
  const JsonMembers members(json, "facts.", &errors);
  members.TakeInteger("epoch", &facts.epoch);
  members.TakeInteger("number", &facts.number);
  members.Take("text", &facts.text);
  if (!errors.empty()) return errors.status();
  return facts;
}

RuleChange ChangeTo(const CombineOptions& options) {
  const CombinationNames names = NamesOf(options);
  RuleChange change;
  change.rule = names.rule;
  change.scope = names.scope;
  change.step_scale = names.step_scale;
  change.force_step_scale = options.step_scale.force;
  change.learning_rate = options.schedule.learning_rate;
  if (options.rule.rule->Has(kTakesAdaconsOptions)) {
    change.adacons_beta = options.rule.adacons.beta;
    change.adacons_rescale =
        std::string(AdaconsRescaleName(options.rule.adacons.rescale));
  }
  if (options.rule.rule->Has(kTakesKrumOptions)) {
    change.krum_byzantine_workers = options.rule.krum.byzantine_workers;
  }
  if (options.rule.rule->Has(kSelectsSeveral)) {
    change.krum_selected = options.rule.krum.selected;
  }
  return change;
}

}  // namespace agg
