// digits_worker: one worker of the quickstart (digits_run.h).
#include <cstdio>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "worker_client/examples/digits_run.h"

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "digits_worker --coordinator=host:port --rank=R --workers=P");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = agg::RunDigitsWorker();
  if (status.ok()) return 0;
  std::fprintf(stderr, "digits_worker %d: %s\n", absl::GetFlag(FLAGS_rank),
               status.ToString().c_str());
  return 1;
}
