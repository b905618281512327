#include "server/rpc/attend_stream.h"

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/rpc/job_conversion.h"

namespace agg {

absl::Status Attendance::Attend(uint64_t epoch, uint64_t session,
                                const void* stream,
                                std::function<void(const JobEvent&)> on_event) {
  MutexLock lock(&mutex_);
  absl::Status status =
      coordinator_->Attend(epoch, session, std::move(on_event));
  if (status.ok()) streams_[session] = stream;
  return status;
}

void Attendance::Detach(uint64_t session, const void* stream) {
  MutexLock lock(&mutex_);
  auto it = streams_.find(session);
  if (it == streams_.end() || it->second != stream) return;
  streams_.erase(it);
  coordinator_->Detach(session);
}

AttendReactor* AttendReactor::Start(Attendance* attendance, OpenStreams* open) {
  std::shared_ptr<AttendReactor> stream(new AttendReactor(attendance, open));
  stream->Own();
  stream->StartRead(&stream->renewal_);
  return stream.get();
}

void AttendReactor::OnReadDone(bool ok) {
  if (!ok) {
    End(absl::OkStatus());
    return;
  }
  const absl::Status status = Handle(renewal_);
  if (!status.ok()) {
    End(status);
  } else if (!ended()) {
    StartRead(&renewal_);
  }
}

absl::Status AttendReactor::Handle(const v1::LeaseRenewal& renewal) {
  if (session_ == 0) {
    std::weak_ptr<BidiStream> weak = weak_from_this();
    absl::Status status = attendance_->Attend(
        renewal.epoch(), renewal.session(), this, [weak](const JobEvent& e) {
          if (auto stream = weak.lock()) stream->Send(ToProto(e));
        });
    if (!status.ok()) return status;
    session_ = renewal.session();
  } else if (renewal.session() != session_) {
    return absl::InvalidArgumentError(
        absl::StrCat("session: ", renewal.session(), "; allowed: ", session_,
                     ", as in the stream's first message"));
  }
  absl::StatusOr<uint64_t> version =
      attendance_->coordinator()->Renew(renewal.epoch(), renewal.session());
  if (!version.ok()) return version.status();
  v1::JobEvent renewed;
  renewed.set_kind(v1::JobEvent::RENEWED);
  renewed.set_version(*version);
  Send(std::move(renewed));
  return absl::OkStatus();
}

void AttendReactor::OnEnded() {
  if (session_ != 0) attendance_->Detach(session_, this);
}

}  // namespace agg
