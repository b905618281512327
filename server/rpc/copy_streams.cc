// Two reactors. gRPC's callback threads only hand over: what they would wait
// for is waited for on an executor's thread.
#include "server/rpc/copy_streams.h"

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/status_conversion.h"
#include "server/base/field_error.h"
#include "server/base/log.h"
#include "server/base/mutex.h"
#include "server/rpc/call_canceller.h"
#include "server/rpc/copy_frame.h"
#include "server/rpc/phase_limits.h"

namespace agg {
namespace {

absl::Status ReadRequest(const grpc::ByteBuffer& buffer, CopyHeader* header) {
  v1::FetchRequest request;
  const absl::Status status = ParseFetchRequest(buffer, &request);
  if (!status.ok()) return status;
  if (request.part() >= kMaxPhaseShards) {
    return FieldError("part", absl::StrCat(request.part()),
                      absl::StrCat("0 to ", kMaxPhaseShards - 1));
  }
  header->epoch = request.epoch();
  header->part = static_cast<int32_t>(request.part());
  header->id = {request.made(), request.version()};
  return absl::OkStatus();
}

absl::Status NoCopies() {
  return absl::FailedPreconditionError("no copies are kept here");
}

// A frame is landed before the next one is read, so that a neighbour that sends
// faster than it is landed waits. Owns itself until OnDone, which comes after
// Finish: whoever has not called it may use `this`.
class ReplicateStream : public grpc::ServerReadReactor<v1::CopyFrame> {
 public:
  ReplicateStream(NeighbourPeer* copies, Executor* executor)
      : copies_(copies), executor_(executor) {
    if (copies_ == nullptr) {
      Finish(ToGrpcStatus(NoCopies()));
    } else {
      StartRead(&frame_);
    }
  }

 private:
  void OnReadDone(bool ok) override {
    if (ok) {
      executor_->Run([this] { LandFrame(); });
    } else if (ended_) {
      executor_->Run(
          [this] { Finish(ToGrpcStatus(copies_->FinishCombined(header_))); });
    } else {
      // Also the end of a connection.
      Finish(ToGrpcStatus(absl::InvalidArgumentError(
          "the round has ended before its last frame")));
    }
  }

  void LandFrame() {
    const absl::Status status = TakeFrame();
    if (status.ok()) {
      StartRead(&frame_);
    } else {
      Finish(ToGrpcStatus(status));
    }
  }

  absl::Status TakeFrame() {
    if (!has_header_) {
      const absl::Status status = ReadHeader(frame_, &header_);
      if (!status.ok()) return status;
      has_header_ = true;
    }
    if (frame_.array() != v1::CopyFrame::COMBINED || !frame_.record().empty()) {
      return absl::InvalidArgumentError(
          "a frame is of another array, or has a record; allowed: slices of "
          "COMBINED (0)");
    }
    ended_ = frame_.last();
    return ForEachSlice(frame_, [this](const CopySlice& slice) {
      return copies_->SendCombined(header_, slice);
    });
  }

  void OnCancel() override {}
  void OnDone() override { delete this; }

  NeighbourPeer* const copies_;
  Executor* const executor_;
  v1::CopyFrame frame_;  // being read, or landed
  CopyHeader header_;    // of the first frame
  bool has_header_ = false;
  bool ended_ = false;  // by its last frame
};

// Its body runs on an executor's thread and waits there for each write, but not
// for a peer that does not read: then it leaves the thread, and the call's end
// to OnWriteDone, which gRPC may only call with the connection's end. Owns
// itself until OnDone, as above.
class FetchStream : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  FetchStream(grpc::CallbackServerContext* context, NeighbourPeer* copies,
              const CopyHeader& header, const Clock* clock)
      : canceller_(context),
        copies_(copies),
        header_(header),
        clock_(clock),
        frames_(header) {}

