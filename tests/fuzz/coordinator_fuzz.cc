// Any calls of the Coordinator service, and the pushes without which they lead
// nowhere.
#include "tests/fuzz/fuzz_job.h"
#include "tests/fuzz/fuzz_message.h"
#include "tests/fuzz/job_input.pb.h"

namespace agg {
namespace {

void Do(FuzzJob* job, const fuzz::CoordinatorStep& step) {
  using Step = fuzz::CoordinatorStep;
  const fuzz::Who& who = step.who();
  switch (step.call_case()) {
    case Step::kTurn:
      return job->Do(who, step.turn());
    case Step::kJoin:
      return job->Do(who, step.join());
    case Step::kObserve:
      return job->Do(who, step.observe());
    case Step::kRenew:
      return job->Do(who, step.renew());
    case Step::kCommit:
      return job->Do(who, step.commit());
    case Step::kWait:
      return job->Do(who, step.wait());
    case Step::kLeave:
      return job->Do(who, step.leave());
    case Step::kStatus:
      return job->Do(who, step.status());
    case Step::kReduce:
      return job->Do(who, step.reduce());
    case Step::kPush:
      return job->Do(who, step.push());
    default:
      return;
  }
}

void Run(const fuzz::CoordinatorInput& input) { RunSteps(input, &Do); }

}  // namespace
}  // namespace agg

AGG_FUZZ_MESSAGE(agg::fuzz::CoordinatorInput, agg::Run)
