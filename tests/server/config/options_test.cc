#include "server/config/options.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/config/config_text.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kSmallest[] = "workers: 4 learning_rate { rate: 0.1 } ";

absl::StatusOr<ServerOptions> Make(const std::string& text) {
  const absl::StatusOr<v1::JobConfig> config = ParseJobConfig(text, "test");
  if (!config.ok()) return config.status();
  return MakeServerOptions(WithDefaults(*config));
}

// kSmallest with the fields of `text` in place of its own.
absl::StatusOr<ServerOptions> MakeWith(const std::string& text) {
  v1::JobConfig config = *ParseJobConfig(kSmallest, "test");
  const absl::StatusOr<v1::JobConfig> change = ParseJobConfig(text, "test");
  if (!change.ok()) return change.status();
  config.MergeFrom(*change);
  // A zero does not merge.
  if (text == "workers: 0") config.set_workers(0);
  return MakeServerOptions(WithDefaults(config));
}

TEST(OptionsTest, AFloorThatIsAskedForIsKept) {
  const absl::StatusOr<ServerOptions> wait = MakeWith("min_workers: 2");
  ASSERT_TRUE(wait.ok()) << wait.status();
  EXPECT_EQ(wait->coordinator.floor_policy, FloorPolicy::kWait);
  const absl::StatusOr<ServerOptions> fail = MakeWith("floor_policy: \"fail\"");
  ASSERT_TRUE(fail.ok()) << fail.status();
  EXPECT_EQ(fail->coordinator.floor_policy, FloorPolicy::kFail);
  const auto diverged = MakeWith("on_divergence: \"fail\"");
  ASSERT_TRUE(diverged.ok()) << diverged.status();
  EXPECT_TRUE(diverged->coordinator.fail_on_divergence);
  EXPECT_EQ(fail->coordinator.floor_timeout, absl::Seconds(300));
}

TEST(OptionsTest, DefaultsAreAsConfigProtoSays) {
  const absl::StatusOr<ServerOptions> options = Make(kSmallest);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_THAT(options->shards, ElementsAre("127.0.0.1:50051"));
  EXPECT_EQ(options->backend, "cpu");
  EXPECT_EQ(options->backend_options.num_threads, 0);
  EXPECT_EQ(options->backend_options.cuda_device, 0);
  EXPECT_TRUE(options->unix_socket);
  EXPECT_TRUE(options->shard.shared_memory);
  EXPECT_EQ(options->metrics.port, 0);
  EXPECT_EQ(options->metrics.max_tensors, 32);
  EXPECT_EQ(options->metrics.max_workers, 64);
  EXPECT_EQ(options->round_log.path, "");
  EXPECT_EQ(options->round_log.max_bytes, int64_t{1} << 30);
  EXPECT_EQ(options->coordinator.tensor_grams_every, 0u);
  EXPECT_EQ(options->checkpoint_path, "");
  EXPECT_FALSE(options->coordinator.checkpoint.enabled);
  EXPECT_FALSE(options->coordinator.replicated || options->shard.replicated);
  const CoordinatorOptions& job = options->coordinator;
  EXPECT_EQ(job.job, "default");
  EXPECT_EQ(job.workers, 4);
  EXPECT_EQ(job.min_workers, 4);
  EXPECT_EQ(job.max_workers, 4);
  EXPECT_EQ(job.floor_policy, FloorPolicy::kWarn);
  EXPECT_EQ(job.start_timeout, absl::ZeroDuration());
  EXPECT_EQ(job.lease, absl::Seconds(30));
  EXPECT_EQ(job.reconnect_grace, absl::Seconds(5));
  EXPECT_EQ(job.round_timeout, absl::ZeroDuration());
  EXPECT_EQ(job.round_timeout_mad, 0.0);
  EXPECT_EQ(job.quorum, 0);
  EXPECT_EQ(job.straggler_warning, absl::Seconds(60));
  EXPECT_EQ(job.start_warning, absl::Seconds(5));
  EXPECT_EQ(job.phase_timeout, absl::Minutes(10));
  EXPECT_EQ(job.max_rounds, 0u);
  EXPECT_EQ(job.max_skipped_rounds, 100u);
  EXPECT_FALSE(job.fail_on_divergence);
  EXPECT_EQ(job.optimizer.kind, OptimizerKind::kSgd);
  EXPECT_EQ(job.combine.rule.rule, FindRule("mean"));
  EXPECT_EQ(job.combine.rule.scope, Scope::kPerTensor);
  EXPECT_EQ(job.combine.rule.kappa_limit, 1e10);
  EXPECT_EQ(job.combine.step_scale.kind, StepScale::kNone);
  EXPECT_LT(job.combine.step_scale.smoothing, 0.0);
  EXPECT_TRUE(job.combine.step_scale.clip_before_average);
  EXPECT_EQ(job.combine.step_scale.variance_floor, 1e-6);
  EXPECT_EQ(job.combine.schedule.learning_rate, 0.1);
  EXPECT_EQ(job.combine.clip_norm, 0.0);
  EXPECT_EQ(options->shard.push_dtype, DType::kF32);
  EXPECT_EQ(options->shard.pull_dtype, DType::kF32);
  EXPECT_EQ(options->shard.num_shards, 1);
}

