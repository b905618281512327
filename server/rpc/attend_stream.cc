// The first renewal begins attendance; each one is answered with RENEWED.
#include "server/rpc/attend_stream.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/base/field_error.h"
#include "server/rpc/job_conversion.h"
#include "server/rpc/raw_message.h"

namespace agg {

AttendStream* AttendStream::Start(Coordinator* coordinator, OpenStreams* open,
                                  CheckSession check) {
  std::shared_ptr<AttendStream> stream(
      new AttendStream(coordinator, open, std::move(check)));
  stream->Own();
  stream->StartRead(&stream->renewal_);
  return stream.get();
}

AttendStream* AttendStream::Refuse(const absl::Status& reason,
                                   OpenStreams* open) {
  std::shared_ptr<AttendStream> stream(
      new AttendStream(nullptr, open, nullptr));
  stream->Own();
  stream->End(reason);
  return stream.get();
}

void AttendStream::OnReadDone(bool ok) {
  if (!ok) {
    End(absl::OkStatus());
    return;
  }
  // What a message had besides its fields is not kept until the next one.
  const absl::Status status = Handle(TakeMessage(&renewal_));
  if (!status.ok()) {
    End(status);
  } else if (!ended()) {
    StartRead(&renewal_);
  }
}

absl::Status AttendStream::Handle(const v1::LeaseRenewal& renewal) {
  if (renewal.epoch() != epoch_ || session_ == 0) {
    const absl::Status mine = check_(renewal.epoch(), renewal.session());
    if (!mine.ok()) return mine;
    epoch_ = renewal.epoch();
  }
  if (session_ == 0) {
    std::weak_ptr<BidiStream> weak = weak_from_this();
    const absl::StatusOr<uint64_t> number = coordinator_->Attend(
        renewal.epoch(), renewal.session(), [weak](const JobEvent& event) {
          if (auto stream = weak.lock()) stream->Send(ToProto(event));
        });
    if (!number.ok()) return number.status();
    session_ = renewal.session();
    number_ = *number;
  } else if (renewal.session() != session_) {
    return FieldError(
        "session", absl::StrCat(renewal.session()),
        absl::StrCat(session_, ", as in the stream's first message"));
  }
  absl::StatusOr<uint64_t> version = coordinator_->Renew(
      renewal.epoch(), renewal.session(), renewal.transports());
  if (!version.ok()) return version.status();
  v1::JobEvent renewed;
  renewed.set_kind(v1::JobEvent::RENEWED);
  renewed.set_version(*version);
  Send(std::move(renewed));
  return absl::OkStatus();
}

void AttendStream::OnEnded() {
  if (session_ != 0) coordinator_->Detach(number_);
}

}  // namespace agg
