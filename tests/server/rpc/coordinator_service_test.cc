#include "server/rpc/coordinator_service.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/support/sync_stream.h>

#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/agg.grpc.pb.h"
#include "proto/external_rule.grpc.pb.h"
#include "proto/external_rule.pb.h"
#include "proto/join_parts.pb.h"
#include "proto/manifest_message.h"
#include "proto/manifest_size.h"
#include "server/base/clock.h"
#include "server/base/field_error.h"
#include "server/base/mutex.h"
#include "server/combine/rule_table.h"
#include "tests/server/rpc/loopback_shard.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::JoinRequest JoinOf(int rank) {
  v1::JoinRequest request;
  request.set_protocol_version(1);
  request.set_rank(rank);
  v1::Tensor* tensor = request.mutable_manifest()->add_tensors();
  tensor->set_name("x");
  tensor->add_shape(2);
  return request;
}

// One shard, its coordinator, and plain stubs.
class CoordinatorServiceTest : public ::testing::Test {
 protected:
  explicit CoordinatorServiceTest(const std::string& rule = "mean") {
    CoordinatorOptions options;
    options.combine.rule.rule = FindRule(rule);
    options.combine.rule.scope = options.combine.rule.rule->default_scope;
    options.combine.schedule.learning_rate = 0.5;
    options.max_workers = 4;
    coordinator_ = std::make_unique<Coordinator>(
        options, std::vector<ShardPeer*>{shard_.engine()}, Clock::Real(),
        [this](const RoundReport& report) { OnRound(report); });
    shard_.Serve(coordinator_.get());
    coordinator_->Start();
    stub_ = v1::Coordinator::NewStub(shard_.NewChannel());
  }
  ~CoordinatorServiceTest() override {
    coordinator_->Drain(absl::Now());
    shard_.rpc()->EndStreams(absl::UnavailableError("the test is over"));
    shard_.Stop();
  }

  v1::JoinReply Join(int rank) {
    // UNAVAILABLE until the shard is attached; RESOURCE_EXHAUSTED if too many
    // Joins that were answered are not over yet.
    for (;;) {
      grpc::ClientContext context;
      v1::JoinReply reply;
      const grpc::Status status = stub_->Join(&context, JoinOf(rank), &reply);
      if (status.error_code() == grpc::StatusCode::UNAVAILABLE ||
          status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
        continue;
      }
      EXPECT_TRUE(status.ok()) << status.error_message();
      return reply;
    }
  }

  grpc::Status Push(const v1::JoinReply& job, v1::PushKind kind) {
    v1::PushFrame frame = FrameOf({1.0f, 2.0f}, kind, 0);
    frame.mutable_meta()->set_epoch(job.epoch());
    frame.mutable_meta()->set_session(job.session());
    return PushOne(shard_.NewChannel(), frame).second;
  }

  grpc::Status Commit(const v1::JoinReply& job, v1::PushKind kind,
                      v1::RoundOutcome* outcome) {
    v1::CommitRequest request;
    request.set_epoch(job.epoch());
    request.set_session(job.session());
    request.set_kind(kind);
    grpc::ClientContext context;
    return stub_->Commit(&context, request, outcome);
  }

  void OnRound(const RoundReport& report) {
    MutexLock lock(&mutex_);
    traceparents_.emplace_back();
    for (const ReportedRow& row : report.rows) {
      traceparents_.back().push_back(row.traceparent);
    }
    reported_.NotifyAll();
  }
  // Those of the round's rows. Waits for the round's report, which comes after
  // its outcome.
  std::vector<std::string> TraceparentsOf(size_t round) {
    MutexLock lock(&mutex_);
    while (traceparents_.size() <= round) reported_.Wait(&mutex_);
    return traceparents_[round];
  }

  Mutex mutex_;
  CondVar reported_;
  std::vector<std::vector<std::string>> traceparents_ ABSL_GUARDED_BY(mutex_);
  LoopbackShard shard_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
};

