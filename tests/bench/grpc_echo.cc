// grpc_echo: what a round trip of bare unary gRPC costs here, with the sizes
// and the number of clients of deploy/bench.sh. No protobuf, no work: bytes
// come and go back.
//
//   grpc_echo --serve --port_file=FILE
//   grpc_echo --server=ADDRESS --bytes=N --workers=P --barrier=FILE
//
// The second form is one of P clients, and speaks as transport_worker does:
// {"ready": true}, and for each line `N` of stdin N calls behind the barrier,
// with a line {"begin": B, "end": E} in nanoseconds of CLOCK_MONOTONIC for
// each.
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/impl/codegen/rpc_method.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "tests/bench/process_barrier.h"

ABSL_FLAG(bool, serve, false, "be the server, until a signal");
ABSL_FLAG(std::string, port_file, "", "of the server: gets its port");
ABSL_FLAG(std::string, server, "", "host:port");
ABSL_FLAG(int64_t, bytes, 4000, "of the request and of the reply");
ABSL_FLAG(int, workers, 1, "how many meet at the barrier");
ABSL_FLAG(std::string, barrier, "", "file of zeros that the clients share");

namespace agg {
namespace {

// Sends back the one message that it gets.
class EchoReactor : public grpc::ServerGenericBidiReactor {
 public:
  EchoReactor() { StartRead(&message_); }
  void OnReadDone(bool ok) override {
    if (ok) {
      StartWriteAndFinish(&message_, {}, grpc::Status::OK);
    } else {
      Finish(grpc::Status::CANCELLED);
    }
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer message_;
};

class EchoService : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext*) override {
    return new EchoReactor();  // Deletes itself.
  }
};

int Serve() {
  EchoService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::ofstream(absl::GetFlag(FLAGS_port_file)) << port << "\n";
  server->Wait();
  return 0;
}

int64_t Nanoseconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{1000000000} * now.tv_sec + now.tv_nsec;
}

grpc::Status Call(grpc::Channel* channel, const grpc::ByteBuffer& request) {
  const grpc::internal::RpcMethod method("/agg.bench.Echo/Echo",
                                         grpc::internal::RpcMethod::NORMAL_RPC);
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  grpc::ByteBuffer reply;
  return grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
      channel, method, &context, request, &reply);
}

int Ask() {
  const auto barrier = MapBarrier(absl::GetFlag(FLAGS_barrier));
  if (!barrier.ok()) {
    std::fprintf(stderr, "%s\n", barrier.status().ToString().c_str());
    return 1;
  }
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(absl::GetFlag(FLAGS_server),
                                grpc::InsecureChannelCredentials(), arguments);
  const grpc::Slice bytes(
      std::string(static_cast<size_t>(absl::GetFlag(FLAGS_bytes)), 'x'));
  const grpc::ByteBuffer request(&bytes, 1);
  grpc::Status status = Call(channel.get(), request);  // connects
  std::puts("{\"ready\": true}");
  std::fflush(stdout);
  int num_rounds = 0;
  while (status.ok() && std::cin >> num_rounds) {
    for (int round = 0; status.ok() && round < num_rounds; ++round) {
      WaitAtBarrier(*barrier, absl::GetFlag(FLAGS_workers));
      const int64_t begin = Nanoseconds();
      status = Call(channel.get(), request);
      const int64_t end = Nanoseconds();
      std::printf("{\"begin\": %lld, \"end\": %lld}\n",
                  static_cast<long long>(begin), static_cast<long long>(end));
      std::fflush(stdout);
    }
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.error_message().c_str());
  return 1;
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return absl::GetFlag(FLAGS_serve) ? agg::Serve() : agg::Ask();
}
