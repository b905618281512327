// agg_server: one shard of a job.
#include "kernels/backend_factory.h"
#include "server/server_main.h"

int main(int argc, char** argv) {
  return agg::ServerMain(argc, argv, &agg::MakeBackend);
}
