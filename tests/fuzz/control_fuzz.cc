// Any calls of the ShardControl service: a coordinator that is not the job's,
// or is out of its mind, and a neighbour like it. The job's own takes its shard
// back, and the honest worker goes on.
#include <memory>
#include <type_traits>
#include <utility>

#include "proto/control.pb.h"
#include "proto/protocol_version.h"
#include "server/rpc/shard_control_service.h"
#include "server/shard/shard_engine.h"
#include "tests/fuzz/fuzz_job.h"
#include "tests/fuzz/fuzz_message.h"
#include "tests/fuzz/job_input.pb.h"

namespace agg {
namespace {

constexpr int kShard = 1;

fuzz::JobSetup TwoShards(fuzz::JobSetup setup) {
  setup.set_two_shards(true);
  setup.set_identities(false);
  return setup;
}

fuzz::Turn LoseIt() {
  fuzz::Turn turn;
  turn.set_lose_shard(kShard);
  return turn;
}

class ControlJob {
 public:
  explicit ControlJob(const fuzz::JobSetup& setup)
      : job_(TwoShards(setup)),
        engine_(job_.services()->cluster()->engine(kShard)),
        copies_(engine_),
        service_(
            ShardIdentity{kShard, 2, "127.0.0.1:2", "fuzz", "cpu", 2, "", ""},
            engine_, &copies_, nullptr, &open_, &reports_,
            job_.services()->gate(), job_.services()->cluster()->clock()),
        control_(&service_) {
    job_.honest()->set_may_lose_session();
  }
  ~ControlJob() { job_.calls()->CancelAll(); }

  void Do(const fuzz::ControlStep& step);
  void Finish() {
    job_.calls()->CancelAll();
    job_.honest()->Renew();
    job_.services()->cluster()->clock()->Advance(absl::Seconds(10));
    service_.LookForCoordinator();
    // The job's own coordinator has a connection of its own, which ends when
    // the shard goes to another one.
    job_.Do(fuzz::Who(), LoseIt());
    job_.Finish();
  }

 private:
  using Attach = FakeBidi<v1::AttachRequest, v1::AttachReply>;
  using RunPhase = FakeBidi<v1::PhaseRequest, v1::PhaseReply>;
  using Replicate = FakeClientStream<v1::CopyFrame>;
  using Service = ShardControlMethods;

  uint64_t epoch() const { return engine_->Status().epoch; }
  template <typename Request>
  void FillIn(bool as_is, Request* request) const {
    if (!as_is && request->epoch() == 0) request->set_epoch(epoch());
  }

  void BeginAttach(bool as_is, v1::AttachRequest request);
  void GoOnAttach(v1::AttachRequest request);
  void Phase(bool as_is, v1::PhaseRequest request);
  void Copy(bool as_is, v1::CopyFrame frame);
  void Fetch(bool as_is, v1::FetchRequest request);
  // What the service's threads still do for streams is done.
  void Flush();
  void Probe(v1::ProbeRequest request);
  std::shared_ptr<RunPhase> NewPhase();