TEST(OptionsTest, DefaultsThatDependOnTheKind) {
  auto options =
      Make(std::string(kSmallest) + "combination { rule: 'adacons' }");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->coordinator.combine.rule.scope, Scope::kGlobal);
  EXPECT_EQ(options->coordinator.combine.rule.adacons.beta, 0.99);
  options = Make(std::string(kSmallest) + "optimizer { kind: 'adagrad' }");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->shard.optimizer.epsilon, 1e-10f);
  options = Make("workers: 1 optimizer { kind: 'none' }");  // without a rate
  ASSERT_TRUE(options.ok()) << options.status();
}

TEST(OptionsTest, RobustRulesAndOutliers) {
  auto options = Make(
      "workers: 9 learning_rate { rate: 1 } outliers {} "
      "combination { rule: 'multi_krum' krum { selected: 3 } } "
      "shadow_rules { rule: 'geometric_median' }");
  ASSERT_TRUE(options.ok()) << options.status();
  const CombineOptions& combine = options->coordinator.combine;
  EXPECT_EQ(combine.rule.scope, Scope::kGlobal);
  EXPECT_EQ(combine.rule.krum.byzantine_workers, 1);
  EXPECT_EQ(combine.rule.krum.selected, 3);
  EXPECT_EQ(combine.shadow_rules[0].geometric_median.iterations, 64);
  EXPECT_EQ(combine.shadow_rules[0].geometric_median.epsilon, 1e-6);
  EXPECT_EQ(combine.outliers.max_deviations, 6.0);
  EXPECT_EQ(combine.outliers.action, OutlierAction::kExclude);
  // Nobody can be byzantine among so few.
  options =
      Make("workers: 4 learning_rate { rate: 1 } combination { rule: 'krum' }");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->coordinator.combine.rule.krum.byzantine_workers, 0);
  EXPECT_EQ(options->coordinator.combine.outliers.max_deviations, 0.0);
}

TEST(OptionsTest, ExternalRules) {
  auto options = Make(
      "workers: 3 learning_rate { rate: 1 } combination { rule: 'external' } "
      "shadow_rules { rule: 'external' scope: 'per_tensor' "
      "external { name: 'x-2' fallback: 'krum' timeout_seconds: 0.5 } }");
  ASSERT_TRUE(options.ok()) << options.status();
  const CombineOptions& combine = options->coordinator.combine;
  EXPECT_EQ(combine.rule.scope, Scope::kGlobal);
  EXPECT_EQ(combine.rule.external.name, "external");
  EXPECT_EQ(combine.rule.external.fallback, FindRule("mean"));
  EXPECT_EQ(combine.rule.external.timeout_seconds, 5.0);
  const RuleOptions& shadow = combine.shadow_rules[0];
  EXPECT_EQ(shadow.scope, Scope::kPerTensor);
  EXPECT_EQ(shadow.external.name, "x-2");
  EXPECT_EQ(shadow.external.fallback, FindRule("krum"));
  EXPECT_EQ(shadow.krum.byzantine_workers, 0);  // three rows allow none
  EXPECT_EQ(shadow.external.timeout_seconds, 0.5);
}

TEST(OptionsTest, GroupsReachBothHalves) {
  const auto options = Make(std::string(kSmallest) + R"(
      optimizer { weight_decay: 0.5 momentum: 0.9 nesterov: true }
      groups { name: "a" learning_rate_factor: 2 }
      groups { name: "b" weight_decay: 0.25 }
      groups { name: "c" no_decay: true })");
  ASSERT_TRUE(options.ok()) << options.status();
  const std::vector<GroupOptions>& groups = options->shard.groups;
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].learning_rate_factor, 2.0f);
  EXPECT_EQ(groups[0].weight_decay, 0.5f);
  EXPECT_EQ(groups[1].learning_rate_factor, 1.0f);
  EXPECT_EQ(groups[1].weight_decay, 0.25f);
  EXPECT_EQ(groups[2].weight_decay, 0.0f);
  EXPECT_EQ(options->shard.weight_decay, 0.5f);
  EXPECT_EQ(options->coordinator.weight_decay, 0.5f);
  ASSERT_EQ(options->coordinator.group_weight_decay.size(), 3u);
  EXPECT_EQ(options->coordinator.group_weight_decay[1].second, 0.25f);
  EXPECT_TRUE(options->coordinator.optimizer.nesterov);
  EXPECT_TRUE(options->coordinator.combine.step_scale.groups.empty());
}

TEST(OptionsTest, GainsPerGroupKnowTheGroups) {
  const auto options = Make(std::string(kSmallest) + R"(
      step_scale { kind: "adascale" gain_scope: "per_group" }
      groups { name: "a" } groups { name: "b" })");
  ASSERT_TRUE(options.ok()) << options.status();
  const StepScaleOptions& scale = options->coordinator.combine.step_scale;
  EXPECT_EQ(scale.gain_scope, GainScope::kPerGroup);
  EXPECT_EQ(scale.groups, (std::vector<std::string>{"", "a", "b"}));
  EXPECT_FALSE(options->coordinator.reset_moments);
}

TEST(OptionsTest, MomentsAreResetByName) {
  const auto options = MakeWith(
      "optimizer { kind: 'adam' } "
      "step_scale { reset_moments: 'on_scale_change' }");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(options->coordinator.reset_moments);
  EXPECT_THAT(options->config_text,
              HasSubstr("reset_moments: \"on_scale_change\""));
}

