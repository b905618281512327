// Two processes as far as they know: a peer, and a loopback shard whose copies
// are a fake that notes what arrives.
#include "server/rpc/remote_neighbour_peer.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/sync_stream.h>

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/control.grpc.pb.h"
#include "proto/control.pb.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/round/neighbour_peer.h"
#include "server/rpc/copy_streams.h"
#include "tests/server/rpc/loopback_shard.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr CopyHeader kRound{kEpoch, 0, {5, 6}};

using Values = std::map<std::pair<CopyArray, int32_t>, std::vector<float>>;

// Of one shard: takes combined slices, and gives `stored`.
class FakeCopies : public NeighbourPeer {
 public:
  absl::Status SendCombined(const CopyHeader& header,
                            const CopySlice& slice) override {
    MutexLock lock(&mutex);
    while (hangs) changed.Wait(&mutex);
    headers.push_back(header);
    landed[{slice.array, slice.slice}].assign(slice.values.begin(),
                                              slice.values.end());
    return answer;
  }
  absl::Status FinishCombined(const CopyHeader& header) override {
    MutexLock lock(&mutex);
    headers.push_back(header);
    ++num_finished;
    return answer;
  }
  absl::Status Fetch(const CopyHeader& header, const CopySink& sink) override {
    {
      MutexLock lock(&mutex);
      headers.push_back(header);
    }
    absl::Status status;
    for (const auto& entry : stored) {
      if (!status.ok()) break;
      status = sink.slice({entry.first.first, entry.first.second,
                           absl::MakeConstSpan(entry.second)});
    }
    if (status.ok() && header.part == 0) status = sink.record(record);
    if (on_fetched != nullptr) on_fetched(header, status);
    MutexLock lock(&mutex);
    return status.ok() ? answer : status;
  }

  void SetHangs(bool value) {
    MutexLock lock(&mutex);
    hangs = value;
    changed.NotifyAll();
  }
  void SetAnswer(const absl::Status& status) {
    MutexLock lock(&mutex);
    answer = status;
  }

  // Set before the calls.
  Values stored;
  std::string record;
  std::function<void(const CopyHeader&, const absl::Status&)> on_fetched;

  Mutex mutex;
  CondVar changed;
  bool hangs ABSL_GUARDED_BY(mutex) = false;
  absl::Status answer ABSL_GUARDED_BY(mutex);
  std::vector<CopyHeader> headers ABSL_GUARDED_BY(mutex);
  Values landed ABSL_GUARDED_BY(mutex);
  int num_finished ABSL_GUARDED_BY(mutex) = 0;
};

class RemoteNeighbourPeerTest : public ::testing::Test {
 protected:
  RemoteNeighbourPeerTest() {
    shard_.set_copies(&copies_);
    shard_.Serve();
    peer_ = NewPeer();
  }

  std::unique_ptr<RemoteNeighbourPeer> NewPeer() {
    RemoteNeighbourOptions options;
    options.self = 0;
    options.ordinal = 1;
    options.address = shard_.address();
    options.clock = &clock_;
    return std::make_unique<RemoteNeighbourPeer>(options);
  }

  absl::Status Send(int32_t slice, const std::vector<float>& values) {
    return peer_->SendCombined(
        kRound, {CopyArray::kCombined, slice, absl::MakeConstSpan(values)});
  }

  // Moves the clock on until `call` has an answer.
  absl::Status Outlast(std::future<absl::Status> call) {
    while (call.wait_for(std::chrono::milliseconds(10)) !=
           std::future_status::ready) {
      clock_.Advance(absl::Seconds(5));
    }
    return call.get();
  }

  FakeClock clock_;
  FakeCopies copies_;
  LoopbackShard shard_{1, 2};
  std::unique_ptr<RemoteNeighbourPeer> peer_;
};

TEST_F(RemoteNeighbourPeerTest, ARoundsSlicesArrive) {
  // Three frames: large ones, and many small ones that share one.
  Values expected;
  for (int32_t slice = 0; slice < 300; ++slice) {
    expected[{CopyArray::kCombined, slice}] = std::vector<float>(
        slice < 2 ? 1 << 20 : 1 + slice % 7, static_cast<float>(slice) + 0.5f);
  }
  for (const auto& entry : expected) {
    ASSERT_EQ(Send(entry.first.second, entry.second), absl::OkStatus());
  }
  ASSERT_EQ(peer_->FinishCombined(kRound), absl::OkStatus());
  MutexLock lock(&copies_.mutex);
  EXPECT_TRUE(copies_.landed == expected);
  EXPECT_EQ(copies_.num_finished, 1);
  for (const CopyHeader& header : copies_.headers) {
    EXPECT_EQ(header.epoch, kEpoch);
    EXPECT_EQ(header.part, 0);
    EXPECT_EQ(header.id, (VersionId{5, 6}));
  }
}

