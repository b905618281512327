// agg_pull: gets a job's parameters out, as an .npz file for numpy.load or
// for a later Seed.
//
//   agg_pull --coordinator=host:port --output=params.npz [--version=N]
//
// Exit codes: 0 written; 1 the job or the file said no; 2 a bad flag. Errors
// are one line on stderr.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/tools/agg_pull_flags.h"
#include "worker_client/agg_client.h"
#include "worker_client/npz.h"

namespace agg {
namespace {

// Zeroed tensors in the manifest's shapes.
std::vector<NpzTensor> TensorsOf(const Manifest& manifest) {
  std::vector<NpzTensor> tensors;
  for (const TensorSpec& spec : manifest.tensors) {
    tensors.push_back(NpzTensor{spec.name, spec.shape,
                                std::vector<float>(NumElements(spec))});
  }
  return tensors;
}

absl::Status PullToFile(const AggPullFlags& flags) {
  ClientOptions options;
  options.coordinator = flags.coordinator;
  options.observer = true;
  options.connect_timeout = absl::Seconds(5);
  options.tune_malloc = true;
  absl::StatusOr<std::unique_ptr<AggClient>> client =
      AggClient::Connect(options);
  if (!client.ok()) return client.status();
  std::vector<NpzTensor> tensors = TensorsOf((*client)->manifest());
  const std::vector<MutableTensorView> views = MutableViews(&tensors);
  uint64_t version = flags.version.value_or(0);
  if (flags.version.has_value()) {
    // Pull waits for versions to come; a tool should not.
    absl::StatusOr<uint64_t> latest = (*client)->LatestVersion();
    if (!latest.ok()) return latest.status();
    if (version > *latest) {
      return absl::OutOfRangeError(absl::StrCat("version ", version,
                                                " is not published yet; the ",
                                                "newest is ", *latest));
    }
    absl::Status status = (*client)->Pull(version, views, Precision::kFull);
    if (!status.ok()) return status;
  } else {
    absl::StatusOr<uint64_t> latest =
        (*client)->PullLatest(views, Precision::kFull);
    if (!latest.ok()) return latest.status();
    version = *latest;
  }
  absl::Status status = WriteNpz(flags.output, tensors);
  if (!status.ok()) return status;
  std::printf("version %llu: %zu tensors, %lld parameters -> %s\n",
              static_cast<unsigned long long>(version), tensors.size(),
              static_cast<long long>(NumElements((*client)->manifest())),
              flags.output.c_str());
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