TEST_F(CoordinatorServiceTest, AWholeRound) {
  const v1::JoinReply job = Join(0);
  EXPECT_NE(job.session(), 0u);
  EXPECT_TRUE(job.seed_role());
  EXPECT_FALSE(job.seeded());
  EXPECT_EQ(job.manifest().tensors(0).name(), "x");
  EXPECT_EQ(job.rule(), "mean");
  EXPECT_EQ(job.optimizer(), "sgd");
  EXPECT_EQ(job.lease_ms(), 30000);
  ASSERT_EQ(job.shards_size(), 1);
  EXPECT_EQ(job.shards(0), shard_.address());  // the port that is real

  ASSERT_TRUE(Push(job, v1::SEED).ok());
  v1::RoundOutcome outcome;
  grpc::Status status = Commit(job, v1::SEED, &outcome);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(outcome.kind(), v1::RoundOutcome::SEEDED);
  EXPECT_EQ(outcome.version(), 0u);

  ASSERT_TRUE(Push(job, v1::GRADIENT).ok());
  status = Commit(job, v1::GRADIENT, &outcome);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(outcome.kind(), v1::RoundOutcome::APPLIED);
  EXPECT_EQ(outcome.version(), 1u);
  EXPECT_TRUE(outcome.included());
  EXPECT_EQ(outcome.learning_rate(), 0.5);

  grpc::ClientContext context;
  v1::WaitRequest wait;
  v1::RoundOutcome again;
  ASSERT_TRUE(stub_->WaitRound(&context, wait, &again).ok());
  EXPECT_EQ(again.version(), 1u);
  EXPECT_FALSE(again.included());

  grpc::ClientContext status_context;
  v1::StatusReply reply;
  ASSERT_TRUE(
      stub_->GetStatus(&status_context, v1::StatusRequest(), &reply).ok());
  EXPECT_EQ(reply.version(), 1u);
  EXPECT_EQ(reply.last_outcome().version(), 1u);
  ASSERT_EQ(reply.workers_size(), 1);
}

TEST_F(CoordinatorServiceTest, AWellFormedTraceparentIsReported) {
  const std::string good =
      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const v1::JoinReply job = Join(0);
  ASSERT_TRUE(Push(job, v1::SEED).ok());
  v1::RoundOutcome outcome;
  ASSERT_TRUE(Commit(job, v1::SEED, &outcome).ok());
  struct Case {
    std::vector<std::string> sent;
    std::string reported;
  };
  const Case cases[] = {
      {{good}, good}, {{}, ""}, {{"00-zz"}, ""}, {{good, good}, ""}};
  for (uint64_t round = 0; round < 4; ++round) {
    v1::PushFrame frame = FrameOf({1.0f, 2.0f}, v1::GRADIENT, round);
    frame.mutable_meta()->set_epoch(job.epoch());
    frame.mutable_meta()->set_session(job.session());
    ASSERT_TRUE(PushOne(shard_.NewChannel(), frame).second.ok());
    v1::CommitRequest request;
    request.set_epoch(job.epoch());
    request.set_session(job.session());
    request.set_round(round);
    grpc::ClientContext context;
    for (const std::string& value : cases[round].sent) {
      context.AddMetadata("traceparent", value);
    }
    const grpc::Status status = stub_->Commit(&context, request, &outcome);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_THAT(TraceparentsOf(round), ElementsAre(cases[round].reported));
  }
}