TEST(OptionsTest, EveryKindOfEverything) {
  for (const char* text :
       {"combination { rule: 'sum' }",
        "combination { rule: 'weighted_mean' }",
        "combination { rule: 'unit_mean' scope: 'global' }",
        "combination { rule: 'adasum' }",
        "combination { rule: 'adasum_counted' }",
        "combination { rule: 'adacons' adacons { rescale: 'mean_norm' } }",
        "shadow_rules { rule: 'adacons' adacons { unsort: 'gather' } }",
        "combination { rule: 'krum' }",
        "workers: 7 combination { rule: 'krum' krum { byzantine_workers: 2 } }",
        "workers: 7 shadow_rules { rule: 'multi_krum' krum { selected: 6 } }",
        "combination { rule: 'geometric_median' "
        "geometric_median { iterations: 3 epsilon: 0.1 } }",
        "workers: 4 outliers {}",
        "workers: 4 outliers { max_deviations: 3.5 action: 'warn' }",
        "step_scale { kind: 'linear' }",
        "step_scale { kind: 'sqrt' }",
        "step_scale { kind: 'adascale' averaging: 'paper' smoothing: 0 }",
        "step_scale { kind: 'adamscale' }",
        "step_scale { kind: 'adascale' averaging: 'lagged' }",
        "step_scale { smoothing: 0.999 smoothing_per: 'baseline_batch' }",
        "step_scale { kind: 'adascale' gain_scope: 'per_group' } "
        "groups { name: 'bias' }",
        "step_scale { reset_moments: 'on_scale_change' } "
        "optimizer { kind: 'adamw' }",
        "optimizer { kind: 'add' }",
        "optimizer { kind: 'adam' }",
        "optimizer { kind: 'adamw' }",
        "optimizer { kind: 'lars' momentum: 0.9 }",
        "optimizer { kind: 'lamb' weight_decay: 0.1 }",
        "learning_rate { schedule: 'multistep' boundaries: [2, 3] }",
        "learning_rate { schedule: 'exponential' decay_steps: 9 }",
        "learning_rate { schedule: 'polynomial' decay_steps: 9 power: 2 }",
        "learning_rate { schedule: 'cosine' decay_steps: 9 }",
        "learning_rate { schedule: 'inverse_sqrt' warmup_steps: 4 }",
        "push_dtype: 'bf16' pull_dtype: 'f16'",
        "push_dtype: 'int8' pull_dtype: 'bf16'",
        "shards: '[::1]:1' shards: 'agg-1.agg.default.svc:65535'",
        "shadow_rules { rule: 'adasum' } shadow_rules { rule: 'adacons' }",
        "start_timeout_seconds: 5 min_workers: 2 max_workers: 8",
        "backend: 'cuda' compute_threads: 3 memory_budget_bytes: 1",
        "backend: 'cuda' device_memory_budget_bytes: 1",
        "backend: 'cuda' device: 7",
        "backend: 'cuda' cuda_gram: 'double_float'"}) {
    const auto options = MakeWith(text);
    EXPECT_TRUE(options.ok()) << text << ": " << options.status();
  }
}

struct BadConfig {
  const char* text;
  std::vector<std::string> message;  // field, value
};

