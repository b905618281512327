// Each call: the fork's guard, structs to values, the call of RuleServer.
#include "worker_client/c/agg_rule.h"

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "server/base/status_macros.h"
#include "worker_client/c/c_calls.h"
#include "worker_client/c/c_structs.h"
#include "worker_client/client_types.h"
#include "worker_client/rule_server.h"

struct agg_rule {
  const int64_t process = getpid();
  std::unique_ptr<agg::RuleServer> server;
  // What the last agg_rule_round points to.
  agg::RuleRound round;
  std::vector<agg_rule_segment> segments;
};

namespace {

std::string BytesOf(const void* state, size_t size) {
  return state == nullptr ? std::string()
                          : std::string(static_cast<const char*>(state), size);
}

// Keeps the round in the handle and fills in the caller's struct.
absl::Status Give(agg::RuleRound given, agg_rule* rule, agg_rule_round* out) {
  rule->round = std::move(given);
  const agg::RuleRound& round = rule->round;
  rule->segments.clear();
  for (const agg::RuleRound::Segment& segment : round.segments) {
    rule->segments.push_back({segment.tensor.c_str(), segment.gram.data(),
                              segment.state.data(), segment.state.size()});
  }
  agg_rule_round values = {};
  values.epoch = round.epoch;
  values.round = round.round;
  values.finished = round.finished ? 1 : 0;
  values.shadow = round.shadow ? 1 : 0;
  values.num_rows = round.ranks.size();
  values.ranks = round.ranks.data();
  values.examples = round.examples.data();
  values.accumulation = round.accumulation.data();
  values.losses = round.losses.data();
  values.num_segments = rule->segments.size();
  values.segments = rule->segments.data();
  return agg::Fill(values, out);
}

}  // namespace

agg_rule* agg_rule_new(const agg_options* options, const char* name) {
  std::unique_ptr<agg_rule> rule;
  const int32_t code = agg::NoThrow([&]() -> absl::Status {
    AGG_ASSIGN_OR_RETURN(agg::ClientOptions read, agg::OptionsOf(options));
    rule = std::make_unique<agg_rule>();
    AGG_ASSIGN_OR_RETURN(
        rule->server,
        agg::RuleServer::Create(std::move(read),
                                name == nullptr ? "external" : name));
    return absl::OkStatus();
  });
  return code == AGG_OK ? rule.release() : nullptr;
}

int32_t agg_rule_next(agg_rule* rule, double timeout, agg_rule_round* round) {
  return agg::OfThisProcess(rule, "rule", [&]() -> absl::Status {
    AGG_ASSIGN_OR_RETURN(
        absl::optional<agg::RuleRound> next,
        rule->server->Next(absl::Seconds(std::isnan(timeout) ? 0.0 : timeout)));
    if (!next.has_value()) return absl::NotFoundError("no round came");
    return Give(*std::move(next), rule, round);
  });
}

int32_t agg_rule_answer(agg_rule* rule, const agg_rule_weights* segments,
                        size_t count, size_t num_rows, double step_scale) {
  return agg::OfThisProcess(rule, "rule", [&]() -> absl::Status {
    if (segments == nullptr && count > 0) {
      return absl::InvalidArgumentError("segments is NULL");
    }
    agg::RuleDecision decision;
    decision.step_scale = step_scale;
    for (size_t s = 0; s < count; ++s) {
      if (segments[s].weights == nullptr) {
        return absl::InvalidArgumentError("weights is NULL");
      }
      decision.segments.push_back(
          {{segments[s].weights, segments[s].weights + num_rows},
           BytesOf(segments[s].state, segments[s].state_size)});
    }
    return rule->server->Answer(decision);
  });
}

int32_t agg_rule_fail(agg_rule* rule, const char* why) {
  return agg::OfThisProcess(rule, "rule", [&] {
    return rule->server->Fail(why == nullptr ? "" : why);
  });
}

void agg_rule_free(agg_rule* rule) {
  if (rule == nullptr || getpid() != rule->process) return;
  agg::NoThrow([&] {
    delete rule;
    return absl::OkStatus();
  });
}