TEST_F(CoordinatorServiceTest, AnotherProtocolVersionIsRefused) {
  v1::JoinRequest request = JoinOf(0);
  request.set_protocol_version(2);
  grpc::ClientContext context;
  v1::JoinReply reply;
  const grpc::Status status = stub_->Join(&context, request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("protocol_version is 2"));
  grpc::ClientContext observe;
  EXPECT_EQ(stub_->Observe(&observe, v1::ObserveRequest(), &reply).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(CoordinatorServiceTest, AttendRenewsAndAnnouncesASupersession) {
  const v1::JoinReply first = Join(0);
  grpc::ClientContext context;
  auto stream = stub_->Attend(&context);
  v1::LeaseRenewal renewal;
  renewal.set_epoch(first.epoch());
  renewal.set_session(first.session());
  ASSERT_TRUE(stream->Write(renewal));
  v1::JobEvent event;
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.kind(), v1::JobEvent::RENEWED);

  EXPECT_NE(Join(0).session(), first.session());
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.kind(), v1::JobEvent::SUPERSEDED);
  stream->Write(renewal);
  while (stream->Read(&event)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(CoordinatorServiceTest, AStreamIsForOneSession) {
  const v1::JoinReply job = Join(0);
  grpc::ClientContext context;
  auto stream = stub_->Attend(&context);
  v1::LeaseRenewal renewal;
  renewal.set_epoch(job.epoch());
  renewal.set_session(job.session());
  ASSERT_TRUE(stream->Write(renewal));
  renewal.set_session(job.session() + 1);
  stream->Write(renewal);
  v1::JobEvent event;
  while (stream->Read(&event)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  grpc::ClientContext unknown;
  stream = stub_->Attend(&unknown);
  stream->Write(renewal);
  while (stream->Read(&event)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

// A worker that reconnects opens its next stream before the server has noticed
// the end of the former one. Once both have ended, it attends no more.
TEST_F(CoordinatorServiceTest, OverlappingStreamsEndOneAfterTheOther) {
  const v1::JoinReply job = Join(0);
  v1::LeaseRenewal renewal;
  renewal.set_epoch(job.epoch());
  renewal.set_session(job.session());
  grpc::ClientContext contexts[2];
  auto former = stub_->Attend(&contexts[0]);
  auto next = stub_->Attend(&contexts[1]);
  v1::JobEvent event;
  for (auto* stream : {former.get(), next.get()}) {
    ASSERT_TRUE(stream->Write(renewal));
    ASSERT_TRUE(stream->Read(&event));  // attended
  }
  EXPECT_TRUE(coordinator_->Status().workers[0].attending);
  for (auto* stream : {former.get(), next.get()}) {
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
  }
  // The server learns of a stream's end shortly after the client.
  while (coordinator_->Status().workers[0].attending) std::this_thread::yield();
}

// The outcome comes long after the caller has gone; nothing may break.
TEST_F(CoordinatorServiceTest, ACommitThatIsNotWaitedFor) {
  const v1::JoinReply job = Join(0);
  const v1::JoinReply other = Join(1);
  ASSERT_TRUE(Push(job, v1::SEED).ok());
  v1::RoundOutcome outcome;
  ASSERT_TRUE(Commit(job, v1::SEED, &outcome).ok());
  ASSERT_TRUE(Push(job, v1::GRADIENT).ok());
  ASSERT_TRUE(Push(other, v1::GRADIENT).ok());
  v1::CommitRequest request;
  request.set_epoch(job.epoch());
  request.set_session(job.session());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(20));
  stub_->Commit(&context, request, &outcome);  // usually in vain
  const grpc::Status status = Commit(other, v1::GRADIENT, &outcome);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(outcome.version(), 1u);
}

TEST_F(CoordinatorServiceTest, BadCommitsAreRefusedByField) {
  const v1::JoinReply job = Join(0);
  v1::CommitRequest request;
  request.set_epoch(job.epoch());
  request.set_session(job.session());
  request.set_loss_scale(-1.0);
  grpc::ClientContext context;
  v1::RoundOutcome outcome;
  const grpc::Status status = stub_->Commit(&context, request, &outcome);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("commit.loss_scale is -1"));
}

TEST_F(CoordinatorServiceTest, LeavingIsAnswered) {
  const v1::JoinReply job = Join(0);
  v1::LeaveRequest request;
  request.set_epoch(job.epoch());
  request.set_session(job.session());
  grpc::ClientContext context;
  v1::LeaveReply reply;
  const grpc::Status status = stub_->Leave(&context, request, &reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST(OtherShardsTest, NameTheCoordinator) {
  LoopbackShard shard(1, 2);
  shard.Serve();
  auto stub = v1::Coordinator::NewStub(shard.NewChannel());
  const auto expect = [](const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(status.error_message(),
                HasSubstr("the coordinator is shard 0 (127.0.0.1:1)"));
  };
  grpc::ClientContext contexts[7];
  v1::JoinReply join;
  v1::RoundOutcome outcome;
  v1::LeaveReply leave;
  v1::StatusReply status;
  expect(stub->Join(&contexts[0], JoinOf(0), &join));
  expect(stub->Observe(&contexts[1], v1::ObserveRequest(), &join));
  expect(stub->Commit(&contexts[2], v1::CommitRequest(), &outcome));
  expect(stub->WaitRound(&contexts[3], v1::WaitRequest(), &outcome));
  expect(stub->Leave(&contexts[4], v1::LeaveRequest(), &leave));
  expect(stub->GetStatus(&contexts[5], v1::StatusRequest(), &status));
  auto attend = stub->Attend(&contexts[6]);
  v1::JobEvent event;
  EXPECT_FALSE(attend->Read(&event));
  expect(attend->Finish());
}

Manifest Named(const std::string& name, int tensors = 2) {
  Manifest manifest;
  for (int i = 0; i < tensors; ++i) {
    manifest.tensors.push_back({absl::StrCat(name, i), {3, 4}, "g", i == 1});
  }
  return manifest;
}

std::string Bytes(const Manifest& manifest) {
  return ToProto(manifest).SerializeAsString();
}

TEST(ManifestBookTest, OneManifestIsThereOnceHoweverOftenItComes) {
  ManifestBook book;
  const auto first = book.Take(Bytes(Named("a")), "one");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(CompareManifests(**first, Named("a")), absl::OkStatus());
  EXPECT_TRUE(first->Shares(*book.Take(Bytes(Named("a")), "two")));
  EXPECT_FALSE(first->Shares(*book.Take(Bytes(Named("b")), "one")));
  // Written in another way, and with what nobody knows.
  v1::Manifest message = ToProto(Named("a"));
  message.GetReflection()->MutableUnknownFields(&message)->AddVarint(99, 1);
  message.mutable_tensors(0)
      ->GetReflection()
      ->MutableUnknownFields(message.mutable_tensors(0))
      ->AddLengthDelimited(98, std::string(1000, 'x'));
  EXPECT_TRUE(first->Shares(*book.Take(message.SerializeAsString(), "two")));
  EXPECT_EQ(*book.MessageOf(*first), Bytes(Named("a")));
}

TEST(ManifestBookTest, OfOneThatNobodyBroughtItMakesTheBytesOnce) {
  ManifestBook book;
  const SharedManifest recovered(Named("r"));
  const auto bytes = book.MessageOf(recovered);
  EXPECT_EQ(*bytes, Bytes(Named("r")));
  EXPECT_EQ(book.MessageOf(recovered), bytes);
  EXPECT_TRUE(recovered.Shares(*book.Take(*bytes, "one")));
}

TEST(ManifestBookTest, WhatDiffersIsBoundedForEachAndForAll) {
  const int64_t one =
      ManifestBytes(SizeOf(Named("a"))) + 2 * Bytes(Named("a")).size();
  ManifestBook book(/*max_bytes=*/3 * one, /*max_own_bytes=*/2 * one);
  auto a = book.Take(Bytes(Named("a")), "one");
  const auto b = book.Take(Bytes(Named("b")), "one");
  ASSERT_TRUE(a.ok() && b.ok());
  const absl::Status own = book.Take(Bytes(Named("c")), "one").status();
  EXPECT_TRUE(IsLimitError(own)) << own;
  EXPECT_THAT(std::string(own.message()),
              HasSubstr("bytes of manifests of identity \"one\" is "));
  // One that is there costs nothing more.
  EXPECT_TRUE(book.Take(Bytes(Named("b")), "one").ok());
  const auto c = book.Take(Bytes(Named("c")), "two");
  ASSERT_TRUE(c.ok()) << c.status();
  const absl::Status all = book.Take(Bytes(Named("d")), "three").status();
  EXPECT_TRUE(IsLimitError(all)) << all;
  EXPECT_THAT(std::string(all.message()),
              HasSubstr("bytes of manifests of all callers is "));
  a = absl::CancelledError("gone");
  EXPECT_TRUE(book.Take(Bytes(Named("d")), "three").ok());
}

TEST(ManifestBookTest, OneAloneAlwaysFits) {
  ManifestBook book(/*max_bytes=*/1, /*max_own_bytes=*/1);
  EXPECT_TRUE(book.Take(Bytes(Named("a", 100)), "").ok());
}

TEST(ManifestBookTest, WhatIsTooLargeIsNotParsed) {
  ManifestBook book;
  std::string empty_tensors(2 * (kMostTensors + 1), '\0');
  for (size_t i = 0; i < empty_tensors.size(); i += 2) empty_tensors[i] = '\n';
  const absl::Status status = book.Take(empty_tensors, "").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(std::string(status.message()),
            "manifest is 100001 tensors; allowed: 1 to 100000 tensors");
  empty_tensors.resize(2 * kMostTensors);
  EXPECT_TRUE(book.Take(empty_tensors, "").ok());
}

// That is the number that ValidateManifest allows.
TEST(ManifestSizeTest, MostTensors) {
  Manifest manifest = Named("x", kMostTensors);
  EXPECT_EQ(ValidateManifest(manifest), absl::OkStatus());
  manifest.tensors.push_back({"more", {1}, "", false});
  EXPECT_FALSE(ValidateManifest(manifest).ok());
}

TEST(ManifestSizeTest, IsKnownBeforeItIsParsed) {
  for (const Manifest& manifest :
       {Named("a"), Named("longer name", 300), Manifest()}) {
    const auto size = SizeOfMessage(Bytes(manifest));
    ASSERT_TRUE(size.ok()) << size.status();
    const ManifestSize exact = SizeOf(manifest);
    EXPECT_EQ(size->tensors, exact.tensors);
    EXPECT_GE(size->dimensions, exact.dimensions);
    EXPECT_GE(size->text_bytes, exact.text_bytes);
    EXPECT_LE(ManifestBytes(*size), 2 * ManifestBytes(exact));
  }
  for (const std::string& bad :
       {std::string("\x0a"), std::string("\x0a\x05x"),
        std::string("\x0a\x01\x0a"), std::string("\x07"),
        std::string("\x0a\xff\xff\xff\xff\x0f")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(SizeOfMessage(bad).status())) << bad;
  }
}

// A server reads one for the other.
TEST(JoinPartsTest, AreAJoinRequestOnTheWire) {
  const auto* request = v1::JoinRequest::descriptor();
  const auto* parts = v1::JoinParts::descriptor();
  ASSERT_EQ(request->field_count(), parts->field_count());
  for (int i = 0; i < request->field_count(); ++i) {
    const auto* field = request->field(i);
    const auto* part = parts->FindFieldByNumber(field->number());
    ASSERT_NE(part, nullptr) << field->name();
    EXPECT_EQ(part->name(), field->name());
    EXPECT_EQ(part->is_repeated(), field->is_repeated());
    if (field->name() == "manifest") {
      EXPECT_EQ(part->type(), google::protobuf::FieldDescriptor::TYPE_BYTES);
    } else {
      EXPECT_EQ(part->type(), field->type()) << field->name();
    }
  }
}

// A process beside the job decides its rounds (P52).
class ExternalRuleServiceTest : public CoordinatorServiceTest {
 protected:
  ExternalRuleServiceTest()
      : CoordinatorServiceTest("external"),
        rules_(v1::ExternalRules::NewStub(shard_.NewChannel())) {
    request_.set_protocol_version(1);
    request_.set_name("external");
    request_.set_process(77);
    request_.set_client("here:1");
  }

  // With the answer that request_ has, which is forgotten; until the deadline.
  grpc::Status Serve(v1::ServeRuleReply* reply,
                     absl::Time deadline = absl::InfiniteFuture()) {
    grpc::ClientContext context;
    if (deadline != absl::InfiniteFuture()) {
      context.set_deadline(absl::ToChronoTime(deadline));
    }
    const grpc::Status status = rules_->ServeRule(&context, request_, reply);
    request_.clear_answer();
    return status;
  }

  v1::JoinReply Seeded() {
    const v1::JoinReply job = Join(0);
    v1::RoundOutcome outcome;
    EXPECT_TRUE(Push(job, v1::SEED).ok());
    EXPECT_TRUE(Commit(job, v1::SEED, &outcome).ok());
    return job;
  }

  std::unique_ptr<v1::ExternalRules::Stub> rules_;
  v1::ServeRuleRequest request_;
};

TEST_F(ExternalRuleServiceTest, AProcessDecidesARound) {
  const v1::JoinReply job = Seeded();
  ASSERT_TRUE(Push(job, v1::GRADIENT).ok());
  v1::RoundOutcome outcome;
  std::thread worker([&] {
    const grpc::Status status = Commit(job, v1::GRADIENT, &outcome);
    EXPECT_TRUE(status.ok()) << status.error_message();
  });
  v1::ServeRuleReply reply;
  const grpc::Status asked = Serve(&reply);
  EXPECT_TRUE(asked.ok()) << asked.error_message();
  const v1::RuleQuestion& question = reply.question();
  EXPECT_EQ(question.round(), 0u);
  EXPECT_FALSE(question.shadow());
  EXPECT_EQ(question.rows_size(), 1);
  EXPECT_FALSE(question.rows(0).has_loss());
  EXPECT_EQ(question.segments_size(), 1);
  EXPECT_THAT(question.segments(0).gram(), ElementsAre(5.0));  // of (1, 2)
  v1::RuleAnswer* const answer = request_.mutable_answer();
  answer->set_question(question.number());
  answer->add_segments()->add_weights(3.0);
  answer->mutable_segments(0)->set_state("seen one");
  answer->set_step_scale(0.5);
  v1::ServeRuleReply next;
  std::thread process([&] { Serve(&next).ok(); });
  worker.join();
  EXPECT_EQ(outcome.kind(), v1::RoundOutcome::APPLIED);
  EXPECT_DOUBLE_EQ(outcome.combined_norm(), 3.0 * std::sqrt(5.0));
  EXPECT_EQ(outcome.learning_rate(), 0.25);
  EXPECT_EQ(outcome.message(), "");
  EXPECT_EQ(outcome.combination().rule(), "external");

  grpc::ClientContext context;
  v1::StatusReply status;
  ASSERT_TRUE(stub_->GetStatus(&context, v1::StatusRequest(), &status).ok());
  ASSERT_EQ(status.rule_processes_size(), 1);
  EXPECT_EQ(status.rule_processes(0).name(), "external");
  EXPECT_EQ(status.rule_processes(0).client(), "here:1");
  EXPECT_TRUE(status.rule_processes(0).connected());
  EXPECT_EQ(status.rule_processes(0).answers(), 1u);
  coordinator_->Drain(absl::Now());  // ends what waits
  process.join();
}

TEST_F(ExternalRuleServiceTest, ARefusedAnswerSaysWhyToBoth) {
  const v1::JoinReply job = Seeded();
  ASSERT_TRUE(Push(job, v1::GRADIENT).ok());
  v1::RoundOutcome outcome;
  std::thread worker(
      [&] { EXPECT_TRUE(Commit(job, v1::GRADIENT, &outcome).ok()); });
  v1::ServeRuleReply reply;
  EXPECT_TRUE(Serve(&reply).ok());
  request_.mutable_answer()->set_question(reply.question().number());
  request_.mutable_answer()->add_segments();
  const grpc::Status refused = Serve(&reply);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(),
              HasSubstr("segments[0].weights is 0 weights; allowed: 1"));
  worker.join();
  EXPECT_EQ(outcome.kind(), v1::RoundOutcome::APPLIED);
  EXPECT_THAT(outcome.message(),
              HasSubstr("the external rule gave no weights, and its fallback "
                        "was applied: its answer is refused: "));
  EXPECT_DOUBLE_EQ(outcome.combined_norm(), std::sqrt(5.0));  // of the mean
}

TEST_F(ExternalRuleServiceTest, AStepScaleOfZeroIsNotTakenForNone) {
  const v1::JoinReply job = Seeded();
  ASSERT_TRUE(Push(job, v1::GRADIENT).ok());
  v1::RoundOutcome outcome;
  std::thread worker(
      [&] { EXPECT_TRUE(Commit(job, v1::GRADIENT, &outcome).ok()); });
  v1::ServeRuleReply reply;
  EXPECT_TRUE(Serve(&reply).ok());
  request_.mutable_answer()->set_question(reply.question().number());
  request_.mutable_answer()->add_segments()->add_weights(3.0);
  request_.mutable_answer()->set_step_scale(0.0);
  const grpc::Status refused = Serve(&reply);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("step_scale is 0; allowed: "));
  worker.join();
  EXPECT_THAT(outcome.message(), HasSubstr("step_scale is 0"));
}

TEST_F(ExternalRuleServiceTest, DrainingDoesNotWaitForAProcess) {
  const v1::JoinReply job = Seeded();
  ASSERT_TRUE(Push(job, v1::GRADIENT).ok());
  v1::RoundOutcome outcome;
  std::thread worker(
      [&] { EXPECT_TRUE(Commit(job, v1::GRADIENT, &outcome).ok()); });
  v1::ServeRuleReply reply;
  EXPECT_TRUE(Serve(&reply).ok());  // and it is never answered
  coordinator_->Drain(absl::Now() + absl::Minutes(10));
  worker.join();
  EXPECT_EQ(outcome.kind(), v1::RoundOutcome::APPLIED);
  EXPECT_THAT(outcome.message(),
              HasSubstr("its fallback was applied: the coordinator stops"));
}

TEST_F(ExternalRuleServiceTest, APollEndsWithItsCaller) {
  v1::ServeRuleReply reply;
  EXPECT_EQ(Serve(&reply, absl::Now() + absl::Milliseconds(20)).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  request_.set_protocol_version(9);
  const grpc::Status status = Serve(&reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("protocol_version is 9"));
}

}  // namespace
}  // namespace agg
