// transport_worker: one worker of deploy/bench.sh, in a process of its own, so
// that its CPU time and memory are apart from the servers'.
//
//   transport_worker --coordinator=ADDRESS --rank=R --workers=P --barrier=FILE
//                    [--elements=N] [--tensors=N] [--transport=NAME]
//   transport_worker --list_transports
//
// Joins, seeds or pulls, prints {"ready": true}. Then, for each line `N` of
// stdin, runs N rounds behind the barrier of all workers, and prints a line
// {"begin": B, "end": E} for each: from the first byte pushed to the last one
// pulled, in nanoseconds of CLOCK_MONOTONIC, which all processes of a host
// share. Leaves at the end of stdin.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/shard_plan.h"
#include "tests/bench/process_barrier.h"
#include "worker_client/agg_client.h"
#include "worker_client/client_event.h"
#include "worker_client/client_types.h"
#include "worker_client/tensor_view.h"
#include "worker_client/version_view.h"

ABSL_FLAG(std::string, coordinator, "127.0.0.1:50051", "address of shard 0");
ABSL_FLAG(int, rank, 0, "this worker's rank");
ABSL_FLAG(int, workers, 1, "how many meet at the barrier");
ABSL_FLAG(std::string, barrier, "", "file of zeros that the workers share");
ABSL_FLAG(int64_t, elements, 25000000, "float32 parameters");
ABSL_FLAG(int, tensors, 8, "that they are divided into");
ABSL_FLAG(std::string, transport, "tcp", "one of --list_transports");
ABSL_FLAG(bool, list_transports, false, "print the names, one a line; exit");

