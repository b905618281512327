#include "server/rpc/flow_windows.h"

#include "absl/strings/strip.h"
#include "server/base/address.h"

namespace agg {

bool WindowsGrow(bool pipelined, absl::string_view listen) {
  absl::string_view host = listen.substr(0, listen.rfind(':'));
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  return pipelined || !IsLoopback(host);
}

}  // namespace agg
