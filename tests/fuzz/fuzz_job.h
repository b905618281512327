// Several clients against the services of a job, as a fuzz input says. Three of
// them do what they like; the fourth is honest, and whatever the others do
//   - nothing aborts, and every call ends when its client has gone,
//   - who is refused changes nothing of the honest worker's,
//   - the honest worker finishes a round afterwards, with the right parameters.
#ifndef AGG_TESTS_FUZZ_FUZZ_JOB_H_
#define AGG_TESTS_FUZZ_FUZZ_JOB_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "proto/admin.pb.h"
#include "proto/agg.pb.h"
#include "proto/reduction.pb.h"
#include "tests/fuzz/fake_call.h"
#include "tests/fuzz/fuzz_services.h"
#include "tests/fuzz/honest_worker.h"
#include "tests/fuzz/job_input.pb.h"

namespace agg {

class FuzzJob {
 public:
  // Inputs with more steps are not worth their time.
  static constexpr int kMaxSteps = 60;

  explicit FuzzJob(const fuzz::JobSetup& setup);

  // A call, or what happens besides calls. A request as protobuf's classes have
  // it; what is 0 in it is filled in as Who says.
  void Do(const fuzz::Who& who, const fuzz::Turn& turn);
  void Do(const fuzz::Who& who, const fuzz::Push& push);
  void Do(const fuzz::Who& who, v1::JoinRequest request);
  void Do(const fuzz::Who& who, v1::ObserveRequest request);
  void Do(const fuzz::Who& who, v1::LeaseRenewal renewal);
  void Do(const fuzz::Who& who, v1::CommitRequest request);
  void Do(const fuzz::Who& who, v1::WaitRequest request);
  void Do(const fuzz::Who& who, v1::LeaveRequest request);
  void Do(const fuzz::Who& who, v1::ReduceRequest request);
  void Do(const fuzz::Who& who, const v1::StatusRequest& request);
  void Do(const fuzz::Who& who, v1::PullRequest request);

  // Calls the admin service: `call` is its method.
  template <typename Request, typename Reply>
  using AdminMethod = grpc::ServerUnaryReactor* (
      v1::Admin::CallbackService::*)(grpc::CallbackServerContext*,
                                     const Request*, Reply*);
  template <typename Request, typename Reply>
  void DoAdmin(const fuzz::Who& who, const Request& request,
               AdminMethod<Request, Reply> method) {
    NoteToken(who.token());
    calls_.Unary<Reply>(FuzzToken(who.token()), request,
                        [&](auto* context, auto* request, auto* reply) {
                          return (services_.admin(who.shard())->*method)(
                              context, request, reply);
                        });
  }

  void ListTensors(const fuzz::Who& who, const v1::ListTensorsRequest& request);

  // What must be so after any input.
  void Finish();

  // The services, for calls that are not above.
  FuzzServices* services() { return &services_; }
  FuzzCalls* calls() { return &calls_; }
  HonestWorker* honest() { return &honest_; }

 private:
  using PushCall = FakeBidi<grpc::ByteBuffer, grpc::ByteBuffer>;
  using AttendCall = FakeBidi<v1::LeaseRenewal, v1::JobEvent>;

  // What who may do who has it.
  void NoteToken(uint32_t token);
  uint64_t SessionOf(const fuzz::Who& who) const;
  template <typename Request>
  void FillIn(const fuzz::Who& who, Request* request) const;
  void Advance(uint32_t milliseconds);
  void LoseShard(uint32_t shard);

  FuzzServices services_;
  FuzzCalls calls_;
  HonestWorker honest_;
  std::array<uint64_t, 3> sessions_ = {};  // of the others
  // A worker's newest stream to a shard; a worker's Attend.
  std::map<std::pair<uint32_t, uint32_t>, std::shared_ptr<PushCall>> pushes_;
  std::map<uint32_t, std::shared_ptr<AttendCall>> attends_;
};

// A target's run: the input's steps on a job of its setup, then what must be so
// after any input.
template <typename Job = FuzzJob, typename Input, typename DoStep>
void RunSteps(const Input& input, DoStep do_step) {
  Job job(input.setup());
  const int num_steps = std::min(input.steps_size(), FuzzJob::kMaxSteps);
  for (int i = 0; i < num_steps; ++i) do_step(&job, input.steps(i));
  job.Finish();
}

}  // namespace agg

#endif  // AGG_TESTS_FUZZ_FUZZ_JOB_H_