TEST(OptionsTest, ErrorsNameFieldValueAndWhatIsAllowed) {
  const std::vector<BadConfig> cases = {
      {"job: 'a b'", {"job is \"a b\"", "A-Z"}},
      {"shards: 'nohost'", {"shards[0] is \"nohost\"", "host:port"}},
      {"shards: 'h:0'", {"shards[0]", "65535"}},
      {"shards: 'h:65536'", {"shards[0]"}},
      {"shards: '::1:50051'", {"shards[0]", "brackets"}},
      {"shards: 'h:1' shards: 'h:1'", {"shards[1] is \"h:1\""}},
      {"workers: 0", {"workers is 0", "1 to 512"}},
      {"workers: 513", {"workers is 513"}},
      {"min_workers: 5", {"min_workers is 5", "workers (4)"}},
      {"min_workers: -1", {"min_workers is -1"}},
      {"on_divergence: \"stop\"",
       {"on_divergence is \"stop\"", "\"warn\", \"fail\""}},
      {"floor_policy: \"stop\"",
       {"floor_policy is \"stop\"", "\"wait\", \"warn\", \"fail\""}},
      {"floor_timeout_seconds: 5", {"floor_timeout_seconds is 5"}},
      {"max_workers: 3", {"max_workers is 3", "workers (4)"}},
      {"start_timeout_seconds: -1", {"start_timeout_seconds is -1"}},
      {"lease_seconds: -3", {"lease_seconds is -3"}},
      {"lease_seconds: inf", {"lease_seconds is inf"}},
      {"reconnect_grace_seconds: nan", {"reconnect_grace_seconds is nan"}},
      {"round_timeout_seconds: -1", {"round_timeout_seconds is -1"}},
      {"round_timeout_mad: -1", {"round_timeout_mad is -1", ">= 0 (0: off)"}},
      {"round_timeout_mad: inf", {"round_timeout_mad is inf"}},
      {"straggler_warning_seconds: -1", {"straggler_warning_seconds is -1"}},
      {"start_warning_seconds: -1", {"start_warning_seconds is -1"}},
      {"phase_timeout_seconds: -1", {"phase_timeout_seconds is -1"}},
      {"phase_timeout_seconds: inf", {"phase_timeout_seconds is inf"}},
      {"combination { rule: 'max' }",
       {"combination.rule", "\"max\"", "adasum"}},
      {"combination { scope: 'all' }",
       {"combination.scope", "\"all\"", "per_tensor"}},
      {"combination { kappa_limit: 0.5 }", {"combination.kappa_limit is 0.5"}},
      {"combination { rule: 'mean' adacons { beta: 0.5 } }",
       {"combination.adacons is set", "rule \"mean\""}},
      {"combination { rule: 'adacons' adacons { beta: 1 } }",
       {"combination.adacons.beta is 1"}},
      {"combination { rule: 'adacons' adacons { rescale: 'x' } }",
       {"combination.adacons.rescale", "\"x\"", "match_mean"}},
      {"combination { rule: 'adacons' adacons { unsort: 'x' } }",
       {"combination.adacons.unsort", "\"x\"", "gather"}},
      {"shadow_rules { rule: 'adacons' adacons { unsort: '' beta: 2 } }",
       {"shadow_rules[0].adacons.beta is 2"}},
      {"combination { rule: 'mean' krum {} }",
       {"combination.krum is set", "rule \"mean\""}},
      {"workers: 6 combination { rule: 'krum' krum { byzantine_workers: 2 } }",
       {"combination.krum.byzantine_workers is 2", "(1)"}},
      {"combination { rule: 'krum' krum { byzantine_workers: -1 } }",
       {"combination.krum.byzantine_workers is -1"}},
      {"workers: 7 combination { rule: 'krum' krum { selected: 2 } }",
       {"combination.krum.selected is set", "rule \"krum\""}},
      {"workers: 7 shadow_rules { rule: 'multi_krum' krum { selected: 7 } }",
       {"shadow_rules[0].krum.selected is 7", "(6)"}},
      {"combination { rule: 'mean' external { name: 'x' } }",
       {"combination.external is set", "rule \"mean\""}},
      {"combination { rule: 'external' external { fallback: 'median' } }",
       {"combination.external.fallback is \"median\"", "\"sum\""}},
      {"combination { rule: 'external' external { timeout_seconds: -1 } }",
       {"combination.external.timeout_seconds is -1", "at most 3600"}},
      {"combination { rule: 'external' } shadow_rules { rule: 'external' }",
       {"shadow_rules[0].external.name is \"external\""}},
      {"combination { rule: 'krum' geometric_median {} }",
       {"combination.geometric_median is set", "rule \"krum\""}},
      {"combination { rule: 'geometric_median' "
       "geometric_median { iterations: 1001 } }",
       {"combination.geometric_median.iterations is 1001", "1 to 1000"}},
      {"combination { rule: 'geometric_median' "
       "geometric_median { epsilon: 1e-9 } }",
       {"combination.geometric_median.epsilon is 1e-09", "[1e-8, 1]"}},
      {"workers: 3 outliers {}", {"workers is 3", "at least 4"}},
      {"workers: 4 outliers { max_deviations: 0.5 }",
       {"outliers.max_deviations is 0.5", ">= 1"}},
      {"workers: 4 outliers { action: 'x' }",
       {"outliers.action is \"x\"", "\"exclude\", \"warn\""}},
      {"shadow_rules {} shadow_rules { rule: 'x' }",
       {"shadow_rules[1].rule", "\"x\""}},
      {"step_scale { kind: 'x' }", {"step_scale.kind", "\"x\"", "adascale"}},
      {"step_scale { averaging: 'x' }",
       {"step_scale.averaging is \"x\"", "\"lagged\""}},
      {"step_scale { smoothing_per: 'x' }",
       {"step_scale.smoothing_per is \"x\"", "\"round\", \"baseline_batch\""}},
      {"step_scale { smoothing_per: 'baseline_batch' }",
       {"step_scale.smoothing_per is \"baseline_batch\"",
        "with step_scale.smoothing set"}},
      {"step_scale { gain_scope: 'x' }",
       {"step_scale.gain_scope is \"x\"", "\"global\", \"per_group\""}},
      {"step_scale { kind: 'adascale' gain_scope: 'per_group' } "
       "optimizer { kind: 'none' }",
       {"step_scale.gain_scope is \"per_group\"",
        "with optimizer.kind \"none\": \"global\" (workers get one gain)"}},
      {"step_scale { averaging: 'lagged' clip_before_average: false "
       "relative_floor: 1 }",
       {"step_scale.relative_floor is 1", "\"lagged\""}},
      {"step_scale { reset_moments: 'x' }",
       {"step_scale.reset_moments is \"x\"", "\"never\", \"on_scale_change\""}},
      {"step_scale { reset_moments: 'on_scale_change' }",
       {"optimizer.kind is \"sgd\"", "\"adam\", \"adamw\""}},
      {"step_scale { reset_moments: 'on_scale_change' } "
       "optimizer { kind: 'lamb' }",
       {"optimizer.kind is \"lamb\"", "\"adam\", \"adamw\""}},
      {"step_scale { reset_moments: 'on_scale_change' } quorum: 1 "
       "optimizer { kind: 'adam' }",
       {"quorum is 1", "reset_moments"}},
      {"step_scale { reset_moments: 'on_scale_change' } "
       "round_timeout_seconds: 3 optimizer { kind: 'adam' }",
       {"round_timeout_seconds is 3", "reset_moments"}},
      {"step_scale { reset_moments: 'on_scale_change' } "
       "round_timeout_mad: 5 optimizer { kind: 'adam' }",
       {"round_timeout_mad is 5", "reset_moments"}},
      {"step_scale { smoothing: 1 }", {"step_scale.smoothing is 1"}},
      {"step_scale { smoothing: -1 }", {"step_scale.smoothing is -1"}},
      {"combination { rule: 'adasum' } step_scale { kind: 'adascale' }",
       {"step_scale.kind", "adasum", "force"}},
      {"learning_rate { rate: -1 }", {"learning_rate.rate is -1"}},
      {"learning_rate { schedule: 'x' }", {"learning_rate.schedule", "\"x\""}},
      {"learning_rate { schedule: 'cosine' }", {"learning_rate.decay_steps"}},
      {"learning_rate { schedule: 'multistep' }", {"learning_rate.boundaries"}},
      {"learning_rate { gamma: 0.5 }",
       {"learning_rate.gamma is set", "\"constant\""}},
      {"learning_rate { decay_steps: 5 }",
       {"learning_rate.decay_steps is set"}},
      {"learning_rate { boundaries: 5 }", {"learning_rate.boundaries is set"}},
      {"learning_rate { final_factor: 1 }",
       {"learning_rate.final_factor is set"}},
      {"learning_rate { power: 2 }", {"learning_rate.power is set"}},
      {"optimizer { kind: 'x' }", {"optimizer.kind is \"x\"", "\"lamb\""}},
      {"optimizer { momentum: 1 }", {"optimizer.momentum is 1"}},
      {"optimizer { nesterov: true }",
       {"optimizer.nesterov is true", "momentum > 0"}},
      {"optimizer { beta1: 0.9 }",
       {"optimizer.beta1 is set", "\"sgd\" does not use it"}},
      {"optimizer { kind: 'adam' beta2: 1 }", {"optimizer.beta2 is 1"}},
      {"optimizer { kind: 'adam' epsilon: 0 }", {"optimizer.epsilon is 0"}},
      {"optimizer { kind: 'add' weight_decay: 0.1 }",
       {"optimizer.weight_decay is set", "\"add\""}},
      {"optimizer { weight_decay: -1 }", {"optimizer.weight_decay is -1"}},
      {"optimizer { kind: 'adagrad' initial_accumulator: -1 }",
       {"optimizer.initial_accumulator is -1"}},
      {"optimizer { kind: 'lars' trust_coefficient: 0 }",
       {"optimizer.trust_coefficient is 0"}},
      {"groups {}", {"groups[0].name is \"\""}},
      {"groups { name: 'a' } groups { name: 'a' }", {"groups[1].name"}},
      {"groups { name: 'a' learning_rate_factor: -1 }",
       {"groups[0].learning_rate_factor is -1"}},
      {"groups { name: 'a' weight_decay: -1 }",
       {"groups[0].weight_decay is -1"}},
      {"groups { name: 'a' weight_decay: 1 no_decay: true }",
       {"groups[0].weight_decay is set", "no_decay"}},
      {"optimizer { kind: 'add' } groups { name: 'a' weight_decay: 1 }",
       {"groups[0].weight_decay is set", "\"add\""}},
      {"clip_norm: -1", {"clip_norm is -1"}},
      {"scale_invariant_iterations: -1", {"scale_invariant_iterations is -1"}},
      {"push_dtype: 'f64'", {"push_dtype is \"f64\"", "\"bf16\""}},
      {"push_dtype: 'i8'", {"push_dtype is \"i8\"", "\"int8\""}},
      {"pull_dtype: 'int8'", {"pull_dtype is \"int8\"", "\"f16\""}},
      {"backend: 'tpu'", {"backend is \"tpu\"", "\"cuda\""}},
      {"compute_threads: -1", {"compute_threads is -1"}},
      {"memory_budget_bytes: -1", {"memory_budget_bytes is -1"}},
      {"backend: 'cuda' device_memory_budget_bytes: -1",
       {"device_memory_budget_bytes is -1"}},
      {"device_memory_budget_bytes: 7",
       {"device_memory_budget_bytes is 7", "cuda"}},
      {"backend: 'cuda' device: -1", {"device is -1"}},
      {"device: 1", {"device is 1", "allowed: 0, or", "\"cuda\""}},
      {"unix_socket: 'on'", {"unix_socket is \"on\"", "\"auto\", \"off\""}},
      {"shared_memory: 'yes'",
       {"shared_memory is \"yes\"", "\"auto\", \"on\", \"off\""}},
      {"cuda_gram: 'float'",
       {"cuda_gram is \"float\"", "by_device", "double_float"}},
      {"quorum: -1", {"quorum is -1", "0 (all members) to max_workers ("}},
      {"workers: 3 max_workers: 4 quorum: 5",
       {"quorum is 5", "0 (all members) to max_workers (4)"}},
      {"max_staleness: 1", {"max_staleness is 1", "0"}},
      {"metrics { port: 65536 }", {"metrics.port is 65536"}},
      {"metrics { max_tensors: -1 }", {"metrics.max_tensors is -1"}},
      {"metrics { max_workers: -1 }", {"metrics.max_workers is -1"}},
      {"round_log { path: 'logs/' }", {"round_log.path is \"logs/\""}},
      {"round_log { max_bytes: 65535 }",
       {"round_log.max_bytes is 65535", ">= 65536"}},
      {"round_log { path: 'l' grams: 'global' }",
       {"round_log.grams is \"global\"", "\"none\", \"per_tensor\""}},
      {"round_log { grams: 'per_tensor' }",
       {"round_log.grams is \"per_tensor\"", "only with round_log.path"}},
      {"round_log { path: 'l' every: 5 }",
       {"round_log.every is 5", "only with round_log.grams"}},
  };
  for (const BadConfig& c : cases) {
    const absl::Status status = MakeWith(c.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.text;
    for (const std::string& part : c.message) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part)) << c.text;
    }
  }
}

