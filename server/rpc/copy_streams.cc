// Two reactors. gRPC's callback threads only hand over: what they would wait
// for is waited for on an executor's thread.
#include "server/rpc/copy_streams.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/byte_buffer_frame.h"
#include "proto/crc32c.h"
#include "proto/shard_plan.h"
#include "proto/status_conversion.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"
#include "server/base/line_limits.h"
#include "server/base/log.h"
#include "server/base/mutex.h"
#include "server/base/status_macros.h"
#include "server/rpc/long_poll.h"
#include "server/rpc/phase_conversion.h"

namespace agg {

// A frame is valid protobuf, whose last field, the payload, is written by hand:
// its bytes are handed to gRPC where they lie.

namespace {

// As in a pull: the names of the slices stay smaller than their bytes.
constexpr int kMaxSlicesPerFrame = 1024;
constexpr uint32_t kPayloadTag = (15 << 3) | 2;
constexpr size_t kMaxFetchRequestBytes = 1024;

absl::string_view Bytes(const CopySlice& slice) {
  return absl::string_view(reinterpret_cast<const char*>(slice.values.data()),
                           slice.values.size() * sizeof(float));
}

v1::CopyFrame::Array ToProto(CopyArray array) {
  switch (array) {
    case CopyArray::kCombined:
      return v1::CopyFrame::COMBINED;
    case CopyArray::kParameters:
      return v1::CopyFrame::PARAMETERS;
    case CopyArray::kState0:
      return v1::CopyFrame::STATE0;
    case CopyArray::kState1:
      return v1::CopyFrame::STATE1;
  }
  return v1::CopyFrame::COMBINED;
}

absl::Status ReadArray(v1::CopyFrame::Array array, CopyArray* out) {
  switch (array) {
    case v1::CopyFrame::COMBINED:
      *out = CopyArray::kCombined;
      return absl::OkStatus();
    case v1::CopyFrame::PARAMETERS:
      *out = CopyArray::kParameters;
      return absl::OkStatus();
    case v1::CopyFrame::STATE0:
      *out = CopyArray::kState0;
      return absl::OkStatus();
    case v1::CopyFrame::STATE1:
      *out = CopyArray::kState1;
      return absl::OkStatus();
    default:
      break;
  }
  return FieldError("array", absl::StrCat(static_cast<int>(array)),
                    "COMBINED (0), PARAMETERS (1), STATE0 (2), STATE1 (3)");
}

// Each slice has its checksum and its size, and together they are the payload.
absl::Status CheckCounts(const v1::CopyFrame& frame) {
  const int count = frame.slices_size();
  if (frame.crc32c_size() != count || frame.elements_size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("a frame has ", count, " slices, ", frame.crc32c_size(),
                     " checksums and ", frame.elements_size(),
                     " sizes; allowed: as many of each"));
  }
  int64_t num_bytes = 0;
  for (const uint32_t elements : frame.elements()) {
    num_bytes += int64_t{elements} * static_cast<int64_t>(sizeof(float));
  }
  if (num_bytes == static_cast<int64_t>(frame.payload().size())) {
    return absl::OkStatus();
  }
  return FieldError("payload", absl::StrCat(frame.payload().size(), " bytes"),
                    absl::StrCat(num_bytes, " bytes, by its slices' sizes"));
}

}  // namespace

CopyFrameBuilder::CopyFrameBuilder(const CopyHeader& header) {
  meta_.set_epoch(header.epoch);
  meta_.set_part(static_cast<uint32_t>(header.part));
  meta_.set_made(header.id.made);
  meta_.set_version(header.id.version);
}

bool CopyFrameBuilder::empty() const {
  return meta_.slices_size() == 0 && meta_.record().empty();
}

bool CopyFrameBuilder::Fits(const CopySlice& slice) const {
  if (empty()) return true;
  return meta_.record().empty() && meta_.array() == ToProto(slice.array) &&
         meta_.slices_size() < kMaxSlicesPerFrame &&
         static_cast<int64_t>(payload_->size() + Bytes(slice).size()) <=
             kMaxFramePayloadBytes;
}