TEST_F(RemoteNeighbourPeerTest, CallsGoToTheAddressOfNow) {
  RemoteNeighbourOptions options;
  options.ordinal = 1;
  options.address = "127.0.0.1:1";
  options.clock = &clock_;
  peer_ = std::make_unique<RemoteNeighbourPeer>(options);
  peer_->SetAddress(shard_.address());
  ASSERT_EQ(Send(0, {1.0f}), absl::OkStatus());
  EXPECT_EQ(peer_->FinishCombined(kRound), absl::OkStatus());
}

TEST_F(RemoteNeighbourPeerTest, APartWithoutSlicesIsFinishedToo) {
  ASSERT_EQ(peer_->FinishCombined(kRound), absl::OkStatus());
  MutexLock lock(&copies_.mutex);
  EXPECT_EQ(copies_.num_finished, 1);
  ASSERT_EQ(copies_.headers.size(), 1u);
  EXPECT_EQ(copies_.headers[0].id, (VersionId{5, 6}));
}

TEST_F(RemoteNeighbourPeerTest, TheNeighboursErrorKeepsItsCode) {
  copies_.SetAnswer(absl::AbortedError("stale epoch 7"));
  absl::Status status = Send(0, {1.0f});
  if (status.ok()) status = peer_->FinishCombined(kRound);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("shard 1 (127.0.0.1:"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("stale epoch 7"));
  // What comes next is a new call.
  copies_.SetAnswer(absl::OkStatus());
  ASSERT_EQ(Send(0, {2.0f}), absl::OkStatus());
  EXPECT_EQ(peer_->FinishCombined(kRound), absl::OkStatus());
}

TEST_F(RemoteNeighbourPeerTest, ARoundThatWasLeftIsNotFinished) {
  ASSERT_EQ(Send(0, std::vector<float>(1 << 20, 1.0f)), absl::OkStatus());
  ASSERT_EQ(Send(1, {1.0f}), absl::OkStatus());  // the first one is on its way
  CopyHeader next = kRound;
  next.epoch = kEpoch + 1;
  ASSERT_EQ(peer_->FinishCombined(next), absl::OkStatus());
  MutexLock lock(&copies_.mutex);
  EXPECT_EQ(copies_.num_finished, 1);
  EXPECT_EQ(copies_.headers.back().epoch, kEpoch + 1);
}

TEST_F(RemoteNeighbourPeerTest, ANeighbourThatHangsIsNotWaitedForForEver) {
  copies_.SetHangs(true);
  ASSERT_EQ(Send(0, {1.0f}), absl::OkStatus());
  const absl::Status status = Outlast(std::async(
      std::launch::async, [&] { return peer_->FinishCombined(kRound); }));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the link from shard 0 to shard 1 (127.0.0.1:"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no progress for 30s"));
  copies_.SetHangs(false);
}

TEST_F(RemoteNeighbourPeerTest, ANeighbourThatIsGone) {
  shard_.Stop();
  ASSERT_EQ(Send(0, {1.0f}), absl::OkStatus());
  const absl::Status status = Outlast(std::async(
      std::launch::async, [&] { return peer_->FinishCombined(kRound); }));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the link from shard 0 to shard 1"));
  // A connection is waited for as long as one that broke (P24).
  EXPECT_THAT(std::string(status.message()), HasSubstr("no progress for 5s"));
}

TEST_F(RemoteNeighbourPeerTest, ADamagedSliceIsRefusedByName) {
  auto stub = v1::ShardControl::NewStub(shard_.NewChannel());
  v1::CopyFrame frame;
  frame.set_epoch(kEpoch);
  frame.add_slices(4);
  frame.add_elements(1);
  frame.add_crc32c(123);
  frame.set_payload(std::string(4, 'x'));
  const auto send = [&] {
    grpc::ClientContext context;
    v1::ReplicateReply reply;
    auto writer = stub->Replicate(&context, &reply);
    writer->Write(frame);
    writer->WritesDone();
    return writer->Finish();
  };
  grpc::Status status = send();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_THAT(status.error_message(), HasSubstr("slice 4 arrived damaged"));
  frame.set_array(v1::CopyFrame::STATE0);
  status = send();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  MutexLock lock(&copies_.mutex);
  EXPECT_TRUE(copies_.landed.empty());
  EXPECT_EQ(copies_.num_finished, 0);
}

