// Any bytes from another process on the socket of shared memory: closed, or
// answered with a reply that has just the descriptors that it names.
#include <google/protobuf/stubs/logging.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "proto/region.pb.h"
#include "server/base/local_socket.h"
#include "server/rpc/region_server.h"
#include "tests/server/round/local_cluster.h"

namespace {

// A job with one worker, rank 0, and version 0.
struct Job {
  Job()
      : manifest(agg::MakeManifest({{3}, {2, 2}})),
        running(Options(), manifest, /*num_workers=*/1),
        name(agg::RegionSocketName(static_cast<uint64_t>(getpid()))),
        server(*agg::RegionServer::Start(
            name, [this](const agg::RegionQuery& query) {
              return running.cluster.engine(0)->GrantRegions(query);
            })) {
    google::protobuf::SetLogHandler(nullptr);
  }
  static agg::ClusterOptions Options() {
    agg::ClusterOptions options = agg::MakeClusterOptions(1, 1);
    options.shard.shared_memory = true;
    return options;
  }

  const agg::Manifest manifest;
  agg::RunningJob running;
  const std::string name;
  const std::unique_ptr<agg::RegionServer> server;
};

}  // namespace

// The first byte says into how many pieces the others are cut, whether their
// number goes in front of them, and whether they are a request that names the
// worker and the shard as they are.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Job* const job = new Job();
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  agg::v1::RegionRequest request;
  if ((data[0] & 16) != 0 && request.ParseFromString(bytes)) {
    request.set_session(job->running.workers[0].session());
    request.set_life(job->running.cluster.engine(0)->life());
    bytes = request.SerializeAsString();
  }
  if (data[0] % 2 == 0) {
    const uint32_t length = static_cast<uint32_t>(bytes.size());
    bytes.insert(0, {static_cast<char>(length), static_cast<char>(length >> 8),
                     static_cast<char>(length >> 16), 0});
  }
  const auto socket = agg::ConnectLocally(job->name);
  if (!socket.ok()) __builtin_trap();
  const size_t piece =
      std::max<size_t>(1, bytes.size() / (data[0] / 2 % 4 + 1));
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const size_t count = std::min(piece, bytes.size() - at);
    // The server may have closed it by now.
    if (send(socket->get(), bytes.data() + at, count, MSG_NOSIGNAL) < 0) break;
  }
  shutdown(socket->get(), SHUT_WR);
  const auto reply =
      agg::ReceiveMessage(socket->get(), size_t{8} << 20, absl::Seconds(30));
  if (!reply.ok()) {
    if (absl::IsDeadlineExceeded(reply.status())) __builtin_trap();
    return 0;
  }
  agg::v1::RegionReply message;
  if (!message.ParseFromString(reply->bytes)) __builtin_trap();
  const size_t named = message.has_row() + message.versions_size();
  if (reply->descriptors.size() != named) __builtin_trap();
  if (message.code() != 0 && named != 0) __builtin_trap();
  return 0;
}
