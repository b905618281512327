// Rounds of many small tensors: what the coordinator does by itself, while the
// arithmetic on the rows is next to nothing. Every shard is a process of its
// own, and so are the workers, so that the memory of shard 0's process is the
// coordinator's and its shard's.
//
//   round_scale [--tensors=N] [--elements=N] [--workers=N] [--shards=N]
//               [--rounds=N] [--smoke]
//
// Prints for each rule medians over the rounds, from the round log: the phases
// at the coordinator, and the time from one round's end to the next one's,
// which includes pushing and pulling. Then the memory: the largest resident
// size of shard 0 and of shard 1, and what each had planned. All processes
// share this host's CPUs. --smoke: small and short.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "proto/round_log.pb.h"
#include "proto/shard_plan.h"
#include "server/base/log.h"
#include "server/base/process_memory.h"
#include "server/config/config_text.h"
#include "server/config/options.h"
#include "server/round_log/record_file.h"
#include "server/server.h"
#include "tests/bench/process_numbers.h"
#include "tests/e2e/loopback_job.h"
#include "worker_client/agg_client.h"

namespace agg {
namespace {

struct Flags {
  int tensors = 10000;
  int elements = 16;  // of each tensor
  int workers = 64;
  int shards = 4;
  int rounds = 7;
};

bool ParseFlags(int argc, char** argv, Flags* flags) {
  for (int i = 1; i < argc; ++i) {
    if (absl::string_view(argv[i]) == "--smoke") {
      *flags = {40, 4, 3, 2, 2};
      continue;
    }
    const std::vector<absl::string_view> parts = absl::StrSplit(argv[i], '=');
    int value = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &value) || value < 1) {
      return false;
    }
    if (parts[0] == "--tensors") {
      flags->tensors = value;
    } else if (parts[0] == "--elements") {
      flags->elements = value;
    } else if (parts[0] == "--workers") {
      flags->workers = value;
    } else if (parts[0] == "--shards") {
      flags->shards = value;
    } else if (parts[0] == "--rounds") {
      flags->rounds = value;
    } else {
      return false;
    }
  }
  return true;
}

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::_Exit(1);
}

// A child that ends with this process. gRPC must not have run before.
template <typename Body>
pid_t Fork(const Body& body) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) Die("fork failed");
  if (child > 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  body();
  std::fflush(stdout);
  std::_Exit(0);
}

struct Job {
  Flags flags;
  std::string rule;
  std::string scope;
  std::string folder;
  std::vector<int> ports;  // of the shards
};

Manifest MakeManifest(const Job& job) {
  return ShapedManifest(std::vector<std::vector<int64_t>>(
      static_cast<size_t>(job.flags.tensors), {job.flags.elements}));
}

