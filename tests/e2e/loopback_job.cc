#include "tests/e2e/loopback_job.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "server/config/config_text.h"
#include "server/config/options.h"
#include "tests/server/status/http_get.h"

namespace agg {

std::vector<int> FreePorts(int number) {
  std::vector<int> fds, ports;
  for (int i = 0; i < number; ++i) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    fds.push_back(socket(AF_INET, SOCK_STREAM, 0));
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(fds.back(), generic, sizeof(address)) != 0 ||
        getsockname(fds.back(), generic, &length) != 0) {
      std::fprintf(stderr, "no free port\n");
      std::_Exit(1);
    }
    ports.push_back(ntohs(address.sin_port));
  }
  for (const int fd : fds) close(fd);
  return ports;
}

double EndedCalls(int metrics_port, const std::string& method) {
  for (absl::string_view line :
       absl::StrSplit(Get(metrics_port, "/metrics"), '\n')) {
    if (absl::StartsWith(line, "aggserver_grpc_calls_total{") &&
        absl::StrContains(line, absl::StrCat("agg.v1.", method, "\"")) &&
        absl::StrContains(line, "\"OK\"")) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      return std::stod(words.back());
    }
  }
  return 0;
}

namespace {

ServerOptions ParseOptions(const std::string& text) {
  absl::StatusOr<v1::JobConfig> config = ParseJobConfig(text, "test");
  EXPECT_TRUE(config.ok()) << config.status();
  if (!config.ok()) return {};
  absl::StatusOr<ServerOptions> options =
      MakeServerOptions(WithDefaults(*config));
  EXPECT_TRUE(options.ok()) << options.status();
  return options.ok() ? *options : ServerOptions();
}

// The config with the shards' addresses, as far as they are known.
std::string WithAddresses(std::string config,
                          const std::vector<std::string>& addresses) {
  for (size_t i = 0; i < addresses.size(); ++i) {
    absl::StrAppend(
        &config, "\nshards: \"",
        addresses[i].empty() ? absl::StrCat("127.0.0.1:", 1 + i) : addresses[i],
        "\"");
  }
  return config;
}

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

Manifest ShapedManifest(const std::vector<std::vector<int64_t>>& shapes) {
  Manifest manifest;
  for (size_t t = 0; t < shapes.size(); ++t) {
    manifest.tensors.push_back({absl::StrCat("t", t), shapes[t], "", false});
  }
  return manifest;
}

HostTensors MakeTensors(const Manifest& manifest, uint64_t stream) {
  HostTensors tensors;
  uint64_t counter = Mix(stream);
  for (const TensorSpec& spec : manifest.tensors) {
    std::vector<float> values(static_cast<size_t>(NumElements(spec)));
    for (float& value : values) {
      value = static_cast<float>(static_cast<int64_t>(Mix(++counter) >> 40) -
                                 (1 << 23)) /
              (1 << 23);
    }
    tensors.push_back(std::move(values));
  }
  return tensors;
}

std::vector<TensorView> Views(const HostTensors& tensors) {
  return std::vector<TensorView>(tensors.begin(), tensors.end());
}

std::vector<MutableTensorView> MutableViews(HostTensors* tensors) {
  std::vector<MutableTensorView> views;
  for (std::vector<float>& values : *tensors) {
    views.emplace_back(absl::MakeSpan(values));
  }
  return views;
}

LoopbackJob::LoopbackJob(int num_shards, const std::string& config,
                         const BackendMaker& make_backend,
                         const std::function<void(ServerOptions*)>& edit)
    : config_(config),
      make_backend_(make_backend),
      edit_(edit),
      device_lost_(num_shards),
      servers_(num_shards),
      addresses_(num_shards) {
  // Shards that call each other need the addresses from the beginning. Else
  // ports are not known before they are taken: shards above 0 do not read the
  // addresses, shard 0 starts last and gets the real ones.
  std::vector<int> ports(num_shards, 0);
  if (ParseOptions(WithAddresses(config, addresses_)).shard.replicated) {
    ports = FreePorts(num_shards);
    for (int i = 0; i < num_shards; ++i) {
      addresses_[i] = absl::StrCat("127.0.0.1:", ports[i]);
    }
  }
  for (int ordinal = num_shards - 1; ordinal >= 0; --ordinal) {
    device_lost_[ordinal] = std::make_unique<std::atomic<bool>>(false);
    Start(ordinal, ports[ordinal]);
    if (servers_[ordinal] == nullptr) return;
  }
  coordinator_ = addresses_[0];
}

void LoopbackJob::Start(int ordinal, int port) {
  StartOptions start;
  start.make_backend = make_backend_;
  start.ordinal = ordinal;
  start.port = port;
  start.on_device_lost = [lost = device_lost_[ordinal].get()](
                             const absl::Status&) { *lost = true; };
  ServerOptions options = ParseOptions(WithAddresses(config_, addresses_));
  if (edit_ != nullptr) edit_(&options);
  absl::StatusOr<std::unique_ptr<Server>> server =
      Server::Start(options, start);
  ASSERT_TRUE(server.ok()) << server.status();
  servers_[ordinal] = *std::move(server);
  addresses_[ordinal] = absl::StrCat("127.0.0.1:", servers_[ordinal]->port());
}

void LoopbackJob::StartAgain(int ordinal) {
  const std::string& address = addresses_[ordinal];
  int port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  Start(ordinal, port);
}

LoopbackJob::~LoopbackJob() {
  for (auto server = servers_.rbegin(); server != servers_.rend(); ++server) {
    server->reset();
  }
}

void LoopbackJob::Stop(int ordinal) { servers_[ordinal].reset(); }

ClientOptions LoopbackJob::Options(int rank, const Manifest& manifest) const {
  ClientOptions options;
  options.coordinator = coordinator_;
  options.rank = rank;
  options.manifest = manifest;
  // A shard that is stopped here does not come back.
  options.recovery_window = absl::ZeroDuration();
  return options;
}

std::unique_ptr<AggClient> LoopbackJob::Connect(
    int rank, const Manifest& manifest) const {
  absl::StatusOr<std::unique_ptr<AggClient>> client =
      AggClient::Connect(Options(rank, manifest));
  EXPECT_TRUE(client.ok()) << client.status();
  return client.ok() ? *std::move(client) : nullptr;
}

std::unique_ptr<AggClient> LoopbackJob::Observe() const {
  ClientOptions options;
  options.coordinator = coordinator_;
  options.observer = true;
  absl::StatusOr<std::unique_ptr<AggClient>> client =
      AggClient::Connect(options);
  EXPECT_TRUE(client.ok()) << client.status();
  return client.ok() ? *std::move(client) : nullptr;
}

HostTensors LoopbackJob::Parameters(const Manifest& manifest) const {
  HostTensors parameters = MakeTensors(manifest, 999);
  const std::unique_ptr<AggClient> observer = Observe();
  if (observer == nullptr) return {};
  const absl::StatusOr<uint64_t> version =
      observer->PullLatest(MutableViews(&parameters), Precision::kFull);
  EXPECT_TRUE(version.ok()) << version.status();
  return parameters;
}

void RunWorkers(int num_workers, const std::function<void(int)>& worker) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_workers; ++rank) {
    threads.emplace_back([&worker, rank] { worker(rank); });
  }
  for (std::thread& thread : threads) thread.join();
}

RoundOutcome Train(const LoopbackJob& job, const Manifest& manifest,
                   int num_workers, int num_rounds) {
  RoundOutcome last;
  // Nobody leaves before all are done: the last leave would end the job.
  std::vector<std::unique_ptr<AggClient>> clients(num_workers);
  RunWorkers(num_workers, [&](int rank) {
    clients[rank] = job.Connect(rank, manifest);
    if (clients[rank] == nullptr) return;
    HostTensors parameters = MakeTensors(manifest, 7);
    absl::Status status = clients[rank]->SeedOrPull(MutableViews(&parameters));
    ASSERT_TRUE(status.ok()) << status;
    for (int round = 0; round < num_rounds; ++round) {
      const HostTensors gradient = MakeTensors(
          manifest, 1000 + static_cast<uint64_t>(round) * 64 + rank);
      PushInfo info;
      info.examples = rank + 1;
      absl::StatusOr<RoundOutcome> outcome = clients[rank]->PushPull(
          Views(gradient), info, MutableViews(&parameters));
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_TRUE(outcome->included);
      if (rank == 0) last = *outcome;
    }
  });
  return last;
}

}  // namespace agg
