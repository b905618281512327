// What every call of the C ABI does around the client's call: whose process it
// is, a code for a status, a message for agg_error(), no exception; and the
// rounds that run, for agg_interrupt().
#ifndef AGG_WORKER_CLIENT_C_C_CALLS_H_
#define AGG_WORKER_CLIENT_C_C_CALLS_H_

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "server/base/mutex.h"
#include "worker_client/agg_client.h"
#include "worker_client/c/agg_types.h"
#include "worker_client/c/c_structs.h"
#include "worker_client/c/event_queue.h"
#include "worker_client/client_types.h"
#include "worker_client/operation.h"

namespace agg {

// The rounds that run inside calls of the C ABI, for agg_interrupt.
// Thread-safe.
class RunningRounds {
 public:
  // One round, as long as this lives. REQUIRES: `rounds` outlives it.
  class Entry {
   public:
    Entry(RunningRounds* rounds, RoundOperation round)
        : rounds_(rounds), round_(std::move(round)) {
      MutexLock lock(&rounds_->mutex_);
      rounds_->cancelled_.reset();
      rounds_->entries_.insert(this);
    }
    ~Entry() {
      MutexLock lock(&rounds_->mutex_);
      rounds_->entries_.erase(this);
      if (told_ && absl::IsCancelled(round_.Status())) {
        rounds_->cancelled_ = round_;
      }
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    RoundOperation* round() { return &round_; }

   private:
    friend class RunningRounds;
    RunningRounds* const rounds_;
    RoundOperation round_;
    bool told_ = false;  // to end; of the rounds' mutex
  };

  // Cancels those that there are.
  void Cancel() {
    std::vector<RoundOperation> rounds;
    {
      MutexLock lock(&mutex_);
      for (Entry* entry : entries_) {
        entry->told_ = true;
        rounds.push_back(entry->round_);
      }
    }
    for (RoundOperation& round : rounds) round.Cancel();
  }

  // The last one that Cancel has ended, once; nothing: another one has begun
  // since, or there was none.
  absl::optional<RoundOperation> TakeCancelled() {
    MutexLock lock(&mutex_);
    absl::optional<RoundOperation> taken;
    taken.swap(cancelled_);
    return taken;
  }

 private:
  Mutex mutex_;
  std::set<Entry*> entries_ ABSL_GUARDED_BY(mutex_);
  absl::optional<RoundOperation> cancelled_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

struct agg_client {
  agg::ClientOptions options;
  agg::EventQueue events;
  agg::RunningRounds rounds;
  const int64_t process = getpid();
  agg::RowStore rows;  // outlives the client's operations
  agg::Mutex connecting;
  std::unique_ptr<agg::AggClient> owned ABSL_GUARDED_BY(connecting);
  agg::Mutex describing;
  // All that agg_get_job has given: no two have the same transports.
  std::vector<std::unique_ptr<agg::JobStore>> jobs ABSL_GUARDED_BY(describing);
  std::atomic<agg::AggClient*> connected{nullptr};
};

namespace agg {

// What the thread's last call gave.
struct CallAnswer {
  std::string error;
  OutcomeStore outcome;
  std::string event;
};
CallAnswer& ThisThreads();

// Keeps the message, for agg_error(); `code`.
int32_t Fail(int32_t code, absl::string_view message);
// The status's code; keeps its message.
int32_t CodeOf(const absl::Status& status);
// Keeps the outcome in ThisThreads() and fills in `out`, which may be null.
absl::Status Answered(absl::StatusOr<RoundOutcome> outcome, agg_outcome* out);

// The code of `call()`, a status. A thread of Go or Python could do nothing
// with an exception.
template <typename Call>
int32_t NoThrow(const Call& call) {
  try {
    return CodeOf(call());
  } catch (const std::exception& error) {
    return Fail(AGG_INTERNAL, error.what());
  } catch (...) {
    return Fail(AGG_INTERNAL, "an exception of an unknown type");
  }
}

// `call`, unless the handle, which is a `what`, is null or its process is
// another one.
template <typename Handle, typename Call>
int32_t OfThisProcess(const Handle* handle, const char* what,
                      const Call& call) {
  if (handle == nullptr) {
    return Fail(AGG_INVALID_ARGUMENT, absl::StrCat(what, " is NULL"));
  }
  if (getpid() == handle->process) return NoThrow(call);
  return Fail(AGG_FORKED,
              absl::StrCat("process ", getpid(), " is a fork of ",
                           handle->process, ", which has this ", what));
}

// `call(AggClient*)`, once it is connected.
template <typename Call>
int32_t Connected(agg_client* client, const Call& call) {
  return OfThisProcess(client, "client", [&]() -> absl::Status {
    AggClient* const connected = client->connected;
    if (connected == nullptr) {
      return absl::FailedPreconditionError("agg_connect has not succeeded yet");
    }
    return call(connected);
  });
}

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_C_C_CALLS_H_