std::string Address(const Job& job, int ordinal) {
  return absl::StrCat("127.0.0.1:", job.ports[ordinal]);
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The medians over the rounds of the log but the first, in milliseconds.
void PrintRounds(const Job& job) {
  absl::StatusOr<RecordReader> reader =
      RecordReader::Open(absl::StrCat(job.folder, "/rounds"));
  if (!reader.ok()) Die(reader.status().ToString());
  std::vector<double> gram, decide, step, period;
  double last = 0;
  for (v1::RoundLogRecord record; *reader->Next(&record); record.Clear()) {
    if (record.round() > 0) {
      const v1::LoggedPhases& phases = record.phases();
      gram.push_back(1e3 * phases.gram());
      decide.push_back(1e3 * phases.decide());
      step.push_back(1e3 * (phases.update() + phases.publish()));
      period.push_back(1e3 * (record.finished_at_seconds() - last));
    }
    last = record.finished_at_seconds();
  }
  std::printf(
      "%-8s %-10s  gram %7.1f ms  decide %7.1f ms  update and publish %7.1f ms"
      "  round to round %8.1f ms\n",
      job.rule.c_str(), job.scope.c_str(), Median(gram), Median(decide),
      Median(step), Median(period));
}

// One shard until SIGTERM; ordinal 0 prints the rounds.
void RunShard(const Job& job, int ordinal) {
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigprocmask(SIG_BLOCK, &term, nullptr);
  std::string text =
      absl::StrCat("workers: ", job.flags.workers, " combination { rule: \"",
                   job.rule, "\" scope: \"", job.scope,
                   "\" } learning_rate { rate: 1e-3 }", " round_log { path: \"",
                   job.folder, "/rounds\" }", " replication: \"none\"");
  for (int i = 0; i < job.flags.shards; ++i) {
    absl::StrAppend(&text, " shards: \"", Address(job, i), "\"");
  }
  const auto config = ParseJobConfig(text, "round_scale");
  if (!config.ok()) Die(config.status().ToString());
  const auto options = MakeServerOptions(WithDefaults(*config));
  if (!options.ok()) Die(options.status().ToString());
  StartOptions start;
  start.make_backend = FactoryBackends();
  start.ordinal = ordinal;
  start.metrics_port = 0;
  auto server = Server::Start(*options, start);
  if (!server.ok()) Die(server.status().ToString());
  int signal = 0;
  sigwait(&term, &signal);
  const double planned =
      Metric((*server)->metrics_port(), "aggserver_memory_planned_bytes{");
  server->reset();  // writes what is left of the log
  if (ordinal == 0) PrintRounds(job);
  if (ordinal > 1) return;
  std::printf("%21sshard %d: %.0f MiB resident at most, %.0f MiB planned\n", "",
              ordinal, Mebibytes("VmHWM:"), planned / 1048576);
}

void RunTeam(const Job& job) {
  const Manifest manifest = MakeManifest(job);
  RunWorkers(job.flags.workers, [&](int rank) {
    ClientOptions options;
    options.coordinator = Address(job, 0);
    options.rank = rank;
    options.manifest = manifest;
    auto client = AggClient::Connect(options);
    if (!client.ok()) Die(client.status().ToString());
    HostTensors parameters = MakeTensors(manifest, 7);
    const HostTensors gradient =
        MakeTensors(manifest, 100 + static_cast<uint64_t>(rank));
    absl::Status status = (*client)->SeedOrPull(MutableViews(&parameters));
    for (int r = 0; status.ok() && r <= job.flags.rounds; ++r) {
      status = (*client)
                   ->PushPull(Views(gradient), {}, MutableViews(&parameters))
                   .status();
    }
    if (!status.ok()) Die(status.ToString());
  });
}

bool RunJob(const Flags& flags, const std::string& rule,
            const std::string& scope) {
  char folder[] = "/tmp/round_scale_XXXXXX";
  if (mkdtemp(folder) == nullptr) Die("mkdtemp failed");
  const Job job{flags, rule, scope, folder, FreePorts(flags.shards)};
  std::vector<pid_t> shards;
  for (int i = 0; i < flags.shards; ++i) {
    shards.push_back(Fork([&] { RunShard(job, i); }));
  }
  const pid_t team = Fork([&] { RunTeam(job); });
  int status = 0;
  waitpid(team, &status, 0);
  bool ok = status == 0;
  for (const pid_t shard : shards) {  // shard 0 first: it prints first
    kill(shard, SIGTERM);
    waitpid(shard, &status, 0);
    ok = ok && status == 0;
  }
  unlink(absl::StrCat(folder, "/rounds").c_str());
  rmdir(folder);
  return ok;
}

int Main(int argc, char** argv) {
  Flags flags;
  if (!ParseFlags(argc, argv, &flags)) {
    std::fprintf(stderr,
                 "usage: round_scale [--tensors=N] [--elements=N] "
                 "[--workers=N] [--shards=N] [--rounds=N] [--smoke]\n");
    return 2;
  }
  SetLogLevel(LogLevel::kError);
  TuneMalloc();  // as agg_server does, and workers that ask for it
  std::printf("%d tensors of %d elements, %d workers, %d shards, %d rounds\n",
              flags.tensors, flags.elements, flags.workers, flags.shards,
              flags.rounds);
  const bool ok = RunJob(flags, "mean", "per_tensor") &&
                  RunJob(flags, "adasum", "per_tensor") &&
                  RunJob(flags, "adacons", "per_tensor");
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) { return agg::Main(argc, argv); }