TEST(OptionsTest, GramsOfTensorsAreLoggedInTheRoundsThatAreAskedFor) {
  for (const auto& [text, every] :
       std::vector<std::pair<std::string, uint64_t>>{
           {"round_log { path: 'l' }", 0},
           {"round_log { path: 'l' grams: 'none' }", 0},
           {"round_log { path: 'l' grams: 'per_tensor' }", 1},
           {"round_log { path: 'l' grams: 'per_tensor' every: 20 }", 20}}) {
    const absl::StatusOr<ServerOptions> options = MakeWith(text);
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_EQ(options->coordinator.tensor_grams_every, every) << text;
  }
}

TEST(OptionsTest, AllMistakesAreNamedAtOnce) {
  const absl::Status all = Make(R"(
      job: "a b" shards: "h" shards: "http://h:1" min_workers: 2
      lease_seconds: -1 push_dtype: "f64" backend: "tpu" quorum: 1
      metrics { port: -1 bind: "a b" }
      combination { rule: "max" } shadow_rules { rule: "adacons" scope: "x" }
      step_scale { kind: "k" smoothing: 2 }
      learning_rate { rate: -1 schedule: "s" gamma: 2 }
      optimizer { kind: "o" momentum: 2 beta1: 0.5 }
      groups {} groups { name: "g" weight_decay: -1 })")
                               .status();
  EXPECT_EQ(all.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::vector<std::string>(absl::StrSplit(all.message(), '\n')),
      ElementsAre(StartsWith("job is \"a b\"; allowed: "),
                  StartsWith("shards[0] is \"h\"; allowed: host:port"),
                  StartsWith("shards[1] is \"http://h:1\"; allowed: host:port"),
                  StartsWith("workers is 0; allowed: "),
                  StartsWith("lease_seconds is -1; allowed: "),
                  StartsWith("backend is \"tpu\"; allowed: "),
                  StartsWith("quorum is 1; allowed: "),
                  StartsWith("metrics.port is -1; allowed: "),
                  StartsWith("metrics.bind is \"a b\"; allowed: "),
                  StartsWith("push_dtype is \"f64\"; allowed: "),
                  StartsWith("combination.rule is \"max\"; allowed: "),
                  StartsWith("shadow_rules[0].scope is \"x\"; allowed: "),
                  StartsWith("step_scale.kind is \"k\"; allowed: "),
                  StartsWith("step_scale.smoothing is 2; allowed: "),
                  StartsWith("learning_rate.schedule is \"s\"; allowed: "),
                  StartsWith("learning_rate.rate is -1; allowed: "),
                  StartsWith("optimizer.kind is \"o\"; allowed: "),
                  StartsWith("optimizer.momentum is 2; allowed: "),
                  StartsWith("groups[0].name is \"\"; allowed: "),
                  StartsWith("groups[1].weight_decay is -1; allowed: ")));
}

