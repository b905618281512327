// A connection that has worked for a while resets the pauses; frames that
// arrive damaged are tried again a few times at once.
#include "worker_client/retry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/channel_credentials.h"
#include "proto/grpc_channel.h"
#include "proto/status_conversion.h"
#include "server/base/clock.h"
#include "server/base/field_error.h"
#include "server/base/status_macros.h"
#include "server/base/utf8.h"
#include "server/tls/tls_diagnosis.h"

namespace agg {

void Drain(grpc::CompletionQueue* queue) {
  queue->Shutdown();
  void* tag;
  bool ok;
  while (queue->Next(&tag, &ok)) {
  }
}

// Calls register their contexts, and the first reason cancels them all.
// Later reasons are dropped: they follow from the first.

CancelSource::Registration::Registration(CancelSource* source,
                                         grpc::ClientContext* context)
    : Registration(source, [context] { context->TryCancel(); }) {}

CancelSource::Registration::Registration(CancelSource* source,
                                         std::function<void()> wake)
    : source_(source), cancel_(std::move(wake)) {
  MutexLock lock(&source_->mutex_);
  source_->registered_.insert(this);
  if (!source_->reason_.ok()) cancel_();
}

CancelSource::Registration::~Registration() {
  MutexLock lock(&source_->mutex_);
  source_->registered_.erase(this);
}

absl::Status CancelSource::status() const {
  MutexLock lock(&mutex_);
  return reason_;
}

bool CancelSource::Cancel(absl::Status reason) {
  MutexLock lock(&mutex_);
  if (!reason_.ok()) return false;
  reason_ = std::move(reason);
  // Under the lock, so that no context is destroyed meanwhile. TryCancel does
  // not wait: it only posts.
  for (const Registration* each : registered_) each->cancel_();
  cancelled_.NotifyAll();
  return true;
}

absl::Status CancelSource::WaitFor(absl::Duration duration) {
  const Clock* const clock = Clock::Real();  // the system's may step back
  const absl::Time until = clock->Now() + duration;
  MutexLock lock(&mutex_);
  for (absl::Time now = clock->Now(); reason_.ok() && now < until;
       now = clock->Now()) {
    cancelled_.WaitFor(&mutex_, until - now);
  }
  return reason_;
}

absl::Status FirstReason(absl::Span<CancelSource* const> sources) {
  for (const CancelSource* source : sources) {
    AGG_RETURN_IF_ERROR(source->status());
  }
  return absl::OkStatus();
}

// The table of advice by status code, and the list of errors that a lost
// connection looks like.

namespace {

absl::string_view Advice(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnavailable:
      return "check that its agg_server runs and can be reached";
    case absl::StatusCode::kUnimplemented:
      return "check that an agg_server of the same version listens there";
    case absl::StatusCode::kUnauthenticated:
      return "set token_file, or AGG_TOKEN_FILE, to a token of this job";
    case absl::StatusCode::kNotFound:
      return "Connect again to go on";
    case absl::StatusCode::kDeadlineExceeded:
      return "see GetStatus or the server's log for who is waited for";
    case absl::StatusCode::kDataLoss:
      return "bytes were damaged on the way; push or pull again";
    default:
      return "";
  }
}

}  // namespace

std::string ToString(const ShardName& shard) {
  return absl::StrCat("shard ", shard.ordinal, " (", shard.address, ")");
}

absl::Status FromGrpc(const grpc::Status& status, const ShardName& shard,
                      absl::string_view call) {
  if (status.ok()) return absl::OkStatus();
  const absl::StatusCode code = FromGrpcStatus(status).code();
  const std::string where = absl::StrCat(ToString(shard), ": ", call, ": ");
  const std::string why =
      code != absl::StatusCode::kUnavailable
          ? ""
          : WhyNotConnected(
                status.error_message(),
                {shard.address, ServerNameOf(shard.tls, shard.address),
                 shard.tls});
  if (!why.empty()) {
    return absl::Status(code, absl::StrCat(where, why, " (",
                                           Shown(status.error_message()), ")"));
  }
  // It may quote what other peers have sent.
  std::string message = absl::StrCat(where, Shown(status.error_message()),
                                     ProxyRemark(status.error_message()));
  const absl::string_view advice = IsStarting(status) ? "" : Advice(code);
  if (!advice.empty()) absl::StrAppend(&message, "; ", advice);
  return absl::Status(code, message);
}

bool IsConnectionLoss(const grpc::Status& status) {
  // A server that shuts down cancels its calls, and HTTP/2 resets that the far
  // end's death may cause come as UNKNOWN and INTERNAL.
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::CANCELLED ||
         (status.error_code() == grpc::StatusCode::UNKNOWN &&
          absl::StrContains(status.error_message(), "Stream removed")) ||
         (status.error_code() == grpc::StatusCode::INTERNAL &&
          absl::StrContains(status.error_message(), "RST_STREAM"));
}

bool IsStarting(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE &&
         absl::StartsWith(status.error_message(), "waiting for all shards");
}

bool IsLimit(const grpc::Status& status) {
  return IsLimitError(FromGrpcStatus(status));
}

absl::optional<absl::Duration> RetryPolicy::AfterFailure(
    const grpc::Status& status, absl::Time now, absl::Duration connected) {
  if (status.error_code() == grpc::StatusCode::DATA_LOSS) {
    if (++damaged_ > kMaxDamaged) return absl::nullopt;
    return absl::ZeroDuration();
  }
  const bool limited = IsLimit(status);
  if (!limited && !IsConnectionLoss(status)) return absl::nullopt;
  if (connected >= kWorks) {  // the outage before this attempt is over
    first_loss_ = now;
    pause_ = absl::ZeroDuration();
  }
  first_loss_ = std::min(first_loss_, now);
  if (now - first_loss_ >= window_) return absl::nullopt;
  // The first retry is immediate: most lost connections were idle ones, and a
  // new one works.
  const absl::Duration pause = limited ? std::max(pause_, kLimitPause) : pause_;
  pause_ = std::min(std::max(2 * pause, absl::Milliseconds(50)),
                    absl::Milliseconds(500));
  return pause;
}

absl::optional<absl::Duration> RecoveryWindow::AfterFailure(
    absl::Time now, absl::Duration lasted) {
  if (lasted > works_) {
    first_loss_ = now;
    pause_ = absl::ZeroDuration();
  }
  first_loss_ = std::min(first_loss_, now);
  if (now - first_loss_ >= window_) return absl::nullopt;
  const absl::Duration pause = pause_;
  pause_ = std::min(std::max(2 * pause_, kFirstPause), kLastPause);
  return pause;
}

}  // namespace agg
