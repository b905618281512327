// chaos_worker: a worker whose gradient depends on its rank, the version and
// the parameters alone, so that a job which loses nothing ends with the same
// bytes whatever its shards went through. Used by chaos.py.
//
// Prints a JSON line per round: {"version": V, "included": B, "seconds": S}, as
// long as the round took from the push to the parameters. A line has some 500
// bytes, so that it waits after a few of them when nobody reads. At version
// --rounds it saves the parameters as float32, little endian, and leaves. A
// worker that is started again goes on from the job's newest version.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker_client/agg_client.h"
#include "worker_client/client_event.h"

ABSL_FLAG(std::string, coordinator, "127.0.0.1:50051", "address of shard 0");
ABSL_FLAG(int, rank, 0, "this worker's rank");
ABSL_FLAG(uint64_t, rounds, 100, "the version to end at");
ABSL_FLAG(std::string, save, "", "file of the final parameters");
ABSL_FLAG(bool, wide, false, "a first tensor of a full slice, for many waves");
ABSL_FLAG(int64_t, rows, 0, "of the first tensor, of 1 KiB each; 0: as --wide");
ABSL_FLAG(std::string, audit_log, "", "file for agg_report --audit");

namespace agg {
namespace {

using Tensors = std::vector<std::vector<float>>;

// Of unlike sizes; with one slice each, several on every shard.
Manifest MakeManifest() {
  int64_t rows = absl::GetFlag(FLAGS_rows);
  if (rows == 0) rows = absl::GetFlag(FLAGS_wide) ? 4096 : 97;
  return {{{"embedding", {rows, 256}, "", false},
           {"hidden/weights", {256, 64}, "", false},
           {"hidden/bias", {64}, "", false},
           {"middle/weights", {64, 80}, "", false},
           {"middle/bias", {80}, "", false},
           {"output/weights", {80, 10}, "", false},
           {"output/bias", {10}, "", false},
           {"scale", {1}, "", false}}};
}

// Uniform in [-1, 1), a pure function of the arguments (splitmix64).
float Noise(uint64_t stream, uint64_t version, uint64_t element) {
  uint64_t x = stream * 0x9e3779b97f4a7c15u + version * 0xd1b54a32d192ed03u +
               element * 0x8cb92ba72f3d8dd7u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return static_cast<float>(static_cast<int64_t>(x >> 40) - (1 << 23)) /
         (1 << 23);
}

Tensors MakeTensors(const Manifest& manifest) {
  Tensors tensors;
  for (const TensorSpec& spec : manifest.tensors) {
    tensors.emplace_back(static_cast<size_t>(NumElements(spec)));
  }
  return tensors;
}

// That of ||x - target||^2 / 2, with noise of this rank and version.
void FillGradient(uint64_t rank, uint64_t version, const Tensors& parameters,
                  Tensors* gradient) {
  for (size_t t = 0; t < parameters.size(); ++t) {
    for (size_t k = 0; k < parameters[t].size(); ++k) {
      const uint64_t element = (t << 32) + k;
      (*gradient)[t][k] = parameters[t][k] - Noise(1000, 0, element) +
                          Noise(rank, version, element);
    }
  }
}

absl::Status Save(const Tensors& parameters, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  for (const std::vector<float>& values : parameters) {
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
  }
  file.close();
  return file ? absl::OkStatus() : absl::InternalError("cannot write " + path);
}

absl::Status Run() {
  ClientOptions options;
  options.coordinator = absl::GetFlag(FLAGS_coordinator);
  options.rank = absl::GetFlag(FLAGS_rank);
  options.manifest = MakeManifest();
  options.connect_timeout = absl::Minutes(2);
  options.audit_log = absl::GetFlag(FLAGS_audit_log);
  options.tune_malloc = true;
  options.on_event = PrintEvent;
  absl::StatusOr<std::unique_ptr<AggClient>> client =
      AggClient::Connect(options);
  if (!client.ok()) return client.status();
  Tensors parameters = MakeTensors(options.manifest);
  Tensors gradient = parameters;
  for (size_t t = 0; t < parameters.size(); ++t) {
    for (size_t k = 0; k < parameters[t].size(); ++k) {
      parameters[t][k] = Noise(2000, 0, (t << 32) + k);
    }
  }
  std::vector<MutableTensorView> views;
  for (std::vector<float>& values : parameters) {
    views.emplace_back(absl::MakeSpan(values));
  }
  const std::vector<TensorView> rows(gradient.begin(), gradient.end());
  absl::Status status = (*client)->SeedOrPull(views);
  const uint64_t last = absl::GetFlag(FLAGS_rounds);
  while (status.ok()) {
    while ((*client)->version() < last && !(*client)->finished()) {
      FillGradient(static_cast<uint64_t>(options.rank), (*client)->version(),
                   parameters, &gradient);
      const auto began = std::chrono::steady_clock::now();
      const absl::StatusOr<RoundOutcome> outcome =
          (*client)->PushPull(rows, {}, views);
      if (!outcome.ok()) return outcome.status();
      const std::chrono::duration<double> seconds =
          std::chrono::steady_clock::now() - began;
      std::printf("{\"version\": %llu, \"included\": %s, \"seconds\": %500f}\n",
                  static_cast<unsigned long long>((*client)->version()),
                  outcome->included ? "true" : "false", seconds.count());
      std::fflush(stdout);
    }
    status = (*client)->Pull((*client)->version(), views, Precision::kFull);
    if (!absl::IsFailedPrecondition(status) || (*client)->finished()) break;
    // The job has gone back behind the last round, which is done again.
    status = (*client)->PullLatest(views).status();
  }
  if (!status.ok()) return status;
  return Save(parameters, absl::GetFlag(FLAGS_save));
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = agg::Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
