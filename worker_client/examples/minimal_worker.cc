// The smallest worker: four rounds of descent on ||x - 1||^2 / 2.
#include <iostream>

#include "agg_client/agg_client.h"

int main(int argc, char** argv) {
  agg::ClientOptions options;
  options.coordinator = argc > 1 ? argv[1] : "127.0.0.1:50051";
  options.rank = argc > 2 ? std::atoi(argv[2]) : 0;
  options.manifest = {{{"x", {4}, "", false}}};
  options.on_event = agg::PrintEvent;  // what is waited for, on stderr
  options.tune_malloc = true;          // this process is the job's alone
  std::vector<float> x(4), g(4);
  const std::vector<agg::MutableTensorView> parameters = {absl::MakeSpan(x)};
  const std::vector<agg::TensorView> gradient = {absl::MakeConstSpan(g)};

  auto client = agg::AggClient::Connect(options);
  absl::Status status = client.status();
  if (status.ok()) status = (*client)->SeedOrPull(parameters);
  while (status.ok() && (*client)->version() < 4) {
    for (int i = 0; i < 4; ++i) g[i] = x[i] - 1;
    status = (*client)->PushPull(gradient, {}, parameters).status();
  }
  std::cout << status << ", x[0] = " << x[0] << "\n";
  return status.ok() ? 0 : 1;
}
