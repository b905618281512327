#include "server/rpc/pull_stream.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/rpc/status_conversion.h"

namespace agg {
namespace {

absl::StatusOr<v1::PullRequest> Parse(const grpc::ByteBuffer& buffer) {
  // Checked first: gathering a large message costs memory.
  constexpr size_t kMaxBytes = 1024;
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (buffer.Length() <= kMaxBytes && buffer.Dump(&slices).ok()) {
    for (const grpc::Slice& slice : slices) {
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    v1::PullRequest request;
    if (request.ParseFromString(bytes)) return request;
  }
  return absl::InvalidArgumentError("malformed PullRequest");
}

absl::Status UnknownDType(int dtype) {
  return absl::InvalidArgumentError(absl::StrCat(
      "dtype: ", dtype, "; allowed: F32 (1) and the job's pull_dtype"));
}

}  // namespace

CallCanceller::CallCanceller(grpc::CallbackServerContext* context)
    : call_(context->c_call()) {
  grpc_call_ref(call_);
}

CallCanceller::~CallCanceller() { grpc_call_unref(call_); }

// The server context's TryCancel would tell the client CANCELLED.
void CallCanceller::Cancel(const absl::Status& status) {
  const grpc::Status converted = ToGrpcStatus(status);
  grpc_call_cancel_with_status(
      call_, static_cast<grpc_status_code>(converted.error_code()),
      converted.error_message().c_str(), nullptr);
}

PullReactor::PullReactor(grpc::CallbackServerContext* context,
                         ShardEngine* engine, PullFrameCache* cache)
    : engine_(engine),
      cache_(cache),
      canceller_(std::make_shared<CallCanceller>(context)) {}

PullReactor::~PullReactor() {
  if (revoke_id_ != 0) version_.snapshot->RemoveRevokeCallback(revoke_id_);
}

PullReactor* PullReactor::Start(grpc::CallbackServerContext* context,
                                const grpc::ByteBuffer& request,
                                ShardEngine* engine, PullFrameCache* cache) {
  std::shared_ptr<PullReactor> stream(new PullReactor(context, engine, cache));
  stream->self_ = stream;
  const absl::StatusOr<v1::PullRequest> parsed = Parse(request);
  if (!parsed.ok()) {
    stream->End(parsed.status());
  } else if (parsed->dtype() < v1::F32 || parsed->dtype() > v1::F16) {
    stream->End(UnknownDType(parsed->dtype()));
  } else {
    stream->dtype_ = static_cast<DType>(parsed->dtype());
    stream->Ask(*parsed);
  }
  return stream.get();
}

void PullReactor::Ask(const v1::PullRequest& request) {
  std::weak_ptr<PullReactor> weak = weak_from_this();
  const int64_t id =
      engine_->Pull(request.epoch(), request.version(), request.latest(),
                    [weak](absl::StatusOr<PublishedVersion> version) {
                      if (auto stream = weak.lock())
                        stream->OnVersion(std::move(version));
                    });
  bool ended;
  {
    MutexLock lock(&mutex_);
    pull_id_ = id;
    ended = ended_;
  }
  if (ended) engine_->CancelPull(id);
}

void PullReactor::OnVersion(absl::StatusOr<PublishedVersion> version) {
  if (!version.ok()) {
    End(version.status());
    return;
  }
  if (version->snapshot->data(dtype_) == nullptr) {
    End(UnknownDType(static_cast<int>(dtype_)));
    return;
  }
  version_ = *std::move(version);
  WatchRevocation();
  {
    MutexLock lock(&mutex_);
    frames_ = cache_->Get(version_, dtype_);
  }
  Pump();
}

void PullReactor::WatchRevocation() {
  std::weak_ptr<PullReactor> weak = weak_from_this();
  const uint64_t version = version_.version;
  revoke_id_ = version_.snapshot->AddRevokeCallback(
      [weak, canceller = canceller_, engine = engine_, version] {
        const absl::Status status = absl::AbortedError(absl::StrCat(
            "version ", version, " was replaced while it was being pulled; ",
            "current version ", engine->Status().version));
        if (auto stream = weak.lock()) stream->End(status);
        canceller->Cancel(status);
      });
}

void PullReactor::OnWriteDone(bool ok) {
  {
    MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok && !ended_) {
      ended_ = true;
      status_ = absl::CancelledError("the stream is broken");
    }
  }
  buffer_.Clear();
  Pump();
}

void PullReactor::OnCancel() {
  End(absl::CancelledError("cancelled"));
  int64_t id;
  {
    MutexLock lock(&mutex_);
    id = pull_id_;
  }
  if (id != 0) engine_->CancelPull(id);
}

void PullReactor::OnDone() { const auto self = std::move(self_); }

void PullReactor::End(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (ended_) return;
    ended_ = true;
    status_ = status;
  }
  Pump();
}

void PullReactor::Pump() {
  size_t frame = 0;
  absl::Status status;
  bool write = false;
  {
    MutexLock lock(&mutex_);
    if (writing_ || finished_) return;
    if (ended_) {
      finished_ = true;
      status = status_;
    } else if (frames_ != nullptr) {
      write = writing_ = true;
      frame = next_frame_++;
      finished_ = next_frame_ == frames_->num_frames();
    } else {
      return;
    }
  }
  if (write) {
    Write(frame);
  } else {
    Finish(ToGrpcStatus(status));
  }
}

void PullReactor::Write(size_t frame) {
  std::shared_ptr<PullFrames> frames;
  bool last;
  {
    MutexLock lock(&mutex_);
    frames = frames_;
    last = finished_;
  }
  buffer_ = frames->MakeBuffer(frame, version_);
  engine_->CountPulledBytes(frames->payload_bytes(frame));
  if (last) {
    StartWriteAndFinish(&buffer_, grpc::WriteOptions(), grpc::Status::OK);
  } else {
    StartWrite(&buffer_);
  }
}

}  // namespace agg