namespace agg {
namespace {

using Tensors = std::vector<std::vector<float>>;

// A way for bytes to go between worker and shards. A new one is a line here
// and a line in deploy/bench_systems.py.
struct Transport {
  const char* name;
  const char* reported;  // in JobDescription.transports
  void (*set)(ClientOptions* options);
  bool in_place = false;  // rows and versions are used where they lie
};
constexpr Transport kTransports[] = {
    {"tcp", "tcp",
     [](ClientOptions* options) { options->local_sockets = false; }},
    {"unix", "unix",
     [](ClientOptions* options) { options->shared_memory = false; }},
    {"shm_copy", "shm", [](ClientOptions*) {}},
    {"shm", "shm", [](ClientOptions*) {}, true},
};

absl::StatusOr<Transport> FindTransport(const std::string& name) {
  std::vector<std::string> names;
  for (const Transport& transport : kTransports) {
    if (name == transport.name) return transport;
    names.push_back(transport.name);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--transport is ", name, "; allowed: ", absl::StrJoin(names, ", ")));
}

int64_t Nanoseconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{1000000000} * now.tv_sec + now.tv_nsec;
}

// Of equal sizes; the last one takes the remainder.
Manifest MakeManifest(int64_t num_elements, int num_tensors) {
  Manifest manifest;
  for (int t = 0; t < num_tensors; ++t) {
    const int64_t size =
        num_elements / num_tensors +
        (t + 1 == num_tensors ? num_elements % num_tensors : 0);
    manifest.tensors.push_back({absl::StrCat("tensor_", t), {size}, "", false});
  }
  return manifest;
}

// Small numbers that differ by rank, so that no rule meets a degenerate case.
Tensors MakeTensors(const Manifest& manifest, uint64_t stream) {
  Tensors tensors;
  uint64_t x = (stream + 1) * 0x9e3779b97f4a7c15u;
  for (const TensorSpec& spec : manifest.tensors) {
    std::vector<float> values(static_cast<size_t>(NumElements(spec)));
    for (float& value : values) {
      x = x * 6364136223846793005u + 1442695040888963407u;
      value = static_cast<float>(static_cast<int64_t>(x >> 40) - (1 << 23)) /
              (1 << 23);
    }
    tensors.push_back(std::move(values));
  }
  return tensors;
}

absl::StatusOr<std::unique_ptr<AggClient>> Connect(const Manifest& manifest) {
  const absl::StatusOr<Transport> transport =
      FindTransport(absl::GetFlag(FLAGS_transport));
  if (!transport.ok()) return transport.status();
  ClientOptions options;
  options.coordinator = absl::GetFlag(FLAGS_coordinator);
  options.rank = absl::GetFlag(FLAGS_rank);
  options.manifest = manifest;
  options.tune_malloc = true;
  options.on_event = PrintEvent;
  // A server that dies ends the benchmark, which says so.
  options.recovery_window = absl::ZeroDuration();
  transport->set(&options);
  absl::StatusOr<std::unique_ptr<AggClient>> client =
      AggClient::Connect(options);
  if (!client.ok()) return client.status();
  // Clients fall back to TCP by themselves: a number under a wrong name would
  // be worse than none.
  for (const std::string& used : (*client)->job().transports) {
    if (used != transport->reported) {
      return absl::UnavailableError(
          absl::StrCat("--transport is ", transport->name,
                       ", a shard was reached over ", used));
    }
  }
  return client;
}

// Copies `gradient` to where the row lies.
absl::StatusOr<std::vector<TensorView>> PutInPlace(
    AggClient* client, absl::Span<const TensorView> gradient) {
  const absl::StatusOr<std::vector<MutableTensorView>> places =
      client->RowTensors();
  if (!places.ok()) return places.status();
  std::vector<TensorView> row;
  for (size_t t = 0; t < gradient.size(); ++t) {
    const auto* const from = static_cast<const float*>(gradient[t].data);
    std::copy(from, from + gradient[t].num_elements, (*places)[t].data);
    row.emplace_back(
        absl::MakeConstSpan((*places)[t].data, (*places)[t].num_elements));
  }
  return row;
}

// A round whose row is in place; *view becomes its version.
absl::StatusOr<RoundOutcome> RunInPlace(AggClient* client,
                                        absl::Span<const TensorView> row,
                                        std::unique_ptr<VersionView>* view) {
  *view = nullptr;  // what was computed on
  const absl::Status pushed = client->Push(row);
  if (!pushed.ok()) return pushed;
  const absl::StatusOr<RoundOutcome> outcome = client->Commit({});
  if (!outcome.ok()) return outcome;
  absl::StatusOr<std::unique_ptr<VersionView>> next =
      client->PullView(outcome->version);
  if (!next.ok()) return next.status();
  *view = *std::move(next);
  return outcome;
}

// The rounds that stdin asks for.
absl::Status RunRounds(AggClient* client, BarrierState* barrier, bool in_place,
                       absl::Span<const TensorView> gradient,
                       absl::Span<const MutableTensorView> parameters) {
  std::unique_ptr<VersionView> view;
  const auto num_workers = static_cast<uint32_t>(absl::GetFlag(FLAGS_workers));
  std::puts("{\"ready\": true}");
  std::fflush(stdout);
  int num_rounds = 0;
  while (std::cin >> num_rounds) {
    for (int round = 0; round < num_rounds; ++round) {
      WaitAtBarrier(barrier, num_workers);
      const int64_t begin = Nanoseconds();
      const absl::StatusOr<RoundOutcome> outcome =
          in_place ? RunInPlace(client, gradient, &view)
                   : client->PushPull(gradient, {}, parameters);
      const int64_t end = Nanoseconds();
      if (!outcome.ok()) return outcome.status();
      // A round without this row would not be the round that is measured.
      if (!outcome->included) return absl::InternalError(outcome->message);
      std::printf("{\"begin\": %lld, \"end\": %lld}\n",
                  static_cast<long long>(begin), static_cast<long long>(end));
      std::fflush(stdout);
    }
  }
  return client->Leave();
}

absl::Status Run() {
  const absl::StatusOr<BarrierState*> barrier =
      MapBarrier(absl::GetFlag(FLAGS_barrier));
  if (!barrier.ok()) return barrier.status();
  const Manifest manifest =
      MakeManifest(absl::GetFlag(FLAGS_elements), absl::GetFlag(FLAGS_tensors));
  absl::StatusOr<std::unique_ptr<AggClient>> client = Connect(manifest);
  if (!client.ok()) return client.status();
  // Streams apart from the ranks': parameters are the same for all.
  Tensors parameters = MakeTensors(manifest, 1000000);
  const Tensors gradient =
      MakeTensors(manifest, static_cast<uint64_t>(absl::GetFlag(FLAGS_rank)));
  std::vector<MutableTensorView> parameter_views;
  for (std::vector<float>& values : parameters) {
    parameter_views.emplace_back(absl::MakeSpan(values));
  }
  const std::vector<TensorView> gradient_views(gradient.begin(),
                                               gradient.end());
  const absl::Status seeded = (*client)->SeedOrPull(parameter_views);
  if (!seeded.ok()) return seeded;
  const bool in_place = FindTransport(absl::GetFlag(FLAGS_transport))->in_place;
  if (!in_place) {
    return RunRounds(client->get(), *barrier, false, gradient_views,
                     parameter_views);
  }
  const absl::StatusOr<std::vector<TensorView>> row =
      PutInPlace(client->get(), gradient_views);
  if (!row.ok()) return row.status();
  return RunRounds(client->get(), *barrier, true, *row, parameter_views);
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  if (absl::GetFlag(FLAGS_list_transports)) {
    for (const agg::Transport& transport : agg::kTransports) {
      std::puts(transport.name);
    }
    return 0;
  }
  const absl::Status status = agg::Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
