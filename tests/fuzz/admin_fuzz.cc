// Any calls of the Admin service between others' rounds.
#include "tests/fuzz/fuzz_job.h"
#include "tests/fuzz/fuzz_message.h"
#include "tests/fuzz/job_input.pb.h"

namespace agg {
namespace {

void DoAdmin(FuzzJob* job, const fuzz::AdminStep& step) {
  using Service = v1::Admin::CallbackService;
  using Step = fuzz::AdminStep;
  const fuzz::Who& who = step.who();
  switch (step.call_case()) {
    case Step::kSetRule:
      return job->DoAdmin<v1::SetRuleRequest, v1::SetRuleReply>(
          who, step.set_rule(), &Service::SetRule);
    case Step::kEvict:
      return job->DoAdmin<v1::EvictWorkerRequest, v1::EvictWorkerReply>(
          who, step.evict(), &Service::EvictWorker);
    case Step::kDrain:
      return job->DoAdmin<v1::DrainRequest, v1::DrainReply>(who, step.drain(),
                                                            &Service::Drain);
    case Step::kTakeCheckpoint:
      return job->DoAdmin<v1::TakeCheckpointRequest, v1::TakeCheckpointReply>(
          who, step.take_checkpoint(), &Service::TakeCheckpoint);
    case Step::kRestore:
      return job->DoAdmin<v1::RestoreRequest, v1::RestoreReply>(
          who, step.restore(), &Service::Restore);
    case Step::kResume:
      return job->DoAdmin<v1::ResumeRequest, v1::ResumeReply>(
          who, step.resume(), &Service::Resume);
    case Step::kSetLogLevel:
      return job->DoAdmin<v1::SetLogLevelRequest, v1::SetLogLevelReply>(
          who, step.set_log_level(), &Service::SetLogLevel);
    case Step::kListTensors:
      return job->ListTensors(who, step.list_tensors());
    case Step::kListRounds:
      return job->DoAdmin<v1::ListRoundsRequest, v1::ListRoundsReply>(
          who, step.list_rounds(), &Service::ListRounds);
    case Step::kGetVersion:
      return job->DoAdmin<v1::GetVersionRequest, v1::GetVersionReply>(
          who, step.get_version(), &Service::GetVersion);
    case Step::kDescribe:
      return job->DoAdmin<v1::DescribeRequest, v1::DescribeReply>(
          who, step.describe(), &Service::Describe);
    case Step::kListAudit:
      return job->DoAdmin<v1::ListAuditRequest, v1::ListAuditReply>(
          who, step.list_audit(), &Service::ListAudit);
    default:
      return;
  }
}

void Do(FuzzJob* job, const fuzz::AdminStep& step) {
  using Step = fuzz::AdminStep;
  const fuzz::Who& who = step.who();
  switch (step.call_case()) {
    case Step::kTurn:
      return job->Do(who, step.turn());
    case Step::kJoin:
      return job->Do(who, step.join());
    case Step::kPush:
      return job->Do(who, step.push());
    case Step::kCommit:
      return job->Do(who, step.commit());
    default:
      return DoAdmin(job, step);
  }
}

void Run(const fuzz::AdminInput& input) { RunSteps(input, &Do); }

}  // namespace
}  // namespace agg

AGG_FUZZ_MESSAGE(agg::fuzz::AdminInput, agg::Run)
