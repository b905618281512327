// Whole rounds through real servers and clients on loopback: push, combine,
// step, pull. Rounds with early Grams (of a slice as soon as its rows are
// complete) and without take turns.
//
//   round_loopback [--backend=cpu|cuda] [--workers=N] [--shards=N]
//                  [--mebi_elements=N] [--rounds=N] [--smoke]
//
// Medians by the wall clock, from the first push to the last pulled parameter,
// after one round to warm up. Workers and shards share this host's CPUs: a
// ratio of two of these numbers means more than any of them. Exits with 0 and
// says so where the backend's device is missing. --smoke: small and short.
#include <algorithm>
#include <chrono>  // NOLINT
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/backend_factory.h"
#include "server/base/log.h"
#include "tests/e2e/loopback_job.h"

namespace agg {
namespace {

struct Flags {
  std::string backend = "cpu";
  int workers = 4;
  int shards = 1;
  int mebi_elements = 16;
  int rounds = 9;
};

bool ParseFlags(int argc, char** argv, Flags* flags) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view flag = argv[i];
    if (flag == "--smoke") {
      flags->mebi_elements = 1;
      flags->rounds = 1;
      continue;
    }
    if (absl::ConsumePrefix(&flag, "--backend=")) {
      flags->backend = std::string(flag);
      continue;
    }
    const std::vector<absl::string_view> parts = absl::StrSplit(flag, '=');
    int value = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &value) || value < 1) {
      return false;
    }
    if (parts[0] == "--workers") {
      flags->workers = value;
    } else if (parts[0] == "--shards") {
      flags->shards = value;
    } else if (parts[0] == "--mebi_elements") {
      flags->mebi_elements = value;
    } else if (parts[0] == "--rounds") {
      flags->rounds = value;
    } else {
      return false;
    }
  }
  return true;
}

// One job and its workers, who step together.
class Team {
 public:
  Team(const Flags& flags, bool early_gram)
      : manifest_(ShapedManifest({{flags.mebi_elements, 1 << 20}})),
        job_(flags.shards,
             absl::StrCat("workers: ", flags.workers, " backend: \"",
                          flags.backend,
                          "\" combination { rule: \"adasum\" } "
                          "learning_rate { rate: 1e-3 }"),
             FactoryBackends(),
             [early_gram](ServerOptions* options) {
               options->shard.early_gram = early_gram;
             }),
        clients_(flags.workers),
        parameters_(flags.workers) {
    RunWorkers(flags.workers, [&](int rank) {
      clients_[rank] = job_.Connect(rank, manifest_);
      parameters_[rank] = MakeTensors(manifest_, 7);
      Must(clients_[rank]->SeedOrPull(MutableViews(&parameters_[rank])));
    });
    for (int rank = 0; rank < flags.workers; ++rank) {
      gradients_.push_back(
          MakeTensors(manifest_, 100 + static_cast<uint64_t>(rank)));
    }
  }

  // Seconds of one round.
  double Step() {
    const auto start = std::chrono::steady_clock::now();
    RunWorkers(static_cast<int>(clients_.size()), [&](int rank) {
      Must(clients_[rank]
               ->PushPull(Views(gradients_[rank]), {},
                          MutableViews(&parameters_[rank]))
               .status());
    });
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         start)
        .count();
  }

 private:
  static void Must(const absl::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::exit(1);
  }

  const Manifest manifest_;
  LoopbackJob job_;
  std::vector<std::unique_ptr<AggClient>> clients_;
  std::vector<HostTensors> parameters_;
  std::vector<HostTensors> gradients_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Main(int argc, char** argv) {
  Flags flags;
  if (!ParseFlags(argc, argv, &flags)) {
    std::fprintf(stderr,
                 "usage: round_loopback [--backend=cpu|cuda] [--workers=N] "
                 "[--shards=N] [--mebi_elements=N] [--rounds=N] [--smoke]\n");
    return 2;
  }
  const auto backend = MakeBackend(flags.backend, BackendOptions());
  if (!backend.ok()) {
    std::printf("SKIPPED: %s\n",
                std::string(backend.status().message()).c_str());
    return 0;
  }
  SetLogLevel(LogLevel::kError);
  std::printf(
      "%s\n%d workers, %d shards, %d Mi float32 parameters, adasum, sgd, "
      "%d rounds\n",
      (*backend)->description().c_str(), flags.workers, flags.shards,
      flags.mebi_elements, flags.rounds);
  Team late(flags, /*early_gram=*/false);
  Team early(flags, /*early_gram=*/true);
  std::vector<double> late_seconds, early_seconds, ratios;
  for (int round = 0; round <= flags.rounds; ++round) {
    const double late_round = late.Step();
    const double early_round = early.Step();
    if (round == 0) continue;
    late_seconds.push_back(late_round);
    early_seconds.push_back(early_round);
    ratios.push_back(early_round / late_round);
  }
  // Each worker sends a row and gets a snapshot.
  const double bytes =
      2.0 * 4.0 * flags.workers * flags.mebi_elements * 1048576;
  std::printf(
      "  Grams at the close  %9.1f ms  %5.2f GB/s pushed and pulled\n"
      "  Grams early         %9.1f ms  %5.2f GB/s\n"
      "  early / at the close %.3f (median of the rounds' ratios)\n",
      Median(late_seconds) * 1e3, bytes / Median(late_seconds) * 1e-9,
      Median(early_seconds) * 1e3, bytes / Median(early_seconds) * 1e-9,
      Median(ratios));
  return 0;
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) { return agg::Main(argc, argv); }
