// Whole rounds through real servers and clients on loopback: push, combine,
// step, pull. Two jobs that differ in one thing take turns, round by round:
// rounds with early Grams (of a slice as soon as its rows are complete) and
// without; with --replication=buddy, jobs without and with second copies of
// the parts; with --checkpoint, jobs without and with checkpoints; with
// --transport, workers over TCP and over Unix sockets; with --tls, workers over
// TCP without and with mutual TLS.
//
//   round_loopback [--backend=cpu|cuda] [--workers=N] [--shards=N]
//                  [--mebi_elements=N] [--rounds=N] [--optimizer=NAME]
//                  [--replication=none|buddy]
//                  [--checkpoint=FOLDER] [--checkpoint_every_rounds=N]
//                  [--transport] [--tls] [--smoke] [--json=FILE]
//
// Medians by the wall clock, from the first push to the last pulled parameter,
// after one round to warm up. Workers and shards share this host's CPUs: a
// ratio of two of these numbers means more than any of them. Exits with 0 and
// says so where the backend's device is missing. --smoke: small and short.
//
// Memory: by how much this process grew (workers included), and what all
// shards plan. What two jobs differ by is the servers'.
#include <algorithm>
#include <chrono>  // NOLINT
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/backend_factory.h"
#include "nlohmann/json.hpp"
#include "server/base/log.h"
#include "server/base/process_memory.h"
#include "server/config/options.h"
#include "server/server.h"
#include "tests/bench/bench_file.h"
#include "tests/bench/process_numbers.h"
#include "tests/e2e/loopback_job.h"
#include "tests/server/tls/test_certificates.h"
#include "worker_client/agg_client.h"

namespace agg {
namespace {

constexpr double kMebi = 1048576;
constexpr char kUsage[] =
    "usage: round_loopback [--backend=cpu|cuda] [--workers=N] [--shards=N] "
    "[--mebi_elements=N] [--rounds=N] [--optimizer=NAME] "
    "[--replication=none|buddy] [--checkpoint=FOLDER] "
    "[--checkpoint_every_rounds=N] [--transport] [--tls] [--smoke] "
    "[--json=FILE]\n";

struct Flags {
  std::string backend = "cpu";
  int workers = 4;
  int shards = 1;
  int mebi_elements = 16;
  int rounds = 9;
  std::string optimizer = "sgd";
  std::string replication = "none";
  std::string checkpoint;  // "": none
  int checkpoint_every_rounds = 3;
  std::string json;  // "": no file
  bool compares_transports = false;
  const TestCa* compares_tls = nullptr;

  // Of the two jobs that take turns.
  bool compares_replication() const { return replication != "none"; }
  bool compares_checkpoints() const { return !checkpoint.empty(); }
};

// --name=N, N >= 1.
bool ParseNumber(absl::string_view flag, Flags* flags) {
  const std::vector<absl::string_view> parts = absl::StrSplit(flag, '=');
  int value = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &value) || value < 1) {
    return false;
  }
  const struct {
    absl::string_view name;
    int* to;
  } numbers[] = {
      {"--workers", &flags->workers},
      {"--shards", &flags->shards},
      {"--mebi_elements", &flags->mebi_elements},
      {"--rounds", &flags->rounds},
      {"--checkpoint_every_rounds", &flags->checkpoint_every_rounds}};
  for (const auto& number : numbers) {
    if (parts[0] != number.name) continue;
    *number.to = value;
    return true;
  }
  return false;
}

// Until the end of the process, as the jobs that use it.
const TestCa* TheCa() {
  static TestCa ca;
  ca.Issue("both");
  return &ca;
}

bool ParseFlags(int argc, char** argv, Flags* flags) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view flag = argv[i];
    if (flag == "--smoke") {
      flags->mebi_elements = 1;
      flags->rounds = 2;
    } else if (flag == "--transport") {
      flags->compares_transports = true;
    } else if (flag == "--tls") {
      flags->compares_tls = TheCa();
    } else if (absl::ConsumePrefix(&flag, "--backend=")) {
      flags->backend = std::string(flag);
    } else if (absl::ConsumePrefix(&flag, "--optimizer=")) {
      flags->optimizer = std::string(flag);
    } else if (absl::ConsumePrefix(&flag, "--replication=")) {
      flags->replication = std::string(flag);
    } else if (absl::ConsumePrefix(&flag, "--checkpoint=")) {
      flags->checkpoint = std::string(flag);
    } else if (absl::ConsumePrefix(&flag, "--json=")) {
      flags->json = std::string(flag);
    } else if (!ParseNumber(flag, flags)) {
      return false;
    }
  }
  return flags->replication == "none" || flags->replication == "buddy";
}

// In what one of the two jobs differs from the other.
struct Variant {
  std::string name;
  bool early_gram = true;
  bool replicated = false;
  bool checkpoints = false;
  bool local_sockets = true;
  bool tls = false;
};

