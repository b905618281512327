// Links only if the library exports everything that the public headers declare.
#include <cstdio>

#include "agg_client/agg_client.h"
#include "agg_client/client_event.h"
#include "agg_client/npz.h"
#include "agg_client/operation.h"
#include "agg_client/shard_plan.h"

namespace {

int links = 0;

// Takes an address, which the optimizer must not see through.
template <typename Function>
void Need(Function function) {
  Function volatile kept = function;
  if (kept != nullptr) ++links;
}

}  // namespace

int main() {
  using agg::AggClient;
  Need(&AggClient::Connect);
  Need(&AggClient::Seed);
  Need(&AggClient::SeedFile);
  Need(&AggClient::SeedOrPull);
  Need(&AggClient::Push);
  Need(&AggClient::RowTensors);
  Need(&AggClient::RowViews);
  Need(&AggClient::Commit);
  Need(&AggClient::Pull);
  Need(&AggClient::PullView);
  Need(&AggClient::PullLatest);
  Need(&AggClient::LatestVersion);
  Need(&AggClient::PushPull);
  Need(&AggClient::MakeRound);
  Need(&AggClient::ResumeRound);
  Need(&AggClient::StartPush);
  Need(&AggClient::StartCommit);
  Need(&AggClient::StartPull);
  Need(&AggClient::StartRound);
  Need(&AggClient::Wait);
  Need(&AggClient::Reduce);
  Need(&AggClient::StartReduce);
  Need(&AggClient::Leave);
  Need(&AggClient::version);
  Need(&AggClient::session);
  Need(&AggClient::seed_role);
  Need(&AggClient::finished);
  Need(&AggClient::manifest);
  Need(&AggClient::job);
  Need(&agg::Operation::Done);
  Need(&agg::Operation::Status);
  Need(&agg::Operation::Wait);
  Need(&agg::Operation::WaitUntil);
  Need(&agg::Operation::Cancel);
  Need(&agg::Operation::OnDone);
  Need(&agg::PullOperation::WaitForTensor);
  Need(&agg::RoundOperation::Outcome);
  Need(&agg::ToString);
  Need(&agg::PrintEvent);
  Need(&agg::ReadNpz);
  Need(&agg::WriteNpz);
  Need(&agg::ValidateManifest);
  Need(&agg::CompareManifests);
  Need(&agg::MakeShardPlan);
  Need<int64_t (*)(const agg::TensorSpec&)>(&agg::NumElements);
  Need<int64_t (*)(const agg::Manifest&)>(&agg::NumElements);

  // ~AggClient, and a handle that stands for nothing.
  std::unique_ptr<AggClient> none;
  none.reset();
  agg::RoundOperation never;
  std::printf("%d %s\n", links, never.Wait().ToString().c_str());
  return 0;
}
