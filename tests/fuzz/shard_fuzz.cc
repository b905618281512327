// Any streams of the Shard service, and the calls without which they lead
// nowhere.
#include "tests/fuzz/fuzz_job.h"
#include "tests/fuzz/fuzz_message.h"
#include "tests/fuzz/job_input.pb.h"

namespace agg {
namespace {

void Do(FuzzJob* job, const fuzz::ShardStep& step) {
  using Step = fuzz::ShardStep;
  const fuzz::Who& who = step.who();
  switch (step.call_case()) {
    case Step::kTurn:
      return job->Do(who, step.turn());
    case Step::kJoin:
      return job->Do(who, step.join());
    case Step::kPush:
      return job->Do(who, step.push());
    case Step::kPull:
      return job->Do(who, step.pull());
    case Step::kCommit:
      return job->Do(who, step.commit());
    default:
      return;
  }
}

void Run(const fuzz::ShardInput& input) { RunSteps(input, &Do); }

}  // namespace
}  // namespace agg

AGG_FUZZ_MESSAGE(agg::fuzz::ShardInput, agg::Run)
