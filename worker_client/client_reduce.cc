// Small reductions beside the model (P51): the same values are given again,
// by the same name, until the sums are there.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "worker_client/client_core.h"

namespace agg {
namespace {

constexpr size_t kMaxShown = 200;  // bytes

std::string WaitText(const std::string& what, uint64_t version,
                     const std::vector<int>& ranks) {
  return absl::StrCat("the reduction of ", what.substr(0, kMaxShown),
                      what.size() > kMaxShown ? ".." : "", " at version ",
                      version, " waits for rank",
                      ranks.size() == 1 ? " " : "s ",
                      absl::StrJoin(ranks, ", "));
}

}  // namespace

absl::StatusOr<Reduction> ClientCore::ReduceOnce(
    const View& view, const std::string& what,
    const std::vector<double>& values, const CallLimit& limit,
    WaitReport* report, std::string* waits) {
  const Standing standing = membership_->standing(*view);
  // A new session of the rank gives what the former one has given.
  if (standing == Standing::kRewound || standing == Standing::kUnseeded) {
    return membership_->CheckStanding(*view);
  }
  const uint64_t version = version_;
  if (place_.version != version || place_.rewinds != view->num_rewinds()) {
    place_ = {version, view->num_rewinds(), 0};
  }
  while (true) {
    const absl::StatusOr<CoordinatorSession::Reduced> reduced =
        session_.Reduce(*view, version, place_.number, what, values, limit);
    if (!reduced.ok()) return reduced.status();
    if (reduced->waiting_for.empty()) {
      ++place_.number;
      return reduced->made;
    }
    *waits = WaitText(what, version, reduced->waiting_for);
    report->Say(*waits, absl::Now());
  }
}

absl::StatusOr<Reduction> ClientCore::Reduce(const std::string& what,
                                             const std::vector<double>& values,
                                             CancelSource* cancel) {
  const absl::Status pushes = CheckPushes();
  if (!pushes.ok()) return pushes;
  const CallLimit limit(absl::Now() + options_.round_timeout, cancel);
  WaitReport report(options_, ClientEvent::Kind::kWaiting);
  std::string waits;
  absl::StatusOr<Reduction> made = absl::UnknownError("not asked");
  if (!reduce_turn_.Take(cancel)) return cancel->status();
  const absl::Status status = membership_->Persist(
      limit, [&](const View& view) ABSL_EXCLUSIVE_LOCKS_REQUIRED(reduce_turn_) {
        made = ReduceOnce(view, what, values, limit, &report, &waits);
        return made.status();
      });
  reduce_turn_.Give();
  if (status.ok()) return made;
  if (!absl::IsDeadlineExceeded(status) || waits.empty()) return status;
  return absl::DeadlineExceededError(
      absl::StrCat(status.message(), "; ", waits));
}

}  // namespace agg
