#include "tests/e2e/whole_job.h"

#include "absl/strings/str_cat.h"

namespace agg {

const std::vector<WholeJob>& WholeJobs() {
  static const auto* const jobs = new std::vector<WholeJob>{
      {"adasum", 3,
       "combination { rule: \"adasum\" } learning_rate { rate: 0.1 }"},
      {"adacons_bf16", 3,
       "combination { rule: \"adacons\" } learning_rate { rate: 0.1 } "
       "push_dtype: \"bf16\" pull_dtype: \"bf16\""},
      {"adascale_f16_momentum", 2,
       "step_scale { kind: \"adascale\" } learning_rate { rate: 0.1 } "
       "optimizer { kind: \"sgd\" momentum: 0.9 nesterov: true } "
       "push_dtype: \"f16\""},
      {"adasum_int8", 3,
       "combination { rule: \"adasum\" } learning_rate { rate: 0.1 } "
       "push_dtype: \"int8\" pull_dtype: \"bf16\""},
      {"lamb", 2,
       "combination { rule: \"weighted_mean\" } clip_norm: 0.5 "
       "optimizer { kind: \"lamb\" weight_decay: 0.01 } "
       "learning_rate { rate: 0.01 schedule: \"cosine\" decay_steps: 10 }"},
      {"one_worker", 1,
       "learning_rate { rate: 0.1 } optimizer { kind: \"adamw\" }"},
      {"thirty_three_workers", 33,
       "combination { rule: \"adasum_counted\" } "
       "learning_rate { rate: 0.05 }"}};
  return *jobs;
}

std::string NameOf(const testing::TestParamInfo<WholeJob>& info) {
  return info.param.name;
}

void PrintTo(const WholeJob& job, std::ostream* out) { *out << job.name; }

Manifest MixedManifest(int64_t columns) {
  return ShapedManifest({{3, columns}, {17, 5}, {}, {4, 0, 2}, {1000}, {63}});
}

Manifest SmallManifest() { return ShapedManifest({{301}, {}, {0}, {40, 3}}); }

JobResult RunWholeJob(const WholeJob& job, const Manifest& manifest,
                      int num_shards, const BackendMaker& make_backend) {
  constexpr int kRounds = 3;
  LoopbackJob loopback(num_shards,
                       absl::StrCat("workers: ", job.workers, "\n", job.config),
                       make_backend);
  JobResult result;
  result.outcome = Train(loopback, manifest, job.workers, kRounds);
  result.parameters = loopback.Parameters(manifest);
  EXPECT_EQ(result.outcome.version, static_cast<uint64_t>(kRounds));
  EXPECT_EQ(result.outcome.ranks.size(), static_cast<size_t>(job.workers));
  EXPECT_NE(result.parameters, MakeTensors(manifest, 7));  // it has learned
  return result;
}

void ExpectSameResult(const JobResult& result, const JobResult& expected) {
  // Not EXPECT_EQ: it would print megabytes.
  EXPECT_TRUE(result.parameters == expected.parameters);
  EXPECT_EQ(result.outcome.gain, expected.outcome.gain);
  EXPECT_EQ(result.outcome.tau, expected.outcome.tau);
  EXPECT_EQ(result.outcome.learning_rate, expected.outcome.learning_rate);
  EXPECT_EQ(result.outcome.combined_norm, expected.outcome.combined_norm);
}

}  // namespace agg
