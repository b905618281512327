// What is on its way and what waits are apart, since what comes while shards
// are asked is on none of them yet.
#include "server/coordinator/kept_answers.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace agg {
namespace {

template <typename Answers>
void Take(Answers* answers, const absl::Status& status, DeferredCalls* calls) {
  for (auto& answer : *answers) {
    calls->Add([done = std::move(answer.done), status] { done(status); });
  }
  answers->clear();
}

}  // namespace

void KeptAnswers::Add(std::string what, absl::Time now, Done done) {
  waiting_.push_back({std::move(what), now + kTimeout, std::move(done)});
}

void KeptAnswers::Send() {
  sent_.insert(sent_.end(), std::make_move_iterator(waiting_.begin()),
               std::make_move_iterator(waiting_.end()));
  waiting_.clear();
}

DeferredCalls KeptAnswers::Kept() {
  DeferredCalls calls;
  Take(&sent_, absl::OkStatus(), &calls);
  return calls;
}

void KeptAnswers::NotKept() {
  waiting_.insert(waiting_.begin(), std::make_move_iterator(sent_.begin()),
                  std::make_move_iterator(sent_.end()));
  sent_.clear();
}

DeferredCalls KeptAnswers::Refuse(const absl::Status& reason) {
  DeferredCalls calls;
  Take(&sent_, reason, &calls);
  Take(&waiting_, reason, &calls);
  return calls;
}

DeferredCalls KeptAnswers::Expire(absl::Time now, const std::string& why) {
  DeferredCalls calls;
  for (std::vector<Answer>* answers : {&sent_, &waiting_}) {
    std::vector<Answer> left;
    for (Answer& answer : *answers) {
      if (now < answer.until) {
        left.push_back(std::move(answer));
        continue;
      }
      calls.Add([done = std::move(answer.done),
                 status = absl::UnavailableError(absl::StrCat(
                     answer.what,
                     ", but not all shards have confirmed it "
                     "within ",
                     absl::FormatDuration(kTimeout),
                     ", so that the loss of a process may undo it: ", why,
                     "; the call may be repeated"))] { done(status); });
    }
    *answers = std::move(left);
  }
  return calls;
}

}  // namespace agg
