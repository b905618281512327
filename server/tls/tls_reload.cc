// Files are compared by what they have: a time stamp may stay, or come back.
#include "server/tls/tls_reload.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/dcheck.h"
#include "server/base/log.h"
#include "server/tls/openssl_handles.h"
#include "server/tls/tls_trust.h"

namespace agg {

TlsReload::TlsReload(TlsFiles files, absl::Duration every, const Clock* clock)
    : files_(std::move(files)), every_(every), clock_(clock) {}

absl::Status TlsReload::Open() {
  const absl::Time now = clock_->Now();
  absl::StatusOr<TlsContents> read = Read(kAtStart, now);
  MutexLock lock(&mutex_);
  looked_ = now;
  if (!read.ok()) return read.status();
  contents_ = *std::move(read);
  number_ += 1;
  return absl::OkStatus();
}

absl::StatusOr<TlsContents> TlsReload::Read(LookKind kind, absl::Time now) {
  using Contents = absl::StatusOr<TlsContents>;
  return calls_.Get<Contents>(
      kind,
      absl::StrCat("read \"", files_.certificate, "\" and what goes with it"),
      [files = files_, now] { return ReadTlsFiles(files, now); });
}

void TlsReload::LookIfDue() {
  const absl::Time now = clock_->Now();
  {
    MutexLock lock(&mutex_);
    if (looking_ || now - looked_ < every_) return;
    looking_ = true;
  }
  // Without the lock: others go on with what there is.
  absl::StatusOr<TlsContents> read = Read(kAgain, now);
  MutexLock lock(&mutex_);
  Take(std::move(read));
  looked_ = now;
  looking_ = false;
}

void TlsReload::Take(absl::StatusOr<TlsContents> read) {
  std::string problem(read.status().message());
  if (!read.ok() && problem != warned_) {
    LogWarning("new TLS files cannot be used, those of before are: ", problem);
  }
  warned_ = std::move(problem);
  if (!read.ok()) return;
  if (*read == contents_) {
    contents_.expires = read->expires;  // of CAs that are valid by now
    return;
  }
  const bool distrusts =
      !contents_.ca.empty() && !StillTrusts(read->ca, contents_.ca);
  contents_ = *std::move(read);
  number_ += 1;
  if (distrusts && on_distrust_ != nullptr) on_distrust_();
  LogInfo("TLS files have changed: new connections get ", files_.certificate,
          ", valid until ", TimeText(contents_.expires.certificate));
}

void TlsReload::SetOnDistrust(std::function<void()> callback) {
  MutexLock lock(&mutex_);
  on_distrust_ = std::move(callback);
}

absl::optional<TlsContents> TlsReload::Next(uint64_t* seen) {
  LookIfDue();
  MutexLock lock(&mutex_);
  AGG_DCHECK(number_ != 0);
  if (*seen == number_) return absl::nullopt;
  *seen = number_;
  return contents_;
}

TlsExpiry TlsReload::Expires() {
  LookIfDue();
  MutexLock lock(&mutex_);
  AGG_DCHECK(number_ != 0);
  return contents_.expires;
}

}  // namespace agg
