#include "worker_client/tools/aggctl_flag_table.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"

namespace agg {
namespace {

using Flag = AggctlFlagEntry;
using Value = const std::string&;
using Out = AggctlFlags*;

bool SetSeconds(Value text, double least, absl::Duration* out) {
  double seconds;
  if (!absl::SimpleAtod(text, &seconds)) return false;
  if (!(seconds >= least && seconds <= 86400.0)) return false;
  *out = absl::Seconds(seconds);
  return true;
}

bool SetCount(Value text, int* out) {
  return absl::SimpleAtoi(text, out) && *out >= 0;
}

bool SetNumber(Value text, absl::optional<double>* out) {
  double value;
  if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) return false;
  *out = value;
  return true;
}

template <typename T>
bool SetWhole(Value text, absl::optional<T>* out) {
  T value;
  if (!absl::SimpleAtoi(text, &value) || value < T{0}) return false;
  *out = value;
  return true;
}

bool SetText(Value text, absl::optional<std::string>* out) {
  *out = text;
  return !text.empty();
}

constexpr absl::string_view kText = "not empty";
constexpr absl::string_view kCounts = "0 or more";
constexpr absl::string_view kNumbers = "a finite number";
constexpr absl::string_view kOutputs = "table, json";

std::vector<Flag> EverywhereFlags() {
  return {
      {{"coordinator",
        "HOST:PORT",
        "shard 0; default: $AGG_COORDINATOR, or 127.0.0.1:50051",
        {},
        true},
       [](Value v, Out f) {
         f->coordinator = v;
         return absl::StrContains(v, ':');
       },
       "HOST:PORT"},
      {{"output", "FORMAT", "table (default) or json", {"table", "json"}, true},
       [](Value v, Out f) {
         f->json = v == "json";
         return f->json || v == "table";
       },
       kOutputs},
      {{"timeout", "SECONDS", "to wait for an answer; default 5", {}, true},
       [](Value v, Out f) { return SetSeconds(v, 0.001, &f->timeout); },
       "0.001 to 86400"},
      {{"help", "", "print this, or a command's help, and exit", {}, true},
       [](Value, Out f) { return f->help = true; },
       ""},
  };
}

std::vector<Flag> WatchFlags() {
  return {
      {{"last", "N", "rounds to show; default 10; 0: all that are kept", {}},
       [](Value v, Out f) { return SetCount(v, &f->last); },
       kCounts},
      {{"follow", "", "go on with rounds as they end", {}},
       [](Value, Out f) { return f->follow = true; },
       ""},
      {{"interval", "SECONDS", "between looks; default 1", {}},
       [](Value v, Out f) { return SetSeconds(v, 0.01, &f->interval); },
       "0.01 to 86400"},
      {{"count", "N", "looks, then end; default 0: no end", {}},
       [](Value v, Out f) { return SetCount(v, &f->count); },
       kCounts},
  };
}

std::vector<Flag> RuleFlags() {
  return {
      {{"rule", "RULE", "how gradients are combined", AggctlRules()},
       [](Value v, Out f) { return SetText(v, &f->rule); },
       kText},
      {{"scope",
        "SCOPE",
        "per_tensor or global; default beside another rule: its own",
        {"per_tensor", "global"}},
       [](Value v, Out f) { return SetText(v, &f->scope); },
       kText},
      {{"step-scale",
        "KIND",
        "none, linear, sqrt, adascale or adamscale",
        {"none", "linear", "sqrt", "adascale", "adamscale"}},
       [](Value v, Out f) { return SetText(v, &f->step_scale); },
       kText},
      {{"force-step-scale",
        "",
        "let adascale scale a rule that is no mean",
        {}},
       [](Value, Out f) { return *(f->force_step_scale = true); },
       ""},
      {{"learning-rate", "RATE", "the schedule's rate", {}},
       [](Value v, Out f) { return SetNumber(v, &f->learning_rate); },
       kNumbers},
      {{"adacons-beta", "BETA", "AdaCons' momentum, in [0, 1)", {}},
       [](Value v, Out f) { return SetNumber(v, &f->adacons_beta); },
       kNumbers},
      {{"adacons-rescale",
        "KIND",
        "none, mean_norm or match_mean",
        {"none", "mean_norm", "match_mean"}},
       [](Value v, Out f) { return SetText(v, &f->adacons_rescale); },
       kText},
  };
}

std::vector<Flag> OtherFlags() {
  return {
      {{"rank", "N", "whose session to end", {}},
       [](Value v, Out f) { return SetWhole(v, &f->rank); },
       kCounts},
      {{"reason", "TEXT", "told to the worker, and logged", {}},
       [](Value v, Out f) {
         f->reason = v;
         return !v.empty();
       },
       kText},
      {{"version", "N", "which published version; default: the newest", {}},
       [](Value v, Out f) { return SetWhole(v, &f->version); },
       kCounts},
  };
}

}  // namespace

std::vector<absl::string_view> AggctlRules() {
  return {"sum",    "mean",           "weighted_mean", "unit_mean",
          "adasum", "adasum_counted", "adacons"};
}

const std::vector<AggctlFlagEntry>& AggctlFlagTable() {
  static const auto* const flags = [] {
    auto* all = new std::vector<Flag>;
    for (const auto& part :
         {EverywhereFlags(), WatchFlags(), RuleFlags(), OtherFlags()}) {
      all->insert(all->end(), part.begin(), part.end());
    }
    return all;
  }();
  return *flags;
}

}  // namespace agg
