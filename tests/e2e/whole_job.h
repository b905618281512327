// Jobs that are run from their seed to their last round, to compare what
// comes out of them.
#ifndef AGG_TESTS_E2E_WHOLE_JOB_H_
#define AGG_TESTS_E2E_WHOLE_JOB_H_

#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend_maker.h"
#include "proto/shard_plan.h"
#include "tests/e2e/loopback_job.h"
#include "worker_client/client_types.h"

namespace agg {

struct WholeJob {
  std::string name;    // of the test case
  int workers = 1;     // push Train's gradients
  std::string config;  // besides `workers` and `shards`
};

// Every kind of rule, dtype and optimizer that takes a path of its own through
// the phases; 1 to 33 workers.
const std::vector<WholeJob>& WholeJobs();
std::string NameOf(const testing::TestParamInfo<WholeJob>& info);
void PrintTo(const WholeJob& job, std::ostream* out);

// A tensor of 3 x `columns`, small ones, a scalar and an empty one. It is two
// slices from 350 000 columns on, three from 700 000 on.
Manifest MixedManifest(int64_t columns);
// Little data for many workers.
Manifest SmallManifest();

struct JobResult {
  HostTensors parameters;
  RoundOutcome outcome;  // of the last round, for rank 0
};

// Three rounds on `num_shards` servers. Fails the test on errors.
JobResult RunWholeJob(const WholeJob& job, const Manifest& manifest,
                      int num_shards, const BackendMaker& make_backend);

// Parameters and the outcome's numbers, bit for bit.
void ExpectSameResult(const JobResult& result, const JobResult& expected);

}  // namespace agg

#endif  // AGG_TESTS_E2E_WHOLE_JOB_H_
