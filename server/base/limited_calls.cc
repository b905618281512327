// The threads belong to nobody who waits: they share all that they use, and the
// one that is stuck ends by itself.
#include "server/base/limited_calls.h"

#include <chrono>
#include <deque>
#include <system_error>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/base/mutex.h"

namespace agg {
namespace {

using Steady = std::chrono::steady_clock;  // the system's may be set back

}  // namespace

class LimitedCalls::State : public std::enable_shared_from_this<State> {
 public:
  explicit State(const std::vector<absl::Duration>& limits) {
    for (const absl::Duration limit : limits) {
      kinds_.emplace_back();
      kinds_.back().limit = limit;
    }
  }

  absl::Status Run(size_t kind, const std::string& what,
                   std::function<void()> call) ABSL_LOCKS_EXCLUDED(mutex_) {
    const auto job = std::make_shared<Job>();
    job->kind = kind;
    job->call = std::move(call);
    MutexLock lock(&mutex_);
    Kind& of = kinds_[kind];
    if (of.num_stuck > 0) {
      return absl::DeadlineExceededError(absl::StrCat(
          "cannot ", what, ": ", of.stuck, " has not returned since ",
          absl::FormatTime("%H:%M:%S", of.stuck_since, absl::UTCTimeZone()),
          " UTC (a file system that hangs?)"));
    }
    jobs_.push_back(job);
    if (num_idle_ < static_cast<int>(jobs_.size())) {
      try {
        std::thread([self = shared_from_this()] { self->Work(); }).detach();
      } catch (const std::system_error& error) {
        jobs_.pop_back();
        return absl::ResourceExhaustedError(absl::StrCat(
            "cannot ", what, ": no thread is to be had for it: ", error.what(),
            " (see ulimit -u)"));
      }
    } else {
      changed_.NotifyAll();
    }
    const Steady::time_point deadline =
        Steady::now() + absl::ToChronoNanoseconds(of.limit);
    while (!job->done && Steady::now() < deadline) {
      finished_.WaitFor(&mutex_, absl::FromChrono(deadline - Steady::now()));
    }
    if (job->done) return absl::OkStatus();
    job->stuck = true;
    if (of.num_stuck++ == 0) {
      of.stuck = what;
      of.stuck_since = absl::Now();
    }
    return absl::DeadlineExceededError(absl::StrCat(
        "cannot ", what, ": no answer within ", absl::FormatDuration(of.limit),
        " (a file system that hangs?)"));
  }

  void Stop() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }

 private:
  struct Job {
    size_t kind = 0;
    std::function<void()> call;
    bool done = false;
    bool stuck = false;  // nobody waits for it
  };
  struct Kind {
    absl::Duration limit;
    int num_stuck = 0;
    std::string stuck;  // the first of them
    absl::Time stuck_since;
  };

  void Work() ABSL_LOCKS_EXCLUDED(mutex_) {
    for (;;) {
      std::shared_ptr<Job> job;
      {
        MutexLock lock(&mutex_);
        ++num_idle_;
        while (jobs_.empty() && !stopped_) changed_.Wait(&mutex_);
        --num_idle_;
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      job->call();
      job->call = nullptr;  // closes what nobody wants any more
      MutexLock lock(&mutex_);
      job->done = true;
      if (job->stuck) --kinds_[job->kind].num_stuck;
      finished_.NotifyAll();
    }
  }

  Mutex mutex_;
  CondVar changed_;   // a job has come, or all are to stop
  CondVar finished_;  // a job is done
  std::deque<std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mutex_);
  int num_idle_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Kind> kinds_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

LimitedCalls::LimitedCalls(std::vector<absl::Duration> limits)
    : state_(std::make_shared<State>(limits)) {}

LimitedCalls::~LimitedCalls() { state_->Stop(); }

absl::Status LimitedCalls::Run(size_t kind, const std::string& what,
                               std::function<void()> call) {
  return state_->Run(kind, what, std::move(call));
}

std::vector<absl::Duration> LookLimits() {
  return {absl::Seconds(2), absl::Seconds(30)};
}

}  // namespace agg
