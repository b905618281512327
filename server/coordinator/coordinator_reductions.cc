// Small reductions beside the model (P51): calls from any thread, and what the
// loop makes of them when members or commits have changed.
#include <utility>

#include "server/coordinator/coordinator.h"

namespace agg {

uint64_t Coordinator::Reduce(uint64_t epoch, const ReduceCall& call,
                             SmallReductions::Done done) {
  uint64_t number = 0;
  DeferredCalls calls;
  {
    MutexLock lock(&mutex_);
    calls = state_.Reduce(epoch, call, clock_->Now(), std::move(done), &number);
    KeepReductions();
  }
  calls.Run();
  return number;
}

void Coordinator::CancelReduce(uint64_t number) {
  MutexLock lock(&mutex_);
  state_.reductions()->Remove(number);
}

void Coordinator::KeepReductions() {
  for (SmallReductions::Made& made : state_.MakeReductions()) {
    AnswerWhenKept("the reduction is made",
                   [done = std::move(made.done),
                    answer = std::move(made.answer)](const absl::Status& kept) {
                     if (kept.ok()) {
                       done(answer);
                     } else {
                       done(kept);
                     }
                   });
    changed_.NotifyAll();
  }
}

void Coordinator::SayWhoReducesNot() {
  DeferredCalls calls;
  {
    MutexLock lock(&mutex_);
    calls = state_.SayWhoReducesNot(clock_->Now());
  }
  calls.Run();
}

}  // namespace agg
