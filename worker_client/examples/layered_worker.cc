// A worker whose backward pass pushes each layer as soon as its gradient is
// there, and whose forward pass begins with the first layers that come back:
// five rounds of descent on the sum of ||x - 1||^2 / 2 over the layers.
//
//   layered_worker [COORDINATOR [RANK]]
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "server/base/status_macros.h"
#include "worker_client/agg_client.h"

namespace {

constexpr int kNumLayers = 4;
constexpr int kLayerSize = 1000;

using Tensors = std::vector<std::vector<float>>;

std::string Name(int layer) { return "layer_" + std::to_string(layer); }

agg::ClientOptions Options(int argc, char** argv) {
  agg::ClientOptions options;
  if (argc > 1) options.coordinator = argv[1];
  if (argc > 2) options.rank = std::atoi(argv[2]);
  for (int layer = 0; layer < kNumLayers; ++layer) {
    options.manifest.tensors.push_back({Name(layer), {kLayerSize}, "", false});
  }
  options.on_event = agg::PrintEvent;
  return options;
}

// Layer by layer, each when its parameters have come.
absl::Status Forward(agg::RoundOperation* round, const Tensors& x,
                     double* loss) {
  *loss = 0;
  for (int layer = 0; layer < kNumLayers; ++layer) {
    AGG_RETURN_IF_ERROR(round->WaitForTensor(Name(layer)));
    for (const float value : x[layer]) *loss += (value - 1) * (value - 1) / 2;
  }
  // Says how the round ended, and sets version(), to which rows belong.
  return round->Wait();
}

// From the last layer to the first one; none waits for the network.
void Backward(agg::AggClient* client, const Tensors& x, Tensors* gradient) {
  for (int layer = kNumLayers - 1; layer >= 0; --layer) {
    std::vector<float>& values = (*gradient)[layer];
    for (int i = 0; i < kLayerSize; ++i) values[i] = x[layer][i] - 1;
    // Of a row that has failed, StartRound tells.
    client->StartPush({agg::TensorView(Name(layer), values)});
  }
}

absl::Status Train(agg::AggClient* client, Tensors* x) {
  std::vector<agg::MutableTensorView> parameters;
  for (std::vector<float>& values : *x) {
    parameters.emplace_back(absl::MakeSpan(values));
  }
  agg::PullOptions in_order;
  for (int layer = 0; layer < kNumLayers; ++layer) {
    in_order.first.push_back(Name(layer));
  }
  Tensors gradient = *x;
  absl::Status status = client->SeedOrPull(parameters);
  Backward(client, *x, &gradient);
  while (status.ok()) {
    // `gradient` is the client's until the round is done.
    agg::RoundOperation round =
        client->StartRound({}, {}, parameters, in_order);
    double loss = 0;
    status = Forward(&round, *x, &loss);
    if (!status.ok() || client->version() >= 5) break;
    Backward(client, *x, &gradient);
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  auto client = agg::AggClient::Connect(Options(argc, argv));
  absl::Status status = client.status();
  Tensors x(kNumLayers, std::vector<float>(kLayerSize));
  if (status.ok()) status = Train(client->get(), &x);
  std::cout << status << ", x[0] = " << x[0][0] << "\n";
  return status.ok() ? 0 : 1;
}
