// One call after another: each brings an answer and waits for a question.
#include "worker_client/rule_server.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <random>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/external_rule.grpc.pb.h"
#include "proto/external_rule.pb.h"
#include "proto/protocol_version.h"
#include "server/base/address.h"
#include "server/base/field_error.h"
#include "server/base/status_macros.h"
#include "server/tls/tls_files.h"
#include "worker_client/channel.h"
#include "worker_client/membership.h"
#include "worker_client/retry.h"

namespace agg {

namespace {

// Between two attempts to reach the coordinator.
constexpr absl::Duration kPause = absl::Milliseconds(100);

// Both halves of a matrix of which the upper one is sent.
// REQUIRES: it has the size of num_rows.
std::vector<double> WholeGram(const v1::RuleSegment& segment, size_t num_rows) {
  std::vector<double> gram(num_rows * num_rows);
  int next = 0;
  for (size_t i = 0; i < num_rows; ++i) {
    for (size_t j = i; j < num_rows; ++j) {
      gram[i * num_rows + j] = gram[j * num_rows + i] = segment.gram(next++);
    }
  }
  return gram;
}

absl::StatusOr<RuleRound> RoundOf(const v1::RuleQuestion& question) {
  RuleRound round;
  round.epoch = question.epoch();
  round.round = question.round();
  round.shadow = question.shadow();
  for (const v1::RuleRow& row : question.rows()) {
    round.ranks.push_back(row.rank());
    round.examples.push_back(row.examples());
    round.accumulation.push_back(row.accumulation());
    round.losses.push_back(
        row.has_loss() ? row.loss() : std::numeric_limits<double>::quiet_NaN());
  }
  const size_t num_rows = round.ranks.size();
  for (const v1::RuleSegment& segment : question.segments()) {
    if (static_cast<size_t>(segment.gram_size()) !=
        num_rows * (num_rows + 1) / 2) {
      return absl::InternalError(absl::StrCat(
          "round ", round.round, " came with ", segment.gram_size(),
          " entries of a Gram matrix of ", num_rows, " rows"));
    }
    round.segments.push_back(
        {segment.tensor(), WholeGram(segment, num_rows), segment.state()});
  }
  return round;
}

}  // namespace

class RuleServer::Impl {
 public:
  Impl(const ClientOptions& options, const std::string& name)
      : options_(options),
        name_{0, options.coordinator, options.tls},
        channel_(
            MakeChannel(options.coordinator, options.tls, options.token_file)),
        stub_(v1::ExternalRules::NewStub(channel_)) {
    std::random_device random;
    request_.set_protocol_version(kProtocolVersion);
    request_.set_name(name);
    request_.set_process((uint64_t{random()} << 32) | random() | 1);
    request_.set_client(ClientName(options));
  }

  absl::StatusOr<absl::optional<RuleRound>> Next(absl::Duration timeout) {
    const absl::Time began = absl::Now();
    if (!reached_) lost_since_ = std::min(lost_since_, began);
    const absl::Time deadline = began + timeout;
    for (;;) {
      v1::ServeRuleReply reply;
      grpc::ClientContext context;
      context.set_deadline(absl::ToChronoTime(deadline));
      const grpc::Status status = stub_->ServeRule(&context, request_, &reply);
      if (status.ok()) return Take(reply);
      const absl::Time now = absl::Now();
      if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
        // A connection that works brings nothing while no round asks.
        if (channel_->GetState(false) == GRPC_CHANNEL_READY) {
          lost_since_ = absl::InfiniteFuture();
          reached_ = true;
        }
        AGG_RETURN_IF_ERROR(CheckWindow(status, now));
        return absl::optional<RuleRound>();
      }
      if (!IsConnectionLoss(status) && !IsLimit(status)) {
        // What was answered is settled: it was refused, or nobody wants it.
        request_.clear_answer();
        return FromGrpc(status, name_, "ServeRule");
      }
      lost_since_ = std::min(lost_since_, now);
      AGG_RETURN_IF_ERROR(CheckWindow(status, now));
      if (now >= deadline) return absl::optional<RuleRound>();
      const absl::Time until = std::min(deadline, now + kPause);
      if (channel_->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY) {
        absl::SleepFor(until - now);
      } else {
        channel_->WaitForConnected(absl::ToChronoTime(until));
      }
    }
  }

