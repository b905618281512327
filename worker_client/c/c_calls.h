// What every call of the C ABI does around the client's call: whose process it
// is, a code for a status, a message for agg_error(), no exception.
#ifndef AGG_WORKER_CLIENT_C_C_CALLS_H_
#define AGG_WORKER_CLIENT_C_C_CALLS_H_

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/base/mutex.h"
#include "worker_client/agg_client.h"
#include "worker_client/c/agg_types.h"
#include "worker_client/c/c_structs.h"
#include "worker_client/c/event_queue.h"
#include "worker_client/c/row_store.h"
#include "worker_client/c/running_rounds.h"
#include "worker_client/client_types.h"

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
// AGG_OK, or AGG_FORKED: this process is a fork of `process`, which has `what`.
int32_t CheckProcess(int64_t process, absl::string_view what);
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

// `call`, unless the client is null or its process is another one.
template <typename Call>
int32_t OfThisProcess(agg_client* client, const Call& call) {
  if (client == nullptr) return Fail(AGG_INVALID_ARGUMENT, "client is NULL");
  const int32_t process = CheckProcess(client->process, "this client");
  return process == AGG_OK ? NoThrow(call) : process;
}

// `call(AggClient*)`, once it is connected.
template <typename Call>
int32_t Connected(agg_client* client, const Call& call) {
  return OfThisProcess(client, [&]() -> absl::Status {
    AggClient* const connected = client->connected;
    if (connected == nullptr) {
      return absl::FailedPreconditionError("agg_connect has not succeeded yet");
    }
    return call(connected);
  });
}

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_C_C_CALLS_H_