  FuzzJob job_;
  ShardEngine* const engine_;
  ShardCopies copies_;
  OpenStreams open_;
  RowReports reports_;
  ShardControlService service_;
  Service* const control_;
  std::shared_ptr<Attach> attach_;
  std::shared_ptr<RunPhase> phase_;
  std::shared_ptr<Replicate> copy_;
};

void ControlJob::Probe(v1::ProbeRequest request) {
  const auto call = job_.calls()->Unary<v1::ProbeReply>(
      "", std::move(request), [&](auto* context, auto* sent, auto* reply) {
        return control_->Probe(context, sent, reply);
      });
  job_.calls()->AwaitDone(*call);
}

std::shared_ptr<ControlJob::RunPhase> ControlJob::NewPhase() {
  const auto phase = std::make_shared<RunPhase>(
      "", [this](grpc::CallbackServerContext* context) {
        return control_->RunPhase(context);
      });
  job_.calls()->Add(phase);
  return phase;
}

void ControlJob::Flush() {
  v1::PhaseRequest request;
  request.mutable_get_manifest();
  FillIn(/*as_is=*/false, &request);
  const auto phase = NewPhase();
  phase->Send(std::move(request));
  job_.calls()->AwaitDone(*phase);
}

void ControlJob::BeginAttach(bool as_is, v1::AttachRequest request) {
  if (!as_is) {
    request.set_ordinal(kShard);
    request.set_num_shards(2);
    request.set_config_fingerprint("fuzz");
    request.set_protocol_version(kProtocolVersion);
    if (request.coordinator_life() == 0) request.set_coordinator_life(77);
    if (request.epoch() == 0) {
      request.set_epoch(epoch() + (request.resume() ? 0 : 1));
    }
  }
  attach_ = std::make_shared<Attach>(
      "", [this](grpc::CallbackServerContext* context) {
        return control_->Attach(context);
      });
  attach_->Send(std::move(request));
  job_.calls()->Add(attach_);
  Flush();
}

void ControlJob::GoOnAttach(v1::AttachRequest request) {
  if (attach_ == nullptr || attach_->done()) return;
  attach_->Send(std::move(request));
  Flush();
}

void ControlJob::Phase(bool as_is, v1::PhaseRequest request) {
  FillIn(as_is, &request);
  if (phase_ == nullptr || phase_->done()) phase_ = NewPhase();
  const bool more = request.more();
  phase_->Send(std::move(request));
  if (more) return job_.calls()->Settle();
  job_.calls()->AwaitDone(*phase_);
}

void ControlJob::Copy(bool as_is, v1::CopyFrame frame) {
  FillIn(as_is, &frame);
  if (copy_ == nullptr || copy_->done()) {
    copy_ = std::make_shared<Replicate>(
        "", [this](grpc::CallbackServerContext* context) {
          return control_->Replicate(context, nullptr);
        });
    job_.calls()->Add(copy_);
  }
  const bool last = frame.last();
  copy_->Send(std::move(frame));
  if (!last) return job_.calls()->Settle();
  copy_->HalfClose();
  job_.calls()->AwaitDone(*copy_);
}

void ControlJob::Fetch(bool as_is, v1::FetchRequest request) {
  FillIn(as_is, &request);
  const grpc::Slice slice(request.SerializeAsString());
  const grpc::ByteBuffer bytes(&slice, 1);
  const auto call = std::make_shared<FakeServerStream<grpc::ByteBuffer>>(
      "", [&](grpc::CallbackServerContext* context) {
        return control_->Fetch(context, &bytes);
      });
  job_.calls()->Add(call);
  job_.calls()->AwaitDone(*call);
}

void ControlJob::Do(const fuzz::ControlStep& step) {
  using Step = fuzz::ControlStep;
  const bool as_is = step.as_is();
  fuzz::Who who;
  who.set_shard(kShard);
  who.set_as_is(as_is);
  switch (step.call_case()) {
    case Step::kTurn:
      return job_.Do(who, step.turn());
    case Step::kAttach:
      return BeginAttach(as_is, step.attach());
    case Step::kAttachMore:
      return GoOnAttach(step.attach_more());
    case Step::kRunPhase:
      return Phase(as_is, step.run_phase());
    case Step::kProbe:
      return Probe(step.probe());
    case Step::kReplicate:
      return Copy(as_is, step.replicate());
    case Step::kFetch:
      return Fetch(as_is, step.fetch());
    case Step::kPush:
      return job_.Do(who, step.push());
    case Step::kPull:
      return job_.Do(who, step.pull());
    case Step::CALL_NOT_SET:
      return;
  }
}

void Run(const fuzz::ControlInput& input) {
  RunSteps<ControlJob>(
      input,
      [](ControlJob* job, const fuzz::ControlStep& step) { job->Do(step); });
}

}  // namespace
}  // namespace agg

AGG_FUZZ_MESSAGE(agg::fuzz::ControlInput, agg::Run)
