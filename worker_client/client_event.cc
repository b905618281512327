// The text of each kind of event, for people.
#include "worker_client/client_event.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/log.h"
#include "server/base/utf8.h"

namespace agg {
namespace {

absl::string_view KindText(ClientEvent::Kind kind) {
  switch (kind) {
    case ClientEvent::Kind::kShardLost:
      return "a shard is lost";
    case ClientEvent::Kind::kFinished:
      return "the job has finished";
    case ClientEvent::Kind::kSuperseded:
      return "another client has joined with this rank";
    case ClientEvent::Kind::kSeedRole:
      return "this worker is to seed the parameters";
    case ClientEvent::Kind::kDraining:
      return "the server shuts down";
    case ClientEvent::Kind::kExpired:
      return "the lease ran out";
    case ClientEvent::Kind::kEvicted:
      return "an operator ended this session";
    case ClientEvent::Kind::kWaiting:
      return "waiting";
    case ClientEvent::Kind::kRecovering:
      return "waiting for the job to come back";
    case ClientEvent::Kind::kRecovered:
      return "the job is back";
    case ClientEvent::Kind::kRewound:
      return "the job has gone back";
    case ClientEvent::Kind::kAuditLog:
      return "the audit log is not complete";
    case ClientEvent::Kind::kWorkerLost:
      return "a worker is lost";
    case ClientEvent::Kind::kLeftOut:
      return "not all was used";
  }
  return "an event of another release";
}

}  // namespace

std::string ToString(const ClientEvent& event) {
  return absl::StrCat(KindText(event.kind), event.message.empty() ? "" : ": ",
                      Shown(event.message));
}

void PrintEvent(const ClientEvent& event) {
  if (event.kind == ClientEvent::Kind::kSeedRole ||
      event.kind == ClientEvent::Kind::kFinished) {
    return;
  }
  static std::atomic<uint64_t> num_lost{0};
  const uint64_t lost = num_lost;
  const std::string line = absl::StrCat(
      lost == 0 ? ""
                : absl::StrCat("agg_client: ", lost,
                               " lines are missing here: nobody had read "
                               "stderr\n"),
      "agg_client: ", ToString(event), "\n");
  // On the thread that keeps the lease: it must not wait for a reader.
  if (!WriteLineIfReady(STDERR_FILENO, line)) {
    ++num_lost;
  } else {
    num_lost -= lost;
  }
}

}  // namespace agg
