#include "tests/fuzz/fuzz_job.h"

#include <algorithm>

#include "absl/time/time.h"
#include "proto/manifest_message.h"
#include "proto/protocol_version.h"

namespace agg {
namespace {

constexpr uint32_t kHonest = 3;
// Below a lease: the honest worker renews before and after.
constexpr uint32_t kMaxAdvanceMs = 20000;

grpc::ByteBuffer BufferOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

}  // namespace

FuzzJob::FuzzJob(const fuzz::JobSetup& setup)
    : services_(setup),
      calls_([this] { return services_.Settle(); }),
      honest_(&services_, &calls_) {
  // Alone with the job it can do both.
  if (!honest_.Join()) __builtin_trap();
  if (!setup.unseeded() && !honest_.Round()) __builtin_trap();
}

void FuzzJob::NoteToken(uint32_t token) {
  if (!services_.identities() || IsAdminToken(token)) {
    honest_.set_may_lose_session();
  }
}

uint64_t FuzzJob::SessionOf(const fuzz::Who& who) const {
  const uint32_t worker = who.worker() % 4;
  return worker == kHonest ? honest_.session() : sessions_[worker];
}

template <typename Request>
void FuzzJob::FillIn(const fuzz::Who& who, Request* request) const {
  if (who.as_is()) return;
  if (request->epoch() == 0) request->set_epoch(honest_.epoch());
  if (request->session() == 0) request->set_session(SessionOf(who));
}

// --- What is no call ---------------------------------------------------------

void FuzzJob::Advance(uint32_t milliseconds) {
  honest_.Renew();
  services_.cluster()->clock()->Advance(absl::Milliseconds(milliseconds));
  calls_.Settle();
  honest_.Renew();
}

// As after a connection that is lost for longer than is waited for: the honest
// worker comes back at once, the others as they like.
void FuzzJob::LoseShard(uint32_t shard) {
  services_.cluster()->LoseConnection(
      static_cast<int>(shard % services_.num_shards()));
  calls_.Settle();
  honest_.Join();
}

void FuzzJob::Do(const fuzz::Who& /*who*/, const fuzz::Turn& turn) {
  const bool open = calls_.num_open() > 0;
  switch (turn.what_case()) {
    case fuzz::Turn::kAdvanceMs:
      return Advance(turn.advance_ms() % kMaxAdvanceMs);
    case fuzz::Turn::kHonestRound:
      honest_.Round();
      return;
    case fuzz::Turn::kLoseShard:
      return LoseShard(turn.lose_shard());
    case fuzz::Turn::kStopReading:
      if (open) calls_.open(turn.stop_reading())->SetReads(false);
      return;
    case fuzz::Turn::kReadOn:
      if (open) calls_.open(turn.read_on())->SetReads(true);
      break;
    case fuzz::Turn::kCancel:
      if (open) calls_.open(turn.cancel())->Cancel();
      break;
    case fuzz::Turn::kHalfClose:
      if (open) calls_.open(turn.half_close())->HalfClose();
      break;
    case fuzz::Turn::WHAT_NOT_SET:
      break;
  }
  calls_.Settle();
}

// --- Calls of workers --------------------------------------------------------

void FuzzJob::Do(const fuzz::Who& who, v1::JoinRequest request) {
  NoteToken(who.token());
  if (!who.as_is()) {
    request.set_protocol_version(kProtocolVersion);
    if (!request.has_manifest()) {
      *request.mutable_manifest() = ToProto(services_.manifest());
    }
  }
  const auto call = calls_.Unary<grpc::ByteBuffer>(
      FuzzToken(who.token()), BufferOf(request.SerializeAsString()),
      [&](auto* context, auto* request, auto* reply) {
        return services_.coordinator(who.shard())
            ->Join(context, request, reply);
      });
  const uint32_t worker = who.worker() % 4;
  if (call->done() && call->status().ok() && worker != kHonest) {
    v1::JoinReply reply;
    if (!reply.ParseFromString(BytesOf(call->reply))) __builtin_trap();
    sessions_[worker] = reply.session();
  }
}

void FuzzJob::Do(const fuzz::Who& who, v1::ObserveRequest request) {
  if (!who.as_is()) request.set_protocol_version(kProtocolVersion);
  calls_.Unary<grpc::ByteBuffer>(
      FuzzToken(who.token()), BufferOf(request.SerializeAsString()),
      [&](auto* context, auto* request, auto* reply) {
        return services_.coordinator(who.shard())
            ->Observe(context, request, reply);
      });
}

void FuzzJob::ListTensors(const fuzz::Who& who,
                          const v1::ListTensorsRequest& request) {
  NoteToken(who.token());
  calls_.Unary<grpc::ByteBuffer>(
      FuzzToken(who.token()), BufferOf(request.SerializeAsString()),
      [&](auto* context, auto* request, auto* reply) {
        return services_.admin(who.shard())
            ->ListTensors(context, request, reply);
      });
}

void FuzzJob::Do(const fuzz::Who& who, v1::LeaseRenewal renewal) {
  NoteToken(who.token());
  FillIn(who, &renewal);
  std::shared_ptr<AttendCall>& call = attends_[who.worker() % 4];
  if (call == nullptr || call->done()) {
    call = std::make_shared<AttendCall>(
        FuzzToken(who.token()), [&](grpc::CallbackServerContext* context) {
          return services_.coordinator(who.shard())->Attend(context);
        });
    calls_.Add(call);
  }
  call->Send(std::move(renewal));
  calls_.Settle();
}

void FuzzJob::Do(const fuzz::Who& who, v1::CommitRequest request) {
  NoteToken(who.token());
  FillIn(who, &request);
  if (!who.as_is() && request.round() == 0) {
    request.set_round(services_.cluster()->coordinator()->Status().round);
  }
  calls_.Unary<v1::RoundOutcome>(
      FuzzToken(who.token()), std::move(request),
      [&](auto* context, auto* request, auto* reply) {
        return services_.coordinator(who.shard())
            ->Commit(context, request, reply);
      });
}

void FuzzJob::Do(const fuzz::Who& who, v1::WaitRequest request) {
  FillIn(who, &request);
  calls_.Unary<v1::RoundOutcome>(
      FuzzToken(who.token()), std::move(request),
      [&](auto* context, auto* request, auto* reply) {
        return services_.coordinator(who.shard())
            ->WaitRound(context, request, reply);
      });
}

void FuzzJob::Do(const fuzz::Who& who, v1::LeaveRequest request) {
  NoteToken(who.token());
  FillIn(who, &request);
  calls_.Unary<v1::LeaveReply>(FuzzToken(who.token()), std::move(request),
                               [&](auto* context, auto* request, auto* reply) {
                                 return services_.coordinator(who.shard())
                                     ->Leave(context, request, reply);
                               });
}

void FuzzJob::Do(const fuzz::Who& who, v1::ReduceRequest request) {
  NoteToken(who.token());
  FillIn(who, &request);
  if (!who.as_is()) {
    if (request.giver() == 0) request.set_giver(1 + who.worker() % 4);
    if (request.call() == 0) request.set_call(1);
    if (!request.withdraw()) {
      if (request.what().empty()) request.set_what("x");
      if (request.values().empty()) request.add_values(1);
    }
  }
  calls_.Unary<v1::ReduceReply>(FuzzToken(who.token()), std::move(request),
                                [&](auto* context, auto* request, auto* reply) {
                                  return services_.reductions(who.shard())
                                      ->Reduce(context, request, reply);
                                });
}

void FuzzJob::Do(const fuzz::Who& who, const v1::StatusRequest& request) {
  calls_.Unary<v1::StatusReply>(FuzzToken(who.token()), request,
                                [&](auto* context, auto* request, auto* reply) {
                                  return services_.coordinator(who.shard())
                                      ->GetStatus(context, request, reply);
                                });
}

// --- Streams of data ---------------------------------------------------------

void FuzzJob::Do(const fuzz::Who& who, v1::PullRequest request) {
  if (!who.as_is()) {
    if (request.epoch() == 0) request.set_epoch(honest_.epoch());
    if (request.dtype() == v1::DTYPE_UNSPECIFIED) request.set_dtype(v1::F32);
  }
  const grpc::ByteBuffer bytes = BufferOf(request.SerializeAsString());
  calls_.Add(std::make_shared<FakeServerStream<grpc::ByteBuffer>>(
      FuzzToken(who.token()), [&](grpc::CallbackServerContext* context) {
        return services_.shard(who.shard())->Pull(context, &bytes);
      }));
}

void FuzzJob::Do(const fuzz::Who& who, const fuzz::Push& push) {
  NoteToken(who.token());
  const uint32_t shard = who.shard() % services_.num_shards();
  v1::PushFrame frame = push.frame();
  std::string bytes = push.raw();
  if (!who.as_is()) {
    v1::FrameMeta* const meta = frame.mutable_meta();
    FillIn(who, meta);
    if (meta->round() == 0 && meta->kind() == v1::GRADIENT) {
      meta->set_round(services_.cluster()->coordinator()->Status().round);
    }
    const bool is_seed = meta->kind() == v1::SEED;
    if (meta->dtype() == v1::DTYPE_UNSPECIFIED) {
      meta->set_dtype(
          is_seed ? v1::F32
                  : static_cast<v1::DType>(
                        services_.cluster()->options().shard.push_dtype));
    }
    if (frame.has_commit()) {
      FillIn(who, frame.mutable_commit());
      frame.mutable_commit()->set_round(meta->round());
      frame.mutable_commit()->set_attempt(meta->attempt());
      frame.mutable_commit()->set_kind(meta->kind());
    }
    if (frame.has_pull() && frame.pull().version() == 0) {
      frame.mutable_pull()->set_epoch(meta->epoch());
      frame.mutable_pull()->set_version(meta->round() + 1);
      frame.mutable_pull()->set_dtype(v1::F32);
    }
  }
  if (bytes.empty()) {
    bytes = who.as_is() ? frame.SerializeAsString()
                        : BytesOf(FrameBytes(services_, shard, push.value(),
                                             std::move(frame)));
  }
  for (const fuzz::Patch& patch : push.patches()) {
    if (bytes.empty()) break;
    char& byte = bytes[patch.at() % bytes.size()];
    byte = static_cast<char>(byte ^ static_cast<char>(patch.mask()));
  }
  std::shared_ptr<PushCall>& call = pushes_[{who.worker() % 4, shard}];
  if (call == nullptr || call->done() || push.new_stream()) {
    call = std::make_shared<PushCall>(
        FuzzToken(who.token()), [&](grpc::CallbackServerContext* context) {
          return services_.shard(shard)->Push(context);
        });
    calls_.Add(call);
  }
  call->Send(BufferOf(bytes));
  calls_.Settle();
}

// --- The end -----------------------------------------------------------------

void FuzzJob::Finish() {
  honest_.Renew();
  calls_.CancelAll();
  // The others' leases end.
  for (int i = 0; i < 4; ++i) Advance(10000);
  for (int attempt = 0; attempt < 8; ++attempt) {
    if (services_.cluster()->coordinator()->finished()) break;
    // The first one may only seed, or find that its session was taken.
    const uint64_t session = honest_.session();
    const bool done = honest_.Round();
    if (done && session != 0 && session == honest_.session() && attempt > 0) {
      return;
    }
    Advance(2000);
  }
  // The last worker has left: that ends a job. The honest one never leaves, but
  // may have lost its session to who left then.
  const JobStatus status = services_.cluster()->coordinator()->Status();
  if (!honest_.may_lose_session() || status.failed ||
      !services_.cluster()->coordinator()->finished()) {
    __builtin_trap();
  }
}

}  // namespace agg