// As when its sender has died.
TEST_F(RemoteNeighbourPeerTest, AStreamWithoutItsLastFrameIsRefused) {
  auto stub = v1::ShardControl::NewStub(shard_.NewChannel());
  grpc::ClientContext context;
  v1::ReplicateReply reply;
  auto writer = stub->Replicate(&context, &reply);
  writer->WritesDone();
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// What a fetch has brought.
struct Fetched {
  CopySink Sink() {
    CopySink sink;
    sink.slice = [this](const CopySlice& slice) {
      values[{slice.array, slice.slice}].assign(slice.values.begin(),
                                                slice.values.end());
      return answer;
    };
    sink.record = [this](std::string text) {
      record = std::move(text);
      ++num_records;
      return absl::OkStatus();
    };
    return sink;
  }
  Values values;
  std::string record;
  int num_records = 0;
  absl::Status answer;
};

TEST_F(RemoteNeighbourPeerTest, ACopyIsFetchedWithItsRecord) {
  for (const CopyArray array :
       {CopyArray::kParameters, CopyArray::kState0, CopyArray::kState1}) {
    copies_.stored[{array, 0}] = std::vector<float>(1 << 20, 0.5f);
    copies_.stored[{array, 2}] = std::vector<float>(3, 1.5f);
    copies_.stored[{array, 5}] = std::vector<float>(1, 2.5f);
  }
  copies_.record = std::string(7 << 20, 'r');
  Fetched fetched;
  ASSERT_EQ(peer_->Fetch(kRound, fetched.Sink()), absl::OkStatus());
  EXPECT_TRUE(fetched.values == copies_.stored);
  EXPECT_EQ(fetched.num_records, 1);
  EXPECT_TRUE(fetched.record == copies_.record);
  // Of another part there is none.
  Fetched other;
  CopyHeader header = kRound;
  header.part = 1;
  ASSERT_EQ(peer_->Fetch(header, other.Sink()), absl::OkStatus());
  EXPECT_EQ(other.num_records, 0);
}

TEST_F(RemoteNeighbourPeerTest, AFetchEndsWithTheNeighboursError) {
  copies_.stored[{CopyArray::kParameters, 0}] = {1.0f};
  copies_.SetAnswer(absl::FailedPreconditionError("no such copy"));
  Fetched fetched;
  const absl::Status status = peer_->Fetch(kRound, fetched.Sink());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("shard 1 (127.0.0.1:"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no such copy"));
  EXPECT_EQ(fetched.num_records, 0);
}

TEST_F(RemoteNeighbourPeerTest, ASinksErrorEndsTheFetchOnBothSides) {
  for (int32_t slice = 0; slice < 20; ++slice) {
    copies_.stored[{CopyArray::kParameters, slice}] =
        std::vector<float>(1 << 20, 0.5f);
  }
  std::promise<absl::Status> given;
  copies_.on_fetched = [&](const CopyHeader&, const absl::Status& status) {
    given.set_value(status);
  };
  Fetched fetched;
  fetched.answer = absl::ResourceExhaustedError("no memory");
  const absl::Status status = peer_->Fetch(kRound, fetched.Sink());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(given.get_future().get().code(), absl::StatusCode::kCancelled);
}

// Each of a shard's two parts may be asked for, and by two shards.
TEST_F(RemoteNeighbourPeerTest, FetchesOfTwoPartsDoNotWaitForEachOther) {
  std::promise<void> done;
  std::shared_future<void> other_is_done = done.get_future().share();
  copies_.on_fetched = [&](const CopyHeader& header, const absl::Status&) {
    if (header.part == 0) other_is_done.wait();
  };
  Fetched first;
  auto running = std::async(std::launch::async,
                            [&] { return peer_->Fetch(kRound, first.Sink()); });
  Fetched second;
  CopyHeader header = kRound;
  header.part = 1;
  EXPECT_EQ(peer_->Fetch(header, second.Sink()), absl::OkStatus());
  done.set_value();
  EXPECT_EQ(running.get(), absl::OkStatus());
}

// The thread of a part's fetches is there for the next one.
TEST(CopyStreamsTest, AFetchThatNobodyReadsEnds) {
  FakeCopies copies;
  for (int32_t slice = 0; slice < 16; ++slice) {
    copies.stored[{CopyArray::kParameters, slice}].assign(1 << 20, 1.0f);
  }
  std::promise<absl::Status> ended;
  copies.on_fetched = [&](const CopyHeader&, const absl::Status& status) {
    ended.set_value(status);
  };
  FakeClock clock;
  LoopbackShard shard(1, 2);
  shard.set_copies(&copies);
  shard.Serve(/*coordinator=*/nullptr, &clock);
  v1::FetchRequest request;
  request.set_epoch(kEpoch);
  grpc::ClientContext context;
  const auto stub = v1::ShardControl::NewStub(shard.NewChannel());
  const auto reader = stub->Fetch(&context, request);
  auto future = ended.get_future();
  while (future.wait_for(std::chrono::milliseconds(10)) !=
         std::future_status::ready) {
    clock.Advance(CopyStreams::kUnreadTime);
  }
  const absl::Status status = future.get();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("nobody has taken a frame for 30s"));
  v1::CopyFrame frame;
  while (reader->Read(&frame)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(CopyStreamsTest, WithoutCopiesCallsAreRefused) {
  LoopbackShard shard(1, 2);
  shard.Serve();
  RemoteNeighbourOptions options;
  options.address = shard.address();
  RemoteNeighbourPeer peer(options);
  EXPECT_EQ(peer.FinishCombined(kRound).code(),
            absl::StatusCode::kFailedPrecondition);
  Fetched fetched;
  EXPECT_EQ(peer.Fetch(kRound, fetched.Sink()).code(),
            absl::StatusCode::kFailedPrecondition);
  CopyHeader header = kRound;
  header.part = 5000;
  EXPECT_THAT(std::string(peer.Fetch(header, fetched.Sink()).message()),
              HasSubstr("part is 5000; allowed: 0 to 1023"));
}

constexpr CopyHeader kHeader{7, 1, {5, 6}};

CopySlice Slice(CopyArray array, int32_t slice,
                const std::vector<float>& values) {
  return {array, slice, absl::MakeConstSpan(values)};
}

v1::CopyFrame Parsed(CopyFrameBuilder* builder) {
  grpc::ByteBuffer buffer = builder->Take();
  v1::CopyFrame frame;
  EXPECT_EQ(ParseCopyFrame(&buffer, &frame), absl::OkStatus());
  return frame;
}

// The slices of a frame, with copies of their values.
absl::Status Read(const v1::CopyFrame& frame,
                  std::vector<std::pair<int32_t, std::vector<float>>>* out) {
  return ForEachSlice(frame, [&](const CopySlice& slice) {
    EXPECT_EQ(slice.array, CopyArray::kState0);
    out->push_back({slice.slice, {slice.values.begin(), slice.values.end()}});
    return absl::OkStatus();
  });
}

v1::CopyFrame TwoSlices() {
  CopyFrameBuilder builder(kHeader);
  builder.Add(Slice(CopyArray::kState0, 3, {1.0f, 2.0f, 3.0f}));
  builder.Add(Slice(CopyArray::kState0, 9, {4.0f}));
  return Parsed(&builder);
}

TEST(CopyFrameTest, SlicesOfAnySizesShareAFrame) {
  const v1::CopyFrame frame = TwoSlices();
  CopyHeader header;
  ASSERT_EQ(ReadHeader(frame, &header), absl::OkStatus());
  EXPECT_EQ(header.epoch, 7u);
  EXPECT_EQ(header.part, 1);
  EXPECT_EQ(header.id, (VersionId{5, 6}));
  std::vector<std::pair<int32_t, std::vector<float>>> slices;
  ASSERT_EQ(Read(frame, &slices), absl::OkStatus());
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].first, 3);
  EXPECT_THAT(slices[0].second, ElementsAre(1.0f, 2.0f, 3.0f));
  EXPECT_EQ(slices[1].first, 9);
  EXPECT_THAT(slices[1].second, ElementsAre(4.0f));
}

TEST(CopyFrameTest, TheFirstFrameAloneSaysWhoseBytesFollow) {
  CopyFrameBuilder builder(kHeader);
  EXPECT_TRUE(builder.empty());
  EXPECT_EQ(Parsed(&builder).epoch(), 7u);
  const std::vector<float> values = {1.0f};
  builder.Add(Slice(CopyArray::kState1, 0, values));
  EXPECT_FALSE(builder.empty());
  const v1::CopyFrame second = Parsed(&builder);
  EXPECT_EQ(second.epoch(), 0u);
  EXPECT_EQ(second.array(), v1::CopyFrame::STATE1);
  EXPECT_FALSE(second.last());
  EXPECT_TRUE(builder.empty());
  grpc::ByteBuffer buffer = builder.Take(/*last=*/true);
  v1::CopyFrame last;
  ASSERT_EQ(ParseCopyFrame(&buffer, &last), absl::OkStatus());
  EXPECT_TRUE(last.last());
}

TEST(CopyFrameTest, AFrameHasOneArrayAndABoundedSize) {
  const std::vector<float> half(512 << 10, 0.5f);
  const std::vector<float> one = {1.0f};
  CopyFrameBuilder builder(kHeader);
  builder.Add(Slice(CopyArray::kCombined, 0, half));
  EXPECT_FALSE(builder.Fits(Slice(CopyArray::kParameters, 1, one)));
  EXPECT_TRUE(builder.Fits(Slice(CopyArray::kCombined, 1, half)));
  builder.Add(Slice(CopyArray::kCombined, 1, half));  // 4 MiB
  EXPECT_FALSE(builder.Fits(Slice(CopyArray::kCombined, 2, one)));
  builder.Take();
  for (int i = 0; i < 1024; ++i) {
    ASSERT_TRUE(builder.Fits(Slice(CopyArray::kCombined, i, one))) << i;
    builder.Add(Slice(CopyArray::kCombined, i, one));
  }
  EXPECT_FALSE(builder.Fits(Slice(CopyArray::kCombined, 1024, one)));
  builder.Take();
  builder.SetRecord("text");
  EXPECT_FALSE(builder.Fits(Slice(CopyArray::kCombined, 0, one)));
  EXPECT_EQ(Parsed(&builder).record(), "text");
}

TEST(CopyFrameTest, ADamagedSliceIsNamed) {
  v1::CopyFrame frame = TwoSlices();
  (*frame.mutable_payload())[13] ^= 1;  // of the second slice
  std::vector<std::pair<int32_t, std::vector<float>>> slices;
  const absl::Status status = Read(frame, &slices);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("slice 9 arrived damaged"));
  EXPECT_EQ(slices.size(), 1u);
}