  void Run() {
    CopySink sink;
    sink.slice = [this](const CopySlice& slice) { return AddSlice(slice); };
    sink.record = [this](const std::string& text) { return AddRecord(text); };
    absl::Status status = copies_->Fetch(header_, sink);
    if (status.ok() && !frames_.empty()) status = WriteFrame();
    const absl::Status written = AwaitWrite();
    if (status.ok()) status = written;
    {
      MutexLock lock(&mutex_);
      if (writing_) {
        left_ = true;
        end_ = status;
        return;
      }
    }
    Finish(ToGrpcStatus(status));
  }

  // Instead of Run.
  void Refuse(const absl::Status& status) { Finish(ToGrpcStatus(status)); }

 private:
  absl::Status AddSlice(const CopySlice& slice) {
    if (!frames_.Fits(slice)) {
      const absl::Status status = WriteFrame();
      if (!status.ok()) return status;
    }
    frames_.Add(slice);
    return absl::OkStatus();
  }

  absl::Status AddRecord(absl::string_view text) {
    absl::Status status;
    if (!frames_.empty()) status = WriteFrame();
    while (status.ok() && !text.empty()) {
      const absl::string_view piece = text.substr(0, kMaxPhaseMessageBytes);
      frames_.SetRecord(piece);
      text.remove_prefix(piece.size());
      status = WriteFrame();
    }
    return status;
  }

  absl::Status WriteFrame() {
    const absl::Status status = AwaitWrite();
    if (!status.ok()) return status;
    buffer_ = frames_.Take();
    {
      MutexLock lock(&mutex_);
      writing_ = true;
    }
    StartWrite(&buffer_);
    return absl::OkStatus();
  }

  absl::Status AwaitWrite() {
    const absl::Time deadline = clock_->Now() + CopyStreams::kUnreadTime;
    {
      MutexLock lock(&mutex_);
      while (writing_ && !broken_ && clock_->Now() < deadline) {
        changed_.WaitFor(&mutex_, kPeriod);
      }
      if (broken_) return absl::CancelledError("cancelled");
      if (!writing_) return absl::OkStatus();
      broken_ = true;
    }
    const absl::Status unread = absl::UnavailableError(absl::StrCat(
        "fetch of part ", header_.part, ": nobody has taken a frame for ",
        absl::FormatDuration(CopyStreams::kUnreadTime)));
    LogWarning(unread.message());
    canceller_.Cancel(unread);
    return unread;
  }

  // The notification is under the lock: once it is released, Run may finish
  // the call, and this is deleted.
  void OnWriteDone(bool ok) override {
    absl::Status end;
    {
      MutexLock lock(&mutex_);
      writing_ = false;
      broken_ |= !ok;
      changed_.NotifyAll();
      if (!left_) return;
      end = end_;
    }
    Finish(ToGrpcStatus(end));
  }
  void OnCancel() override {
    MutexLock lock(&mutex_);
    broken_ = true;
    changed_.NotifyAll();
  }
  void OnDone() override { delete this; }

  // How often the clock is asked, which may be one that leaves out time.
  static constexpr absl::Duration kPeriod = absl::Milliseconds(100);

  CallCanceller canceller_;
  NeighbourPeer* const copies_;
  const CopyHeader header_;
  const Clock* const clock_;
  // Used by Run alone.
  CopyFrameBuilder frames_;
  grpc::ByteBuffer buffer_;  // in flight

  Mutex mutex_;
  CondVar changed_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;  // no more writes
  bool left_ ABSL_GUARDED_BY(mutex_) = false;    // Run has, while one goes on
  absl::Status end_ ABSL_GUARDED_BY(mutex_);     // with left_
};

}  // namespace

grpc::ServerReadReactor<v1::CopyFrame>* CopyStreams::Replicate() {
  return new ReplicateStream(copies_, &landing_);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* CopyStreams::Fetch(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer& buffer) {
  CopyHeader header;
  absl::Status status = ReadRequest(buffer, &header);
  if (status.ok() && copies_ == nullptr) status = NoCopies();
  auto* stream = new FetchStream(context, copies_, header, clock_);
  if (status.ok()) {
    fetches_[header.part == ordinal_ ? 0 : 1].Run([stream] { stream->Run(); });
  } else {
    stream->Refuse(status);
  }
  return stream;
}

}  // namespace agg
