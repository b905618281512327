#include "server/tls/resolve_host.h"

#include <netdb.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/base/mutex.h"

namespace agg {
namespace {

std::atomic<int> lookups{0};

// Shared by who waits and by the thread, which may outlive that one.
struct Lookup {
  Mutex mutex;
  CondVar changed;
  bool done ABSL_GUARDED_BY(mutex) = false;
  std::vector<SocketAddress> found ABSL_GUARDED_BY(mutex);
};

std::vector<SocketAddress> SystemResolve(const Address& address) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(),
                  &hints, &first) != 0) {
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(first,
                                                               &freeaddrinfo);
  std::vector<SocketAddress> found;
  for (const addrinfo* one = first; one != nullptr; one = one->ai_next) {
    SocketAddress copy;
    if (one->ai_addrlen > sizeof(copy.bytes)) continue;
    std::memcpy(&copy.bytes, one->ai_addr, one->ai_addrlen);
    copy.size = one->ai_addrlen;
    found.push_back(copy);
  }
  return found;
}

}  // namespace

std::vector<SocketAddress> ResolveHost(const Address& address,
                                       absl::Time deadline,
                                       const Resolver& resolve) {
  if (lookups.fetch_add(1) >= kMaxLookups) {
    --lookups;
    return {};
  }
  auto lookup = std::make_shared<Lookup>();
  try {
    std::thread([lookup, address, resolve] {
      std::vector<SocketAddress> found =
          resolve == nullptr ? SystemResolve(address) : resolve(address);
      --lookups;
      MutexLock lock(&lookup->mutex);
      lookup->found = std::move(found);
      lookup->done = true;
      lookup->changed.NotifyAll();
    }).detach();
  } catch (const std::system_error&) {  // no thread is to be had
    --lookups;
    return {};
  }
  MutexLock lock(&lookup->mutex);
  while (!lookup->done) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return {};
    lookup->changed.WaitFor(&lookup->mutex, left);
  }
  return std::move(lookup->found);
}

}  // namespace agg
