// Calls Join again and again, with growing pauses, and says now and then who
// is waited for.
#include "worker_client/join_call.h"

#include <grpcpp/client_context.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/manifest_message.h"
#include "proto/protocol_version.h"
#include "worker_client/client_event.h"
#include "worker_client/wait_report.h"

namespace agg {
namespace {

// A job's shards find each other within that, mostly: nobody need hear of it.
constexpr absl::Duration kUsualStart = absl::Seconds(2);

std::string ClientName(const ClientOptions& options) {
  if (!options.client_name.empty()) return options.client_name;
  char host[256] = "?";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, ":", getpid());
}

absl::Status OutOfTime(const absl::Status& last, absl::Duration timeout) {
  return absl::Status(
      last.code(), absl::StrCat(last.message(), " (tried for connect_timeout, ",
                                absl::FormatDuration(timeout), ")"));
}

// A plain sleep only where there is a connection: else this lets the channel go
// on resolving and connecting.
void Pause(absl::Duration pause, grpc::Channel* channel) {
  if (channel->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY) {
    absl::SleepFor(pause);
  } else {
    channel->WaitForConnected(absl::ToChronoTime(absl::Now() + pause));
  }
}

}  // namespace

v1::JoinRequest MakeJoinRequest(const ClientOptions& options) {
  v1::JoinRequest join;
  join.set_protocol_version(kProtocolVersion);
  join.set_rank(options.rank);
  *join.mutable_manifest() = ToProto(options.manifest);
  join.set_client(ClientName(options));
  return join;
}

absl::StatusOr<v1::JoinReply> JoinJob(const ClientOptions& options,
                                      const ShardName& coordinator,
                                      grpc::Channel* channel,
                                      v1::Coordinator::StubInterface* stub) {
  const v1::JoinRequest join = MakeJoinRequest(options);
  v1::ObserveRequest observe;
  observe.set_protocol_version(kProtocolVersion);
  const absl::Time began = absl::Now();
  const absl::Time deadline = began + options.connect_timeout;
  absl::Duration pause = absl::Milliseconds(20);
  WaitReport report(options, ClientEvent::Kind::kWaiting);
  // Only of what is said or returned, since it may connect once more.
  const auto explain = [&](const grpc::Status& status) {
    return FromGrpc(status, coordinator, options.observer ? "Observe" : "Join");
  };
  grpc::Status waited_for;  // why there was no answer so far
  while (true) {
    v1::JoinReply reply;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    const grpc::Status status = options.observer
                                    ? stub->Observe(&context, observe, &reply)
                                    : stub->Join(&context, join, &reply);
    if (status.ok()) return reply;
    // The server may not be there yet, or wait for its other shards, or have
    // as many callers as it takes.
    const bool lost = IsConnectionLoss(status) || IsLimit(status);
    if (lost) waited_for = status;
    const bool late =
        status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    if (!lost && !late) return explain(status);
    const absl::Time now = absl::Now();
    if (late || now + pause >= deadline) {
      // A reason says more than that time has passed.
      return OutOfTime(explain(waited_for.ok() ? status : waited_for),
                       options.connect_timeout);
    }
    const bool usual = IsStarting(status) && now - began < kUsualStart;
    if (!usual && report.Due(now)) {
      report.Say(std::string(explain(status).message()), now);
    }
    Pause(pause, channel);
    pause = std::min(2 * pause, absl::Milliseconds(500));
  }
}

}  // namespace agg
