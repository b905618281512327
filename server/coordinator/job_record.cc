// The record as JSON: people can read it in a checkpoint's manifest, and a
// field that a later release adds disturbs nobody.
#include "server/coordinator/job_record.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/base/field_error.h"
#include "server/base/json.h"
#include "server/base/json_fields.h"
#include "server/base/status_macros.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/rule_table.h"
#include "server/coordinator/coordinator_types.h"

namespace agg {

namespace {

// A rule by its names, so that a record is read whatever rules there are.
template <typename V>
void RuleFields(V* v, RuleOptions* options) {
  v->Name("rule", options->rule->name, [&](const std::string& name) {
    const Rule* const found = FindRule(name);
    if (found == nullptr) {
      v->Check(false, "rule", Quoted(name), RuleNames(", "));
    } else {
      options->rule = found;
    }
    return absl::OkStatus();
  });
  v->Name("scope", ScopeName(options->scope), [&](const std::string& name) {
    AGG_ASSIGN_OR_RETURN(options->scope, ParseScope("scope", name));
    return absl::OkStatus();
  });
  v->Field("beta", &options->adacons.beta);
  v->Field("epsilon", &options->adacons.epsilon);
  // Enumerators of AdaCons' rescale and of outcomes are only ever added at the
  // end.
  v->Enum("rescale", AdaconsRescale::kMatchMean, &options->adacons.rescale);
  // Older records have none.
  if (v->There("unsort", options->adacons.unsort != AdaconsOptions().unsort)) {
    v->Enum("unsort", AdaconsUnsort::kGather, &options->adacons.unsort);
  }
  if (v->There("external", options->rule->Has(kIsExternal))) {
    v->Field("external", &options->external.name);
  }
}

// A rule's memory: one object for each segment.
template <typename V>
void MemoryFields(V* v, std::vector<RuleState>* segments) {
  v->List("state", segments, [](auto* v, RuleState* segment) {
    v->Field("values", &segment->values);
    if (!v->There("bytes", !segment->bytes.empty())) return;
    std::string text = absl::Base64Escape(segment->bytes);
    v->Field("bytes", &text);
    if (V::kReads) {
      v->Check(absl::Base64Unescape(text, &segment->bytes), "bytes",
               Quoted(text), "base64");
    }
  });
}

template <typename V>
void AveragesFields(V* v, GradientAverages* averages) {
  v->Field("variance", &averages->variance);
  v->Field("variance_weight", &averages->variance_weight);
  v->Field("mean_squared", &averages->mean_squared);
  v->Field("mean_squared_weight", &averages->mean_squared_weight);
  v->Field("num_samples", &averages->num_samples);
}

template <typename V>
void StepScaleFields(V* v, StepScaleState* state) {
  AveragesFields(v, state);
  v->Field("tau", &state->tau);
  if (!v->There("groups", !state->groups.empty())) return;
  v->List("groups", &state->groups, [](auto* v, GroupAverages* group) {
    v->Field("name", &group->name);
    AveragesFields(v, group);
  });
}

// The averages of the groups that this job has, found by their names.
StepScaleState CarriedScale(const StepScaleState& before,
                            const StepScaleOptions& now) {
  StepScaleState state = before;
  state.groups.clear();
  for (const std::string& name : now.groups) {
    GroupAverages& group = state.groups.emplace_back();
    const auto known =
        std::find_if(before.groups.begin(), before.groups.end(),
                     [&](const auto& other) { return other.name == name; });
    if (known != before.groups.end()) group = *known;
    group.name = name;
  }
  return state;
}

template <typename V>
void OutcomeFields(V* v, RoundResult* outcome) {
  v->Field("epoch", &outcome->epoch);
  v->Field("round", &outcome->round);
  v->Field("version", &outcome->version);
  v->Enum("kind", OutcomeKind::kSeeded, &outcome->kind);
  v->Field("ranks", &outcome->ranks);
  v->Field("excluded_ranks", &outcome->excluded_ranks);
  v->Field("learning_rate", &outcome->learning_rate);
  v->Field("gain", &outcome->gain);
  v->Field("tau", &outcome->tau);
  v->Field("orthogonality", &outcome->orthogonality);
  v->Field("finished", &outcome->finished);
  v->Field("message", &outcome->message);
  v->Field("loss", &outcome->loss);
  v->Field("combined_norm", &outcome->combined_norm);
  v->Field("rule", &outcome->combination.rule);
  v->Field("scope", &outcome->combination.scope);
  v->Field("step_scale", &outcome->combination.step_scale);
  v->Field("absent_tensors", &outcome->absent_tensors);
  v->Field("differing_ranks", &outcome->differing_ranks);
  v->List("included", &outcome->attempts,
          [](auto* v, std::pair<uint64_t, uint32_t>* row) {
            v->Field("session", &row->first);
            v->Field("attempt", &row->second);
          });
}

template <typename V>
void UsedRowFields(V* v, UsedRow* row) {
  v->Field("session", &row->session);
  v->Field("round", &row->round);
  v->Field("attempt", &row->attempt);
}

// A shadow rule and its memory, which a record has in two lists.
struct Shadow {
  RuleOptions rule;
  std::vector<RuleState> memory;
};

// A shadow that has not been evaluated yet has no memory.
std::vector<Shadow> ShadowsOf(const JobRecord& record) {
  std::vector<Shadow> shadows;
  for (size_t i = 0; i < record.shadow_rules.size(); ++i) {
    shadows.push_back({record.shadow_rules[i], {}});
    if (i < record.state.shadow_rules.size()) {
      shadows.back().memory = record.state.shadow_rules[i];
    }
  }
  return shadows;
}

template <typename V>
void RecordFields(V* v, JobRecord* record) {
  v->Field("history", &record->history);
  v->Field("line", &record->line);
  v->Field("started", &record->started);
  v->Field("num_steps", &record->num_steps);
  if (v->There("num_batches", record->num_batches != 0.0)) {
    v->Field("num_batches", &record->num_batches);
    v->Check(IsFinitePositive(record->num_batches), "num_batches",
             absl::StrCat(record->num_batches), "finite and > 0");
  }
  v->Object("rule", [&](auto* v) { RuleFields(v, &record->rule); });
  MemoryFields(v, &record->state.rule);
  std::vector<Shadow> shadows = ShadowsOf(*record);
  v->List("shadow_rules", &shadows, [](auto* v, Shadow* shadow) {
    RuleFields(v, &shadow->rule);
    MemoryFields(v, &shadow->memory);
  });
  if (V::kReads) {
    for (Shadow& shadow : shadows) {
      record->shadow_rules.push_back(shadow.rule);
      record->state.shadow_rules.push_back(std::move(shadow.memory));
    }
  }
  v->Object("step_scale",
            [&](auto* v) { StepScaleFields(v, &record->state.step_scale); });
  v->List("outcomes", &record->outcomes,
          [](auto* v, RoundResult* outcome) { OutcomeFields(v, outcome); });
  v->Map("used_rows", "rank", &record->used_rows,
         [](auto* v, UsedRow* row) { UsedRowFields(v, row); });
}

// The lists as objects that templates can call with any visitor.
constexpr auto kRecord = [](auto* v, JobRecord* r) { RecordFields(v, r); };

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
  return JsonLine(JsonOf(record, kRecord));
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
  JobRecord record;
  AGG_RETURN_IF_ERROR(ReadJson(text, "the job's record is not a JSON object",
                               "record.", kRecord, &record));
  return record;
}

CombineState StateToGoOnWith(const JobRecord& record, const CombineOptions& now,
                             size_t num_tensors) {
  CombineState state;
  state.step_scale = CarriedScale(record.state.step_scale, now.step_scale);
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

void AddRow(int32_t rank, const std::pair<uint64_t, uint32_t>& attempt,
            RoundReport* report) {
  ReportedRow row;
  row.rank = rank;
  row.session = attempt.first;
  row.attempt = attempt.second;
  report->rows.push_back(std::move(row));
}

void AddRows(const RoundResult& outcome,
             const std::map<int32_t, UsedRow>& used_rows, RoundReport* report) {
  for (const int32_t rank : outcome.ranks) {
    std::pair<uint64_t, uint32_t> known;
    const auto used = used_rows.find(rank);
    for (const auto& attempt : outcome.attempts) {
      const bool is_its =
          used != used_rows.end() && attempt.first == used->second.session;
      if (is_its) known = attempt;
    }
    AddRow(rank, known, report);
  }
  for (const int32_t rank : outcome.excluded_ranks) AddRow(rank, {}, report);
}

}  // namespace

std::vector<RoundReport> RestoredReports(const JobRecord& record,
                                         const VersionId& reported) {
  std::vector<RoundReport> reports;
  for (const RoundResult& outcome : record.outcomes) {
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
    AddRows(outcome, record.used_rows, &report);
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
         !change.adacons_unsort.has_value() &&
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

// Such an option whose value is a name.
template <typename Enum, typename Parse>
absl::Status ChangeName(RuleTrait trait, absl::string_view field,
                        const std::string& name, const Rule& rule, Parse parse,
                        Enum* value) {
  AGG_RETURN_IF_ERROR(CheckTrait(rule, trait, field, Quoted(name)));
  AGG_ASSIGN_OR_RETURN(*value, parse(field, name));
  return absl::OkStatus();
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
  if (change.adacons_rescale.has_value()) {
    const std::string& name = *change.adacons_rescale;
    status.Update(ChangeName(kTakesAdaconsOptions, "adacons_rescale", name,
                             *options->rule, ParseAdaconsRescale,
                             &options->adacons.rescale));
  }
  if (change.adacons_unsort.has_value()) {
    const std::string& name = *change.adacons_unsort;
    status.Update(ChangeName(kTakesAdaconsOptions, "adacons_unsort", name,
                             *options->rule, ParseAdaconsUnsort,
                             &options->adacons.unsort));
  }
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
    options->adacons.unsort = AdaconsOptions().unsort;
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
         a.adacons.rescale == b.adacons.rescale &&
         a.adacons.unsort == b.adacons.unsort &&
         (!a.rule->Has(kIsExternal) || a.external.name == b.external.name);
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

// Every field, and those that only some rules may have where they are set.
template <typename V>
void ChangeFields(V* v, RuleChange* change) {
  v->Field("rule", &change->rule);
  v->Field("scope", &change->scope);
  v->Field("step_scale", &change->step_scale);
  v->Field("force_step_scale", &change->force_step_scale);
  v->Field("learning_rate", &change->learning_rate);
  bool adacons = change->adacons_beta.has_value();
  v->Field("adacons", &adacons);
  if (adacons || !V::kReads) {
    v->Field("adacons_beta", &change->adacons_beta);
    v->Field("adacons_rescale", &change->adacons_rescale);
  }
  if (v->There("adacons_unsort", change->adacons_unsort.has_value())) {
    v->Field("adacons_unsort", &change->adacons_unsort);
  }
  if (v->There("krum_byzantine_workers",
               change->krum_byzantine_workers.has_value())) {
    v->Field("krum_byzantine_workers", &change->krum_byzantine_workers);
  }
  if (v->There("krum_selected", change->krum_selected.has_value())) {
    v->Field("krum_selected", &change->krum_selected);
  }
}

template <typename V>
void ReductionFields(V* v, KeptReduction* made) {
  v->Field("sums", &made->sums);
  v->Field("ranks", &made->ranks);
  v->Field("left_out", &made->left_out);
  v->Map("last", "rank", &made->last, [](auto* v, GiverCall* call) {
    v->Field("giver", &call->giver);
    v->Field("call", &call->call);
  });
  v->Check(!made->sums.empty(), "sums", "empty", "at least one");
  v->Check(!made->ranks.empty(), "ranks", "empty", "at least one");
}

template <typename V>
void ReductionField(V* v, std::shared_ptr<const KeptReduction>* reduction) {
  if (!v->There("reduction", *reduction != nullptr)) return;
  std::optional<KeptReduction> made;
  if (*reduction != nullptr) made = **reduction;
  v->AtMostOne("reduction", &made,
               [](auto* v, KeptReduction* made) { ReductionFields(v, made); });
  if (V::kReads && made.has_value()) {
    *reduction = std::make_shared<const KeptReduction>(*std::move(made));
  }
}

template <typename V>
void ChangesFields(V* v, JobChanges* changes) {
  const auto change = [](auto* v, RuleChange* change) {
    ChangeFields(v, change);
  };
  v->Field("finished", &changes->finished);
  v->Field("failed", &changes->failed);
  v->Field("end_reason", &changes->end_reason);
  v->AtMostOne("rule", &changes->rule, change);
  v->AtMostOne("next_rule", &changes->next_rule, change);
  v->Field("next_round", &changes->next_round);
  if (v->There("evicted", !changes->evicted.empty())) {
    v->List("evicted", &changes->evicted, [](auto* v, EvictedSession* one) {
      v->Field("session", &one->session);
      v->Field("reason", &one->reason);
    });
  }
  ReductionField(v, &changes->reduction);
}

template <typename V>
void FactsFields(V* v, JobFacts* facts) {
  v->Field("epoch", &facts->epoch);
  v->Field("number", &facts->number);
  v->Field("text", &facts->text);
}

constexpr auto kChanges = [](auto* v, JobChanges* c) { ChangesFields(v, c); };
constexpr auto kFacts = [](auto* v, JobFacts* facts) { FactsFields(v, facts); };

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
  return JsonLine(JsonOf(changes, kChanges));
}

absl::StatusOr<JobChanges> ParseJobChanges(absl::string_view text) {
  JobChanges changes;
  if (text.empty()) return changes;
  AGG_RETURN_IF_ERROR(ReadJson(text, "the job's facts are not a JSON object",
                               "facts.", kChanges, &changes));
  // The newest of them, and each once.
  std::vector<EvictedSession> evicted;
  evicted.swap(changes.evicted);
  AddEvicted(evicted, &changes.evicted);
  return changes;
}

std::string FactsText(const JobFacts& facts) {
  return JsonLine(JsonOf(facts, kFacts));
}

absl::StatusOr<JobFacts> ParseFacts(absl::string_view text) {
  JobFacts facts;
  if (text.empty()) return facts;
  AGG_RETURN_IF_ERROR(ReadJson(text,
                               "the checkpoint's facts are not a JSON object",
                               "facts.", kFacts, &facts));
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
    change.adacons_unsort =
        std::string(AdaconsUnsortName(options.rule.adacons.unsort));
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
