#include "tests/fuzz/honest_worker.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "proto/byte_buffer_frame.h"
#include "proto/crc32c.h"
#include "proto/manifest_message.h"
#include "proto/protocol_version.h"

namespace agg {
namespace {

constexpr int32_t kRank = 3;
constexpr float kSeedValue = 1.0f;
constexpr float kGradient = 0.25f;
constexpr double kRate = 0.5;  // of the cluster

grpc::ByteBuffer Serialize(const google::protobuf::Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

std::string Bytes(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return "";
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

// Steps of the rate make such numbers of such numbers without rounding.
bool IsNice(float value) {
  return std::abs(value) < 1024.0f &&
         value * 1024.0f == std::floor(value * 1024.0f);
}

}  // namespace

grpc::ByteBuffer FrameBytes(const FuzzServices& services, uint32_t shard,
                            float value, v1::PushFrame frame) {
  const ShardPlan& plan = services.plan();
  v1::FrameMeta* const meta = frame.mutable_meta();
  if (meta->slices().empty() && meta->absent_slices().empty()) {
    for (const int32_t index : plan.slices_of_shard[shard]) {
      meta->add_slices(static_cast<uint32_t>(index));
    }
  }
  const bool is_known = meta->dtype() >= v1::F32 && meta->dtype() <= v1::I8;
  const Tensors tensors = FilledTensors(services.manifest(), value);
  const bool fills = frame.payload().empty() && is_known && !meta->in_place();
  const bool sums = meta->crc32c().empty() && fills;
  for (const uint32_t index : meta->slices()) {
    if (!fills || index >= plan.slices.size()) continue;
    const std::string bytes = SliceBytes(plan.slices[index], tensors,
                                         static_cast<DType>(meta->dtype()));
    frame.mutable_payload()->append(bytes);
    if (sums) meta->add_crc32c(Crc32c(bytes));
  }
  return Serialize(frame);
}

void HonestWorker::Heed(const grpc::Status& status) {
  const std::string& why = status.error_message();
  // By identity: without, and by its own token, it is never refused. An admin
  // may hold its rank until that session's lease ends.
  const bool denied =
      status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
      (status.error_code() == grpc::StatusCode::PERMISSION_DENIED &&
       !(services_->identities() && may_lose_session_));
  // Also when another attempt of its row, which nobody else can name, has taken
  // the place of its own.
  const bool ended = status.error_code() == grpc::StatusCode::NOT_FOUND ||
                     (status.error_code() == grpc::StatusCode::ABORTED &&
                      !absl::StrContains(why, "epoch"));
  if (denied || (ended && services_->identities() && !may_lose_session_)) {
    __builtin_trap();
  }
  if (ended) job_.Clear();
  // Somebody who may has pushed for its session: another gradient, then.
  if (status.error_code() == grpc::StatusCode::FAILED_PRECONDITION) ++attempt_;
}

bool HonestWorker::Join() {
  v1::JoinRequest request;
  request.set_protocol_version(kProtocolVersion);
  request.set_rank(kRank);
  request.set_client("honest");
  *request.mutable_manifest() = ToProto(services_->manifest());
  request.set_resume_session(job_.session());
  const auto call = calls_->Unary<grpc::ByteBuffer>(
      HonestToken(), Serialize(request),
      [this](auto* context, auto* request, auto* reply) {
        return services_->coordinator(0)->Join(context, request, reply);
      });
  if (!call->done()) return call->Cancel(), calls_->Settle(), false;
  if (!call->status().ok()) return Heed(call->status()), false;
  grpc::Slice reply;
  if (!call->reply.DumpToSingleSlice(&reply).ok() ||
      !job_.ParseFromArray(reply.begin(), static_cast<int>(reply.size()))) {
    __builtin_trap();
  }
  if (attend_ != nullptr) attend_->Cancel();
  attend_ = nullptr;
  SendRenewal();
  return true;
}

void HonestWorker::Renew() {
  if (job_.session() == 0 || SendRenewal()) return;
  // The epoch is over, or the session.
  Heed(attend_->status());
  Join();
}

bool HonestWorker::SendRenewal() {
  if (attend_ == nullptr || attend_->done()) {
    attend_ = std::make_shared<FakeBidi<v1::LeaseRenewal, v1::JobEvent>>(
        HonestToken(), [this](grpc::CallbackServerContext* context) {
          return services_->coordinator(0)->Attend(context);
        });
    calls_->Add(attend_);
  }
  v1::LeaseRenewal renewal;
  renewal.set_epoch(job_.epoch());
  renewal.set_session(job_.session());
  attend_->Send(renewal);
  calls_->Settle();
  return !attend_->done();
}

bool HonestWorker::Push(uint64_t round, v1::PushKind kind) {
  for (int k = 0; k < services_->num_shards(); ++k) {
    if (services_->plan().slices_of_shard[k].empty()) continue;
    v1::PushFrame frame;
    v1::FrameMeta* const meta = frame.mutable_meta();
    meta->set_epoch(job_.epoch());
    meta->set_session(job_.session());
    meta->set_round(round);
    meta->set_kind(kind);
    meta->set_attempt(attempt_);
    meta->set_dtype(kind == v1::SEED ? v1::F32 : job_.push_dtype());
    const auto stream = std::make_shared<PushCall>(
        HonestToken(), [this, k](grpc::CallbackServerContext* context) {
          return services_->shard(k)->Push(context);
        });
    bool acknowledged = false;
    stream->set_on_response(
        [&](const grpc::ByteBuffer&) { acknowledged = true; });
    stream->Send(FrameBytes(*services_, k,
                            kind == v1::SEED ? kSeedValue : kGradient, frame));
    calls_->Add(stream);
    stream->set_on_response(nullptr);
    stream->HalfClose();
    calls_->Settle();
    if (!stream->done()) __builtin_trap();
    if (!stream->status().ok()) return Heed(stream->status()), false;
    if (!acknowledged) __builtin_trap();
  }
  return true;
}

bool HonestWorker::Commit(uint64_t round, v1::PushKind kind) {
  v1::CommitRequest request;
  request.set_epoch(job_.epoch());
  request.set_session(job_.session());
  request.set_round(round);
  request.set_kind(kind);
  request.set_attempt(attempt_);
  const auto call = calls_->Unary<v1::RoundOutcome>(
      HonestToken(), request,
      [this](auto* context, auto* request, auto* reply) {
        return services_->coordinator(0)->Commit(context, request, reply);
      });
  if (!call->done()) return call->Cancel(), calls_->Settle(), false;
  if (!call->status().ok()) return Heed(call->status()), false;
  outcome_ = call->reply;
  attempt_ = 0;
  return true;
}

bool HonestWorker::Pull(uint64_t version, Tensors* tensors) {
  *tensors = FilledTensors(services_->manifest(), 0.0f);
  size_t num_slices = 0;
  for (int k = 0; k < services_->num_shards(); ++k) {
    v1::PullRequest request;
    request.set_epoch(job_.epoch());
    request.set_version(version);
    request.set_dtype(v1::F32);
    const grpc::ByteBuffer bytes = Serialize(request);
    const auto call = std::make_shared<FakeServerStream<grpc::ByteBuffer>>(
        HonestToken(), [&](grpc::CallbackServerContext* context) {
          return services_->shard(k)->Pull(context, &bytes);
        });
    call->set_on_response([&](const grpc::ByteBuffer& buffer) {
      v1::PullFrame frame;
      if (!frame.ParseFromString(Bytes(buffer))) __builtin_trap();
      if (frame.meta().round() != version) __builtin_trap();
      size_t at = 0;
      for (const uint32_t index : frame.meta().slices()) {
        const Slice& slice = services_->plan().slices[index];
        const size_t size = slice.num_elements * sizeof(float);
        if (at + size > frame.payload().size()) __builtin_trap();
        std::memcpy((*tensors)[slice.tensor].data() + slice.begin,
                    frame.payload().data() + at, size);
        at += size;
        ++num_slices;
      }
    });
    calls_->Add(call);
    if (!call->done()) return call->Cancel(), calls_->Settle(), false;
    if (!call->status().ok()) return Heed(call->status()), false;
  }
  if (num_slices != services_->plan().slices.size()) __builtin_trap();
  return true;
}

void HonestWorker::CheckStep(const Tensors& before,
                             const Tensors& after) const {
  // Rows that are left out may still be in some of the tensors (P43).
  const bool partial = job_.pipelined() && !outcome_.excluded_ranks().empty();
  const bool alone = outcome_.kind() == v1::RoundOutcome::APPLIED &&
                     outcome_.ranks_size() == 1 && outcome_.ranks(0) == kRank &&
                     outcome_.included() && !partial;
  const bool known = outcome_.combination().rule() == "mean" &&
                     outcome_.learning_rate() == kRate &&
                     outcome_.gain() == 1.0 && job_.push_dtype() != v1::I8 &&
                     services_->cluster()->options().shard.optimizer.kind ==
                         OptimizerKind::kSgd;
  if (outcome_.kind() == v1::RoundOutcome::SKIPPED &&
      !SameBits(before, after)) {
    __builtin_trap();
  }
  if (!alone || !known) return;
  for (size_t t = 0; t < before.size(); ++t) {
    for (size_t i = 0; i < before[t].size(); ++i) {
      const float old = before[t][i];
      if (IsNice(old) &&
          after[t][i] != old - static_cast<float>(kRate) * kGradient) {
        __builtin_trap();
      }
    }
  }
}

bool HonestWorker::Round() {
  if (job_.session() == 0 && !Join()) return false;
  const JobStatus status = services_->cluster()->coordinator()->Status();
  if (status.epoch != job_.epoch() && !Join()) return false;
  if (!status.seeded) {
    return Push(0, v1::SEED) && Commit(0, v1::SEED);
  }
  Tensors before, after;
  if (!Pull(status.version, &before) || !Push(status.round, v1::GRADIENT) ||
      !Commit(status.round, v1::GRADIENT)) {
    return false;
  }
  if (outcome_.version() != status.round + 1) __builtin_trap();
  const uint64_t now = services_->cluster()->coordinator()->Status().version;
  if (now != outcome_.version()) return true;  // others went on
  if (Pull(now, &after)) CheckStep(before, after);
  return true;
}

}  // namespace agg