void CopyFrameBuilder::Add(const CopySlice& slice) {
  AGG_DCHECK(Fits(slice));
  const absl::string_view bytes = Bytes(slice);
  if (payload_ == nullptr) payload_ = std::make_shared<std::string>();
  payload_->append(bytes.data(), bytes.size());
  meta_.set_array(ToProto(slice.array));
  meta_.add_slices(static_cast<uint32_t>(slice.slice));
  meta_.add_crc32c(Crc32c(bytes));
  meta_.add_elements(static_cast<uint32_t>(slice.values.size()));
}

void CopyFrameBuilder::SetRecord(absl::string_view piece) {
  AGG_DCHECK(empty());
  meta_.set_record(piece.data(), piece.size());
}

grpc::ByteBuffer CopyFrameBuilder::Take(bool last) {
  meta_.set_last(last);
  std::string head = meta_.SerializeAsString();
  std::vector<grpc::Slice> slices;
  if (payload_ != nullptr) {
    google::protobuf::io::StringOutputStream stream(&head);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.WriteTag(kPayloadTag);
    coded.WriteVarint32(static_cast<uint32_t>(payload_->size()));
  }
  slices.emplace_back(head);
  if (payload_ != nullptr) slices.push_back(AliasSlice(*payload_, payload_));
  meta_.Clear();
  payload_ = nullptr;
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::Status ReadHeader(const v1::CopyFrame& frame, CopyHeader* header) {
  if (frame.part() > std::numeric_limits<int32_t>::max()) {
    return FieldError("part", absl::StrCat(frame.part()), "a shard's ordinal");
  }
  header->epoch = frame.epoch();
  header->part = static_cast<int32_t>(frame.part());
  header->id = {frame.made(), frame.version()};
  return absl::OkStatus();
}

absl::Status ForEachSlice(
    const v1::CopyFrame& frame,
    const std::function<absl::Status(const CopySlice&)>& sink) {
  CopySlice slice;
  absl::Status status = CheckCounts(frame);
  if (status.ok()) status = ReadArray(frame.array(), &slice.array);
  // A string's bytes are aligned as any memory is, and a slice has a multiple
  // of four.
  const char* bytes = frame.payload().data();
  for (int i = 0; status.ok() && i < frame.slices_size(); ++i) {
    const size_t num_elements = frame.elements(i);
    const size_t num_bytes = num_elements * sizeof(float);
    if (frame.slices(i) > std::numeric_limits<int32_t>::max()) {
      return FieldError("slices", absl::StrCat(frame.slices(i)),
                        "slices of the plan");
    }
    if (Crc32c(absl::string_view(bytes, num_bytes)) != frame.crc32c(i)) {
      return absl::DataLossError(absl::StrCat(
          "slice ", frame.slices(i),
          " arrived damaged: ", "its bytes do not have the sender's CRC32C"));
    }
    slice.slice = static_cast<int32_t>(frame.slices(i));
    slice.values = absl::MakeConstSpan(reinterpret_cast<const float*>(bytes),
                                       num_elements);
    status = sink(slice);
    bytes += num_bytes;
  }
  return status;
}

absl::Status ParseCopyFrame(grpc::ByteBuffer* buffer, v1::CopyFrame* frame) {
  const grpc::Status status =
      grpc::SerializationTraits<v1::CopyFrame>::Deserialize(buffer, frame);
  return status.ok() ? absl::OkStatus()
                     : absl::InvalidArgumentError("malformed CopyFrame");
}

absl::Status ParseFetchRequest(const grpc::ByteBuffer& buffer,
                               v1::FetchRequest* request) {
  grpc::Slice slice;
  if (buffer.Length() <= kMaxFetchRequestBytes &&
      buffer.DumpToSingleSlice(&slice).ok() &&
      request->ParseFromArray(slice.begin(), static_cast<int>(slice.size()))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("malformed FetchRequest");
}

grpc::ByteBuffer Serialize(const v1::FetchRequest& request) {
  const grpc::Slice slice(request.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

namespace {

absl::Status ReadRequest(const grpc::ByteBuffer& buffer, CopyHeader* header) {
  v1::FetchRequest request;
  AGG_RETURN_IF_ERROR(ParseFetchRequest(buffer, &request));
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
      AGG_RETURN_IF_ERROR(ReadHeader(frame_, &header_));
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
      AGG_RETURN_IF_ERROR(WriteFrame());
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
    AGG_RETURN_IF_ERROR(AwaitWrite());
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
    LogWarningOf(WithoutNumbers(unread.message()), unread.message());
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
