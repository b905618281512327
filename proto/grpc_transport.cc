// The first call takes a reference to gRPC that is never given back.
#include "proto/grpc_transport.h"

#include <grpc/grpc.h>

namespace agg {

void KeepGrpcInitialized() {
  static const bool initialized = [] {
    grpc_init();  // never matched by grpc_shutdown()
    return true;
  }();
  static_cast<void>(initialized);
}

}  // namespace agg