std::string ConfigText(const Flags& flags, const Variant& variant) {
  std::string text =
      absl::StrCat("workers: ", flags.workers, " backend: \"", flags.backend,
                   "\" combination { rule: \"adasum\" } optimizer { kind: \"",
                   flags.optimizer, "\" } learning_rate { rate: 1e-3 }");
  absl::StrAppend(&text, " replication: \"",
                  variant.replicated ? "buddy" : "none", "\"");
  if (variant.checkpoints) {
    absl::StrAppend(&text, " checkpoint { path: \"", flags.checkpoint,
                    "\" every_rounds: ", flags.checkpoint_every_rounds,
                    " restore: \"none\" }");
  }
  if (variant.tls) {
    const TlsFiles files = flags.compares_tls->files("both");
    absl::StrAppend(&text, " security { tls { certificate: \"",
                    files.certificate, "\" key: \"", files.key,
                    "\" client_ca: \"", files.ca, "\" } }");
  }
  return text;
}

// One job and its workers, who step together.
class Team {
 public:
  Team(const Flags& flags, const Variant& variant)
      : manifest_(ShapedManifest({{flags.mebi_elements, 1 << 20}})),
        metrics_ports_(FreePorts(flags.shards)),
        resident_before_(Mebibytes("VmRSS:")),
        job_(flags.shards, ConfigText(flags, variant), FactoryBackends(),
             [this, &variant, next = flags.shards](ServerOptions* o) mutable {
               o->shard.early_gram = variant.early_gram;
               o->metrics.port = metrics_ports_[--next];
             }),
        tls_(variant.tls ? flags.compares_tls->options("both") : TlsOptions()),
        clients_(flags.workers),
        parameters_(flags.workers) {
    RunWorkers(flags.workers, [&](int rank) {
      clients_[rank] = Connect(rank, variant.local_sockets);
      parameters_[rank] = MakeTensors(manifest_, 7);
      Must(clients_[rank]->SeedOrPull(MutableViews(&parameters_[rank])));
    });
    for (int rank = 0; rank < flags.workers; ++rank) {
      gradients_.push_back(
          MakeTensors(manifest_, 100 + static_cast<uint64_t>(rank)));
    }
    Step();  // to warm up: round 0
    resident_ = Mebibytes("VmRSS:") - resident_before_;
    for (const int port : metrics_ports_) {
      planned_ += Metric(port, "aggserver_memory_planned_bytes{") / kMebi;
    }
  }

  // Runs one round, and keeps how long it took.
  void Step() {
    const auto start = std::chrono::steady_clock::now();
    RunWorkers(static_cast<int>(clients_.size()), [&](int rank) {
      Must(clients_[rank]
               ->PushPull(Views(gradients_[rank]), {},
                          MutableViews(&parameters_[rank]))
               .status());
    });
    seconds_.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count());
  }

  // By round, from 0 on: that one is the first.
  const std::vector<double>& seconds() const { return seconds_; }
  double resident() const { return resident_; }  // MiB, after one round
  double planned() const { return planned_; }    // MiB, of all shards

 private:
  std::unique_ptr<AggClient> Connect(int rank, bool local_sockets) const {
    ClientOptions options = job_.Options(rank, manifest_);
    options.local_sockets = local_sockets;
    options.tls = tls_;
    auto client = AggClient::Connect(options);
    Must(client.status());
    return *std::move(client);
  }

  static void Must(const absl::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::exit(1);
  }

  const Manifest manifest_;
  const std::vector<int> metrics_ports_;
  const double resident_before_;
  LoopbackJob job_;
  const TlsOptions tls_;
  std::vector<std::unique_ptr<AggClient>> clients_;
  std::vector<HostTensors> parameters_;
  std::vector<HostTensors> gradients_;
  std::vector<double> seconds_;
  double resident_ = 0;
  double planned_ = 0;
};

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Of all rounds but the first.
std::vector<double> Measured(const Team& team) {
  return {team.seconds().begin() + 1, team.seconds().end()};
}

void ReportTeam(const Flags& flags, const Variant& variant, const Team& team,
                BenchFile* file) {
  // Each worker sends a row and gets a snapshot.
  const double bytes = 2.0 * 4.0 * flags.workers * flags.mebi_elements * kMebi;
  const double median = Median(Measured(team));
  std::printf(
      "  %-20s %9.1f ms  %5.2f GB/s pushed and pulled  %6.0f MiB resident  "
      "%6.0f MiB planned\n",
      variant.name.c_str(), median * 1e3, bytes / median * 1e-9,
      team.resident(), team.planned());
  file->Append("variants", {{"name", variant.name},
                            {"round_s", SpreadOf(Measured(team))},
                            {"gb_per_s", RoundedNumber(bytes / median * 1e-9)},
                            {"resident_mib", RoundedNumber(team.resident())},
                            {"planned_mib", RoundedNumber(team.planned())}});
}