TEST(OptionsTest, TheRateIsRequired) {
  const absl::Status status = Make("workers: 1").status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("learning_rate.rate is 0"));
}

// Which jobs may be pipelined: each reason why not, by its field.

absl::StatusOr<ServerOptions> Options(const std::string& text) {
  absl::StatusOr<v1::JobConfig> config = ParseJobConfig(
      absl::StrCat("workers: 2 shards: \"h:1\" shards: \"h:2\" ", text),
      "test");
  if (!config.ok()) return config.status();
  return MakeServerOptions(WithDefaults(*config));
}

constexpr char kPipelined[] = "publish: \"pipelined\" ";
constexpr char kCommon[] = "replication: \"none\" learning_rate { rate: 0.1 } ";

TEST(PublishConfigTest, TheDefaultIsAtomic) {
  const auto options = Options("learning_rate { rate: 0.1 }");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_FALSE(options->shard.pipelined);
  EXPECT_FALSE(options->coordinator.pipelined);
  EXPECT_TRUE(options->shard.early_gram);
}

TEST(PublishConfigTest, RulesPerTensorMayBePipelined) {
  for (const char* rule : {"sum", "mean", "weighted_mean", "unit_mean",
                           "adasum", "adasum_counted"}) {
    const auto options = Options(absl::StrCat(
        kPipelined, kCommon, "combination { rule: \"", rule, "\" }"));
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_TRUE(options->shard.pipelined);
    EXPECT_TRUE(options->coordinator.pipelined);
    EXPECT_FALSE(options->shard.early_gram);
  }
}

