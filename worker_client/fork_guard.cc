// A child has its parent's memory, and so its number.
#include "worker_client/fork_guard.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "server/base/dcheck.h"

namespace agg {
namespace {

// Of the first client; 0: there was none.
std::atomic<int64_t> process{0};

}  // namespace

absl::Status CheckNotForked() {
  const int64_t first = process;
  if (first == 0 || first == getpid()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "process ", getpid(), " is a fork of ", first,
      ", which has had a client, and no client works in a fork of that; "
      "connect in a process that was started by exec (of Python's "
      "multiprocessing: \"spawn\" or \"forkserver\"), or fork before the first "
      "client is made"));
}

void NoteConnecting() {
  AGG_DCHECK(CheckNotForked().ok());
  process = getpid();
}

}  // namespace agg