  absl::Status Answer(const RuleDecision& decision) {
    AGG_RETURN_IF_ERROR(CheckField(IsFinitePositive(decision.step_scale),
                                   "step_scale", decision.step_scale,
                                   "finite, > 0"));
    AGG_RETURN_IF_ERROR(BeginAnswer());
    v1::RuleAnswer* const answer = request_.mutable_answer();
    answer->set_step_scale(decision.step_scale);
    for (const RuleDecision::Segment& segment : decision.segments) {
      v1::RuleWeights* const weights = answer->add_segments();
      weights->mutable_weights()->Add(segment.weights.begin(),
                                      segment.weights.end());
      weights->set_state(segment.state);
    }
    return absl::OkStatus();
  }

  absl::Status Fail(const std::string& why) {
    AGG_RETURN_IF_ERROR(BeginAnswer());
    request_.mutable_answer()->set_error(why.empty() ? "it does not say why"
                                                     : why);
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<absl::optional<RuleRound>> Take(
      const v1::ServeRuleReply& reply) {
    lost_since_ = absl::InfiniteFuture();
    reached_ = true;
    request_.clear_answer();
    question_ = 0;
    RuleRound round;
    round.finished = reply.finished();
    if (reply.finished()) return absl::optional<RuleRound>(std::move(round));
    AGG_ASSIGN_OR_RETURN(round, RoundOf(reply.question()));
    question_ = reply.question().number();
    return absl::optional<RuleRound>(std::move(round));
  }

  absl::Status BeginAnswer() {
    if (question_ == 0) {
      return absl::FailedPreconditionError(
          "there is no round to answer: Next has given none");
    }
    request_.clear_answer();
    request_.mutable_answer()->set_question(std::exchange(question_, 0));
    return absl::OkStatus();
  }

  // Whether the coordinator may still come back.
  absl::Status CheckWindow(const grpc::Status& status, absl::Time now) const {
    const absl::Duration window =
        reached_ ? options_.recovery_window : options_.connect_timeout;
    if (lost_since_ == absl::InfiniteFuture() || now - lost_since_ < window) {
      return absl::OkStatus();
    }
    const absl::Status why = FromGrpc(status, name_, "ServeRule");
    return absl::UnavailableError(absl::StrCat(
        why.message(), "; tried for ", absl::FormatDuration(window), " (",
        reached_ ? "recovery_window" : "connect_timeout", ")"));
  }

  const ClientOptions options_;
  const ShardName name_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::ExternalRules::Stub> stub_;
  v1::ServeRuleRequest request_;
  uint64_t question_ = 0;  // that waits for an answer; 0: none
  bool reached_ = false;   // the coordinator has answered
  // InfiniteFuture: the connection works, or is not tried yet.
  absl::Time lost_since_ = absl::InfiniteFuture();
};

absl::StatusOr<std::unique_ptr<RuleServer>> RuleServer::Create(
    ClientOptions options, const std::string& name) {
  options.tls = WithTlsEnvironment(options.tls);
  options.token_file = WithTokenEnvironment(options.token_file);
  AGG_RETURN_IF_ERROR(CheckTlsOptions(options.tls, absl::Now()));
  AGG_RETURN_IF_ERROR(CheckAddress("coordinator", options.coordinator));
  AGG_RETURN_IF_ERROR(
      CheckToken(options.token_file, options.coordinator, options.tls.any()));
  AGG_RETURN_IF_ERROR(CheckNotForked());
  NoteConnecting();
  return absl::WrapUnique(
      new RuleServer(std::make_unique<Impl>(options, name)));
}

RuleServer::RuleServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RuleServer::~RuleServer() = default;

absl::StatusOr<absl::optional<RuleRound>> RuleServer::Next(
    absl::Duration timeout) {
  return impl_->Next(timeout);
}

absl::Status RuleServer::Answer(const RuleDecision& decision) {
  return impl_->Answer(decision);
}

absl::Status RuleServer::Fail(const std::string& why) {
  return impl_->Fail(why);
}

}  // namespace agg
