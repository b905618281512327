// One method: whose session it is, and the coordinator's answer, which comes
// from any of its threads.
#include "server/rpc/reduction_service.h"

#include <utility>

#include "absl/status/statusor.h"
#include "server/access/access_rules.h"
#include "server/rpc/admit_call.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/long_poll.h"
#include "server/rpc/raw_message.h"

namespace agg {
namespace {

constexpr char kReduce[] = "agg.v1.Reductions/Reduce";

v1::ReduceReply ReplyOf(const ReduceAnswer& answer) {
  v1::ReduceReply reply;
  if (answer.made != nullptr) {
    const KeptReduction& made = *answer.made;
    reply.mutable_sums()->Add(made.sums.begin(), made.sums.end());
    reply.mutable_ranks()->Add(made.ranks.begin(), made.ranks.end());
    reply.mutable_left_out()->Add(made.left_out.begin(), made.left_out.end());
  }
  reply.set_withdrawn(answer.withdrawn);
  reply.set_note(answer.note);
  reply.mutable_waiting_for()->Add(answer.waiting_for.begin(),
                                   answer.waiting_for.end());
  return reply;
}

}  // namespace

ReductionService::ReductionService(const ShardIdentity& self,
                                   const JobInfo& job, Coordinator* coordinator,
                                   const CallerGate* gate)
    : coordinator_(coordinator),
      not_here_(NotTheCoordinator(self, job)),
      gate_(gate) {}

grpc::ServerUnaryReactor* ReductionService::Reduce(
    grpc::CallbackServerContext* context, const v1::ReduceRequest* request,
    v1::ReduceReply* reply) {
  const absl::StatusOr<Caller> caller = AdmitCall(*gate_, *context, kReduce);
  if (!caller.ok()) return AnswerNow<v1::ReduceReply>(reply, caller.status());
  if (coordinator_ == nullptr) {
    return AnswerNow<v1::ReduceReply>(reply, not_here_);
  }
  v1::ReduceRequest asked = TakeMessage(request);
  if (caller->known) {
    const absl::Status status = gate_->CheckSession(
        *caller, coordinator_->OwnerOf(asked.epoch(), asked.session()), kReduce,
        asked.session());
    if (!status.ok()) return AnswerNow<v1::ReduceReply>(reply, status);
  }
  ReduceCall call;
  call.session = asked.session();
  call.name = {asked.giver(), asked.call()};
  call.withdraw = asked.withdraw();
  call.what = std::move(*asked.mutable_what());
  call.values.assign(asked.values().begin(), asked.values().end());
  auto poll = LongPoll<v1::ReduceReply>::Make(reply);
  auto* reactor = poll.get();
  const uint64_t number =
      coordinator_->Reduce(asked.epoch(), std::move(call),
                           [poll](const absl::StatusOr<ReduceAnswer>& answer) {
                             if (answer.ok()) {
                               poll->Answer(ReplyOf(*answer));
                             } else {
                               poll->Answer(answer.status());
                             }
                           });
  poll->set_on_gone([this, number] { coordinator_->CancelReduce(number); });
  return reactor;
}

}  // namespace agg