TEST(PublishConfigTest, NamesWhatIsInTheWay) {
  const struct {
    const char* config;
    const char* error;
  } cases[] = {
      {"combination { rule: \"adacons\" scope: \"per_tensor\" }",
       "combination.rule is \"adacons\"; allowed: with publish \"pipelined\": "
       "\"sum\", "},
      {"combination { rule: \"mean\" scope: \"global\" }",
       "combination.scope is \"global\"; allowed: with publish \"pipelined\": "
       "\"per_tensor\""},
      {"combination { rule: \"krum\" }",
       "combination.scope is \"global\"; allowed: with publish \"pipelined\": "
       "\"per_tensor\""},
      {"clip_norm: 2",
       "clip_norm is 2; allowed: with publish \"pipelined\": 0"},
      {"step_scale { kind: \"adascale\" }", "step_scale.kind is \"adascale\""},
      {"step_scale { gain_scope: \"per_group\" }",
       "step_scale.gain_scope is \"per_group\"; allowed: with publish "
       "\"pipelined\": \"global\""},
      {"optimizer { kind: \"adam\" } "
       "step_scale { reset_moments: \"on_scale_change\" }",
       "publish is \"pipelined\"; allowed: with step_scale.reset_moments "
       "\"on_scale_change\": \"atomic\""},
      {"optimizer { kind: \"lamb\" }", "optimizer.kind is \"lamb\""},
      {"backend: \"cuda\"", "backend is \"cuda\""},
      {"quorum: 1", "quorum is 1"},
      {"round_timeout_seconds: 3", "round_timeout_seconds is 3"},
      {"round_timeout_mad: 5", "round_timeout_mad is 5"},
  };
  for (const auto& test : cases) {
    const auto options =
        Options(absl::StrCat(kPipelined, kCommon, test.config));
    ASSERT_FALSE(options.ok()) << test.config;
    EXPECT_THAT(options.status().message(), HasSubstr(test.error));
  }
}

TEST(PublishConfigTest, OutliersAreInTheWay) {
  v1::JobConfig config =
      *ParseJobConfig(absl::StrCat("workers: 4 ", kPipelined, kCommon), "test");
  EXPECT_TRUE(MakeServerOptions(WithDefaults(config)).ok());
  config.mutable_outliers();
  EXPECT_THAT(MakeServerOptions(WithDefaults(config)).status().message(),
              HasSubstr("outliers is set; allowed: to be left out with publish "
                        "\"pipelined\""));
}

TEST(PublishConfigTest, SecondCopiesAreInTheWay) {
  EXPECT_THAT(Options(absl::StrCat(kPipelined, "learning_rate { rate: 0.1 }"))
                  .status()
                  .message(),
              HasSubstr("replication is \"buddy\"; allowed: with publish "
                        "\"pipelined\": \"none\""));
}

TEST(PublishConfigTest, NamesAreKnown) {
  EXPECT_THAT(
      Options(absl::StrCat("publish: \"eager\" ", kCommon)).status().message(),
      HasSubstr("publish is \"eager\"; allowed: \"atomic\", \"pipelined\""));
}

constexpr char kTwoShards[] = "shards: 'h:1' shards: 'h:2' ";

absl::StatusOr<ServerOptions> MakeOfOneWorker(const std::string& text) {
  return MakeServerOptions(WithDefaults(*ParseJobConfig(
      absl::StrCat("workers: 1 learning_rate { rate: 0.1 } ", text), "test")));
}

std::string ErrorOf(const std::string& text) {
  const absl::Status status = MakeOfOneWorker(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

TEST(SurvivalConfigTest, Replication) {
  const auto options =
      MakeOfOneWorker(absl::StrCat(kTwoShards, "replication: 'buddy'"));
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(options->coordinator.replicated);
  EXPECT_TRUE(options->shard.replicated);
  const auto none =
      MakeOfOneWorker(absl::StrCat(kTwoShards, "replication: 'none'"));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->shard.replicated);
}

TEST(SurvivalConfigTest, ASecondCopyIsTheDefaultWhereItCanBe) {
  EXPECT_TRUE(MakeOfOneWorker(kTwoShards)->shard.replicated);
  EXPECT_FALSE(MakeOfOneWorker("")->shard.replicated);
  EXPECT_FALSE(MakeOfOneWorker("shards: 'h:1'")->shard.replicated);
}

TEST(SurvivalConfigTest, ReplicationErrors) {
  EXPECT_EQ(ErrorOf("replication: 'raid'"),
            "replication is \"raid\"; allowed: \"none\", \"buddy\"");
  EXPECT_EQ(ErrorOf("replication: 'buddy'"),
            "replication is \"buddy\", and number of shards is 1; allowed: "
            "\"none\" with 1 shard, \"buddy\" with 2 or more");
}

TEST(SurvivalConfigTest, DefaultsOfCheckpoints) {
  const auto options = MakeOfOneWorker("checkpoint { path: '/ckpt' }");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->checkpoint_path, "/ckpt");
  const CheckpointOptions& checkpoint = options->coordinator.checkpoint;
  EXPECT_TRUE(checkpoint.enabled);
  EXPECT_EQ(checkpoint.every, absl::Seconds(600));
  EXPECT_EQ(checkpoint.every_rounds, 0u);
  EXPECT_EQ(checkpoint.keep, 3);
  EXPECT_TRUE(checkpoint.restore);
  EXPECT_EQ(checkpoint.config_text, options->config_text);
  EXPECT_THAT(options->config_text, HasSubstr("  every_seconds: 600\n"));
}