template <typename Change>
std::string Refusal(const Change& change) {
  v1::CopyFrame frame = TwoSlices();
  change(&frame);
  const absl::Status status =
      ForEachSlice(frame, [](const CopySlice&) { return absl::OkStatus(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(CopyFrameTest, FieldsThatDoNotFitTogetherAreRefused) {
  EXPECT_THAT(Refusal([](auto* f) { f->add_slices(1); }),
              HasSubstr("a frame has 3 slices, 2 checksums and 2 sizes"));
  EXPECT_THAT(Refusal([](auto* f) { f->clear_crc32c(); }),
              HasSubstr("2 slices, 0 checksums"));
  EXPECT_THAT(Refusal([](auto* f) { f->set_elements(0, 4); }),
              HasSubstr("payload is 16 bytes; allowed: 20 bytes"));
  EXPECT_THAT(Refusal([](auto* f) { f->set_elements(0, 0xffffffff); }),
              HasSubstr("payload is 16 bytes; allowed: 17179869184 bytes"));
  EXPECT_THAT(Refusal([](auto* f) { f->set_slices(0, 0x80000000); }),
              HasSubstr("slices is 2147483648"));
  EXPECT_THAT(Refusal([](auto* f) {
                f->set_array(static_cast<v1::CopyFrame::Array>(9));
              }),
              HasSubstr("array is 9; allowed: COMBINED (0)"));
  v1::CopyFrame frame;
  frame.set_part(0x80000000);
  CopyHeader header;
  EXPECT_THAT(std::string(ReadHeader(frame, &header).message()),
              HasSubstr("part is 2147483648"));
}

TEST(CopyFrameTest, BytesThatAreNoMessageAreRefused) {
  const grpc::Slice bytes("\xff\xff\xff");
  grpc::ByteBuffer buffer(&bytes, 1);
  v1::FetchRequest request;
  EXPECT_FALSE(ParseFetchRequest(buffer, &request).ok());
  v1::CopyFrame frame;
  EXPECT_FALSE(ParseCopyFrame(&buffer, &frame).ok());
  request.set_part(3);
  v1::FetchRequest back;
  EXPECT_EQ(ParseFetchRequest(Serialize(request), &back), absl::OkStatus());
  EXPECT_EQ(back.part(), 3u);
}

}  // namespace
}  // namespace agg
