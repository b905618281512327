// The mark is a payload of the status: it goes wherever the status goes, and no
// text can be taken for it.
#include "server/round/orderly_stop.h"

#include "absl/strings/cord.h"

namespace agg {
namespace {

// It leaves no process: on the wire it is AttachReply.stopping.
constexpr char kMark[] = "agg/orderly_stop";

}  // namespace

absl::Status OrderlyStop(absl::string_view message) {
  absl::Status status = absl::UnavailableError(message);
  status.SetPayload(kMark, absl::Cord());
  return status;
}

bool IsOrderlyStop(const absl::Status& reason) {
  return reason.GetPayload(kMark).has_value();
}

}  // namespace agg