TEST(SurvivalConfigTest, ByRoundsOrByBothOrOnlyAtTheEnd) {
  const auto rounds =
      MakeOfOneWorker("checkpoint { path: 'c' every_rounds: 7 }");
  ASSERT_TRUE(rounds.ok()) << rounds.status();
  EXPECT_EQ(rounds->coordinator.checkpoint.every, absl::ZeroDuration());
  EXPECT_EQ(rounds->coordinator.checkpoint.every_rounds, 7u);
  const auto both = MakeOfOneWorker(
      "checkpoint { path: 'c' every_rounds: 7 every_seconds: 1.5 keep: 1 "
      "restore: 'none' }");
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->coordinator.checkpoint.every, absl::Seconds(1.5));
  EXPECT_EQ(both->coordinator.checkpoint.keep, 1);
  EXPECT_FALSE(both->coordinator.checkpoint.restore);
  const auto end = MakeOfOneWorker("checkpoint { path: 'c' every_seconds: 0 }");
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->coordinator.checkpoint.every, absl::ZeroDuration());
}

TEST(SurvivalConfigTest, CheckpointErrors) {
  EXPECT_EQ(ErrorOf("checkpoint { path: 'c' every_seconds: -1 keep: -2 "
                    "restore: 'oldest' }"),
            "checkpoint.every_seconds is -1; allowed: finite, >= 0 (0: not by "
            "time)\n"
            "checkpoint.keep is -2; allowed: >= 1\n"
            "checkpoint.restore is \"oldest\"; allowed: \"latest\", "
            "\"none\"");
  EXPECT_THAT(ErrorOf("checkpoint { path: 'c' every_seconds: inf }"),
              HasSubstr("checkpoint.every_seconds is inf"));
  EXPECT_THAT(ErrorOf("checkpoint { path: 'c' every_seconds: nan }"),
              HasSubstr("checkpoint.every_seconds is nan"));
  EXPECT_EQ(ErrorOf("job: '..' checkpoint { path: 'c' }"),
            "job is \"..\"; allowed: with checkpoints: a name of a folder");
  EXPECT_TRUE(MakeOfOneWorker("job: '..'").ok());
}

TEST(SurvivalConfigTest, AnotherJobsCheckpoints) {
  const auto options =
      MakeOfOneWorker("job: 'b' checkpoint { path: 'c' restore_job: 'a' }");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->coordinator.checkpoint.restore_job, "a");
  for (const char* other : {"b", "..", "a/b"}) {
    EXPECT_EQ(
        ErrorOf(absl::StrCat("job: 'b' checkpoint { path: 'c' restore_job: '",
                             other, "' }")),
        absl::StrCat("checkpoint.restore_job is \"", other,
                     "\"; allowed: the name of another job, a folder "
                     "below path"));
  }
  EXPECT_THAT(ErrorOf("checkpoint { path: 'c' restore: 'none' restore_job: "
                      "'a' }"),
              HasSubstr("only with restore \"latest\""));
  EXPECT_THAT(ErrorOf("checkpoint { restore_job: 'a' }"),
              HasSubstr("checkpoint.restore_job is \"a\"; allowed: only with "
                        "checkpoint.path"));
}

TEST(SurvivalConfigTest, NothingOfACheckpointMeansAnythingWithoutAPath) {
  EXPECT_EQ(ErrorOf("checkpoint { every_seconds: 60 every_rounds: 2 keep: 5 "
                    "restore: 'latest' }"),
            "checkpoint.every_seconds is 60; allowed: only with "
            "checkpoint.path\n"
            "checkpoint.every_rounds is 2; allowed: only with "
            "checkpoint.path\n"
            "checkpoint.keep is 5; allowed: only with checkpoint.path\n"
            "checkpoint.restore is \"latest\"; allowed: only with "
            "checkpoint.path");
  EXPECT_TRUE(MakeOfOneWorker("checkpoint {}").ok());
}

TEST(SurvivalConfigTest, FingerprintIsOfReplicationAlone) {
  const auto fingerprint = [](const std::string& text) {
    return MakeOfOneWorker(absl::StrCat(kTwoShards, text))->fingerprint;
  };
  EXPECT_EQ(fingerprint(""), fingerprint("replication: 'buddy'"));
  EXPECT_NE(fingerprint(""), fingerprint("replication: 'none'"));
  for (const char* fields : {"", "restore: 'none'", "every_seconds: 1",
                             "every_rounds: 2", "keep: 9"}) {
    EXPECT_EQ(fingerprint(""), fingerprint(absl::StrCat(
                                   "checkpoint { path: 'c' ", fields, " }")))
        << fields;
  }
}

TEST(SurvivalConfigTest, CompletingTwiceChangesNothing) {
  const v1::JobConfig once = WithDefaults(*ParseJobConfig(
      "workers: 1 checkpoint { path: 'c' every_rounds: 3 }", "test"));
  EXPECT_EQ(PrintJobConfig(once), PrintJobConfig(WithDefaults(once)));
  EXPECT_TRUE(absl::StrContains(PrintJobConfig(once), "every_seconds: 0\n"));
}

}  // namespace
}  // namespace agg
