// The record as JSON: people can read it in a checkpoint's manifest, and a
// field that a later release adds disturbs nobody.
#include "server/coordinator/job_record.h"

#include <utility>

#include "nlohmann/json.hpp"
#include "server/base/field_error.h"
#include "server/base/json.h"
#include "server/base/json_members.h"
#include "server/combine/rule_table.h"
#include "server/coordinator/rule_change.h"

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

}  // namespace agg