double ReportRatio(const Variant (&variants)[2], const Team& first,
                   const Team& second, BenchFile* file) {
  std::vector<double> ratios;
  for (size_t r = 1; r < first.seconds().size(); ++r) {
    ratios.push_back(second.seconds()[r] / first.seconds()[r]);
  }
  std::printf(
      "  %s / %s: %.3f (median of the rounds' ratios), memory %+.0f MiB, "
      "planned %+.0f MiB\n",
      variants[1].name.c_str(), variants[0].name.c_str(), Median(ratios),
      second.resident() - first.resident(), second.planned() - first.planned());
  file->Set("ratio", SpreadOf(ratios));
  return Median(ratios);
}

// What the second copies may cost (proto/README.md).
void PrintBound(const Flags& flags, double ratio) {
  // A combined gradient of float32 beside P rows of it.
  const double share = 4.0 / (flags.workers * 4.0);
  std::printf(
      "  between shards: %.1f MB a round, %.3f of the rows; bound of the time "
      "%.3f: %s\n",
      4 * flags.mebi_elements * kMebi * 1e-6, share, 1 + share + 0.05,
      ratio <= 1 + share + 0.05 ? "kept" : "NOT KEPT");
}

// The round behind a version with a checkpoint waits for the copy.
void PrintPause(const Flags& flags, const Team& team) {
  std::vector<double> with, without;
  for (size_t r = 1; r < team.seconds().size(); ++r) {
    const bool copies = r % flags.checkpoint_every_rounds == 0;
    (copies ? with : without).push_back(team.seconds()[r]);
  }
  std::printf(
      "  rounds behind a capture %.1f ms (%d of them), others %.1f ms: a pause "
      "of %.1f ms\n",
      Median(with) * 1e3, static_cast<int>(with.size()), Median(without) * 1e3,
      without.empty() ? 0.0 : (Median(with) - Median(without)) * 1e3);
}

void Compare(const Flags& flags, const Variant (&variants)[2],
             BenchFile* file) {
  Team first(flags, variants[0]);
  Team second(flags, variants[1]);
  for (int round = 0; round < flags.rounds; ++round) {
    first.Step();
    second.Step();
  }
  ReportTeam(flags, variants[0], first, file);
  ReportTeam(flags, variants[1], second, file);
  const double ratio = ReportRatio(variants, first, second, file);
  if (variants[0].replicated != variants[1].replicated) {
    PrintBound(flags, ratio);
  }
  if (variants[1].checkpoints) PrintPause(flags, second);
}

int Main(int argc, char** argv) {
  Flags flags;
  if (!ParseFlags(argc, argv, &flags)) {
    std::fprintf(stderr, kUsage);
    return 2;
  }
  const auto backend = MakeBackend(flags.backend, BackendOptions());
  if (!backend.ok()) {
    std::printf("SKIPPED: %s\n",
                std::string(backend.status().message()).c_str());
    return 0;
  }
  SetLogLevel(LogLevel::kError);
  TuneMalloc();  // as agg_server does, and workers that ask for it
  std::printf(
      "%s\n%d workers, %d shards, %d Mi float32 parameters, adasum, %s, "
      "%d rounds\n",
      (*backend)->description().c_str(), flags.workers, flags.shards,
      flags.mebi_elements, flags.optimizer.c_str(), flags.rounds);
  BenchFile file("round_loopback", flags.json);
  file.Set("backend", (*backend)->description());
  file.Set("workers", flags.workers);
  file.Set("shards", flags.shards);
  file.Set("elements", flags.mebi_elements * int64_t{1 << 20});
  file.Set("optimizer", flags.optimizer);
  file.Set("rounds", flags.rounds);
  const bool replicated = flags.compares_replication();
  const auto over = [&](const char* name, bool local_sockets) {
    return Variant{name, true, replicated, false, local_sockets};
  };
  if (flags.compares_checkpoints()) {
    Compare(flags,
            {{"no checkpoints", true, replicated, false},
             {"checkpoints", true, replicated, true}},
            &file);
  } else if (flags.compares_transports) {
    Compare(flags, {over("TCP", false), over("Unix sockets", true)}, &file);
  } else if (flags.compares_tls != nullptr) {
    Variant with_tls = over("TCP, mutual TLS", false);
    with_tls.tls = true;
    Compare(flags, {over("TCP", false), with_tls}, &file);
  } else if (replicated) {
    Compare(
        flags,
        {{"one copy", true, false, false}, {"two copies", true, true, false}},
        &file);
  } else {
    Compare(flags,
            {{"Grams at the close", false, false, false},
             {"Grams early", true, false, false}},
            &file);
  }
  file.Finish();
  return 0;
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) { return agg::Main(argc, argv); }
