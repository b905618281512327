// The worker that does all as it should while others try what they like. What
// it must be able to do after any input is the target's main assertion.
#ifndef AGG_TESTS_FUZZ_HONEST_WORKER_H_
#define AGG_TESTS_FUZZ_HONEST_WORKER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/agg.pb.h"
#include "tests/fuzz/fake_call.h"
#include "tests/fuzz/fuzz_services.h"
#include "tests/server/round/row_frames.h"

namespace agg {

class HonestWorker {
 public:
  // Both outlive it.
  HonestWorker(FuzzServices* services, FuzzCalls* calls)
      : services_(services), calls_(calls) {}

  // Joins, or comes back; whether it is in.
  bool Join();
  // Its lease lives on, or it joins again. To be called at least every 20 s of
  // the job's clock.
  void Renew();
  // Pushes, commits and pulls what is due now (a seed, a gradient); whether a
  // version came of it. Others may have to commit first.
  bool Round();

  uint64_t session() const { return job_.session(); }
  uint64_t epoch() const { return job_.epoch(); }
  // Somebody who may has taken its session or its rank, or may have.
  bool may_lose_session() const { return may_lose_session_; }
  void set_may_lose_session() { may_lose_session_ = true; }
  const v1::RoundOutcome& outcome() const { return outcome_; }

 private:
  using PushCall = FakeBidi<grpc::ByteBuffer, grpc::ByteBuffer>;

  // What such an error means to it. Traps for one that no other worker may
  // bring about.
  void Heed(const grpc::Status& status);
  // Whether its Attend stream goes on.
  bool SendRenewal();
  bool Push(uint64_t round, v1::PushKind kind);
  bool Commit(uint64_t round, v1::PushKind kind);
  // The version from all shards, into *tensors.
  bool Pull(uint64_t version, Tensors* tensors);
  // That the round has made of `before` what it should.
  void CheckStep(const Tensors& before, const Tensors& after) const;

  FuzzServices* const services_;
  FuzzCalls* const calls_;
  v1::JoinReply job_;  // session 0: not in
  uint32_t attempt_ = 0;
  bool may_lose_session_ = false;
  v1::RoundOutcome outcome_;  // of the last round
  std::shared_ptr<FakeBidi<v1::LeaseRenewal, v1::JobEvent>> attend_;
};

// One frame with all slices of the shard, each element `value`, filled in where
// `meta` leaves it open: slices, then checksums and payload.
grpc::ByteBuffer FrameBytes(const FuzzServices& services, uint32_t shard,
                            float value, v1::PushFrame frame);

}  // namespace agg

#endif  // AGG_TESTS_FUZZ_HONEST_WORKER_H_
