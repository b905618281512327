#include "tests/e2e/free_ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

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

}  // namespace agg
