#include "tests/sim/sim_options.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/optimizer_step.h"
#include "server/combine/rule_table.h"

namespace agg {
namespace {

OptimizerOptions Adam() {
  OptimizerOptions adam;
  adam.kind = OptimizerKind::kAdam;
  return adam;
}

}  // namespace

Manifest MakeSimManifest(int num_shards) {
  // With three shards one has no slices.
  const std::vector<std::vector<int64_t>> shapes =
      num_shards == 3 ? std::vector<std::vector<int64_t>>{{7}, {30}}
                      : std::vector<std::vector<int64_t>>{{7}, {}, {30}, {12}};
  Manifest manifest;
  for (const std::vector<int64_t>& shape : shapes) {
    TensorSpec tensor;
    tensor.name = absl::StrCat("t", manifest.tensors.size());
    tensor.shape = shape;
    manifest.tensors.push_back(tensor);
  }
  return manifest;
}

CoordinatorOptions MakeSimOptions(const SimPlan& plan) {
  CoordinatorOptions options;
  options.workers = 2;
  options.max_workers = 3;
  options.max_rounds = kSimRounds;
  options.replicated = plan.replicated;
  options.optimizer = Adam();
  options.combine.rule.rule = FindRule("adacons");
  options.combine.rule.scope = options.combine.rule.rule->default_scope;
  options.combine.schedule.learning_rate = 0.5;
  options.combine.shadow_rules.emplace_back();
  options.combine.shadow_rules[0].rule = FindRule("adasum");
  options.checkpoint.enabled = plan.checkpoints;
  options.checkpoint.every_rounds = 2;
  return options;
}

ShardOptions MakeSimShardOptions(const SimPlan& plan, int ordinal,
                                 uint64_t life) {
  ShardOptions options;
  options.ordinal = ordinal;
  options.num_shards = plan.num_shards;
  options.life = life;
  options.workers = 2;
  options.max_workers = 3;
  options.optimizer = Adam();
  options.replicated = plan.replicated;
  options.background = false;  // no thread computes in the background
  options.early_gram = false;
  return options;
}

PeerGroup::Order MakeSimOrder(uint64_t seed) {
  return [random = std::make_shared<std::mt19937_64>(seed), seed](int size) {
    std::vector<int> order(size);
    std::iota(order.begin(), order.end(), 0);
    if (seed != 0) std::shuffle(order.begin(), order.end(), *random);
    return order;
  };
}

}  // namespace agg
