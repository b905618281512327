// One lock, held for a comparison: gRPC's threads log from anywhere.
#include "server/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "server/base/log.h"
#include "server/base/mutex.h"

namespace agg {
namespace {

struct State {
  Mutex mutex;
  LineLimit limit;
};

// The line's message with its place.
std::string TextOf(const gpr_log_func_args& line, absl::string_view more) {
  absl::string_view file = line.file;
  file = file.substr(file.rfind('/') + 1);  // npos + 1 is 0
  return absl::StrCat("gRPC: ", absl::StripAsciiWhitespace(line.message), " (",
                      file, ":", line.line, more, ")");
}

void Write(gpr_log_func_args* line) {
  if (line->severity != GPR_LOG_SEVERITY_ERROR) {
    // A traced header with a token; what dumps bytes has them all the same.
    if (absl::StrContains(line->message, "authorization")) return;
    LogInfo(TextOf(*line, ""));
    return;
  }
  static State* const state = new State;
  int dropped = 0;
  {
    MutexLock lock(&state->mutex);
    if (!state->limit.Take(absl::Now(), &dropped)) return;
  }
  LogWarning(TextOf(
      *line, dropped == 0
                 ? ""
                 : absl::StrCat("; ", dropped, " lines before it left out")));
}

}  // namespace

bool LineLimit::Take(absl::Time now, int* dropped) {
  // A clock that was set back begins a period, too.
  if (now < began_ || now - began_ >= kPeriod) {
    began_ = now;
    written_ = 0;
  }
  if (written_ == kMost) {
    ++dropped_;
    return false;
  }
  ++written_;
  *dropped = dropped_;
  dropped_ = 0;
  return true;
}

void LogGrpcErrors() { gpr_set_log_function(&Write); }

}  // namespace agg
