// agg_pull: gets a job's parameters out, as an .npz file for numpy.load or
// for a later Seed. `aggctl pull` does the same with aggctl's exit codes.
//
//   agg_pull --coordinator=host:port --output=params.npz [--version=N]
//
// Exit codes: 0 written; 1 the job or the file said no; 2 a bad flag. Errors
// are one line on stderr.
#include <cstdio>
#include <string>
#include <vector>

#include "worker_client/npz/npz.h"
#include "worker_client/tools/agg_pull_flags.h"
#include "worker_client/tools/pull_model.h"

namespace agg {
namespace {

absl::Status PullToFile(const AggPullFlags& flags) {
  const absl::StatusOr<PulledModel> model =
      PullModel(flags.coordinator, flags.version, absl::Seconds(5));
  if (!model.ok()) return model.status();
  absl::Status status = WriteNpz(flags.output, model->tensors);
  if (!status.ok()) return status;
  std::printf("%s\n", Describe(*model, flags.output).c_str());
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const absl::StatusOr<AggPullFlags> flags =
      ParseAggPullFlags(std::vector<std::string>(argv + 1, argv + argc));
  if (!flags.ok()) {
    std::fprintf(stderr, "agg_pull: %s\n",
                 std::string(flags.status().message()).c_str());
    return 2;
  }
  if (flags->help) {
    std::fputs(kAggPullUsage, stdout);
    return 0;
  }
  const absl::Status status = PullToFile(*flags);
  if (!status.ok()) {
    std::fprintf(stderr, "agg_pull: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) { return agg::Main(argc, argv); }
