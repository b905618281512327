// The slices of a received message as a stream that protobuf reads.
#ifndef AGG_PROTO_SLICE_STREAM_H_
#define AGG_PROTO_SLICE_STREAM_H_

#include <google/protobuf/io/zero_copy_stream.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace agg {

// Thread-compatible.
class SliceStream : public google::protobuf::io::ZeroCopyInputStream {
 public:
  // `slices` outlives the stream.
  explicit SliceStream(const std::vector<grpc::Slice>* slices)
      : slices_(slices) {}

  bool Next(const void** data, int* size) override {
    while (slice_ < slices_->size() && offset_ == (*slices_)[slice_].size()) {
      ++slice_;
      offset_ = 0;
    }
    if (slice_ == slices_->size()) return false;
    const grpc::Slice& slice = (*slices_)[slice_];
    *data = slice.begin() + offset_;
    *size = static_cast<int>(slice.size() - offset_);
    offset_ = slice.size();
    return true;
  }
  void BackUp(int count) override { offset_ -= count; }
  bool Skip(int count) override {
    const void* data;
    int size;
    while (count > 0) {
      if (!Next(&data, &size)) return false;
      if (size > count) {
        BackUp(size - count);
        return true;
      }
      count -= size;
    }
    return true;
  }
  int64_t ByteCount() const override {
    int64_t bytes = static_cast<int64_t>(offset_);
    for (size_t i = 0; i < slice_; ++i) bytes += (*slices_)[i].size();
    return bytes;
  }

  // Where what was read ends: a slice, and an offset in it.
  size_t slice() const { return slice_; }
  size_t offset() const { return offset_; }

 private:
  const std::vector<grpc::Slice>* slices_;
  size_t slice_ = 0;
  size_t offset_ = 0;
};

}  // namespace agg

#endif  // AGG_PROTO_SLICE_STREAM_H_
