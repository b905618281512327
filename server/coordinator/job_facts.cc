// Facts as JSON, so that people can read them in a checkpoint's manifest, and a
// field that a later release adds disturbs nobody.
#include "server/coordinator/job_facts.h"

#include <algorithm>
#include <utility>

#include "nlohmann/json.hpp"
#include "server/base/field_error.h"
#include "server/base/json.h"
#include "server/base/json_members.h"
#include "server/combine/rule_table.h"

namespace agg {
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

RuleChange ReadRule(const JsonMembers& members) {
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
  return changes;
}

std::string JobChangesText(const JobChanges& changes) {
  if (!changes.finished && !changes.rule.has_value() &&
      !changes.next_rule.has_value() && changes.evicted.empty()) {
    return "";
  }
  Json json{{"finished", changes.finished},
            {"failed", changes.failed},
            {"end_reason", changes.end_reason},
            {"rule", RuleList(changes.rule)},
            {"next_rule", RuleList(changes.next_rule)},
            {"next_round", changes.next_round}};
  if (!changes.evicted.empty()) json[kEvicted] = EvictedList(changes.evicted);
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
  members.TakeList(
      "rule", [&](const JsonMembers& rule) { changes.rule = ReadRule(rule); });
  members.TakeList("next_rule", [&](const JsonMembers& rule) {
    changes.next_rule = ReadRule(rule);
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
