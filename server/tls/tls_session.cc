// Two memory BIOs are the two directions. OpenSSL's errors lie in a queue of
// the thread, which is emptied before each call and after it.
#include "server/tls/tls_session.h"

#include <openssl/err.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "server/base/dcheck.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/tls/openssl_handles.h"

namespace agg {
namespace {

class OpensslSession : public TlsSession {
 public:
  explicit OpensslSession(SSL_CTX* context) : ssl_(SSL_new(context)) {
    if (ssl_ == nullptr) return;
    in_ = BIO_new(BIO_s_mem());
    out_ = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl_.get(), in_, out_);  // takes both
    SSL_set_accept_state(ssl_.get());
  }
  ~OpensslSession() override { ERR_clear_error(); }

  bool valid() const {
    return ssl_ != nullptr && in_ != nullptr && out_ != nullptr;
  }

  void Feed(absl::string_view bytes) override {
    BIO_write(in_, bytes.data(), static_cast<int>(bytes.size()));
  }

  std::string TakeOutput() override {
    std::string bytes(BIO_ctrl_pending(out_), '\0');
    if (bytes.empty()) return bytes;
    const int count = BIO_read(out_, &bytes[0], static_cast<int>(bytes.size()));
    bytes.resize(count > 0 ? static_cast<size_t>(count) : 0);
    return bytes;
  }

  ssize_t Read(char* bytes, size_t num_bytes) override {
    ERR_clear_error();
    const int count = SSL_read(
        ssl_.get(), bytes, static_cast<int>(std::min(num_bytes, kMaxWrite)));
    return count > 0 ? count : WhetherMore(count);
  }

  ssize_t Write(absl::string_view bytes) override {
    AGG_DCHECK(over_ || SSL_is_init_finished(ssl_.get()));
    ERR_clear_error();
    const int count =
        SSL_write(ssl_.get(), bytes.data(),
                  static_cast<int>(std::min(bytes.size(), kMaxWrite)));
    // It has room without end, and hands are shaken: nothing else is waited
    // for.
    return count > 0 ? count : -1;
  }

  void End() override {
    ERR_clear_error();
    // An error ends the session, and OpenSSL forbids to go on.
    if (!over_ && SSL_is_init_finished(ssl_.get())) SSL_shutdown(ssl_.get());
  }

 private:
  ssize_t WhetherMore(int result) {
    if (SSL_get_error(ssl_.get(), result) == SSL_ERROR_WANT_READ) return 0;
    over_ = SSL_get_error(ssl_.get(), result) != SSL_ERROR_ZERO_RETURN;
    return -1;
  }

  const Openssl<SSL> ssl_;
  BIO* in_ = nullptr;  // of ssl_: what the other end has sent
  BIO* out_ = nullptr;
  bool over_ = false;
};

// Null: not with these files.
Openssl<SSL_CTX> MakeContext(const TlsContents& contents) {
  Openssl<SSL_CTX> context(SSL_CTX_new(TLS_server_method()));
  const std::vector<Openssl<X509>> chain =
      ParseCertificates(contents.certificate);
  const Openssl<EVP_PKEY> key = ParseKey(contents.key);
  if (context == nullptr || chain.empty() || key == nullptr) return nullptr;
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(),
                      SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  if (SSL_CTX_use_certificate(context.get(), chain[0].get()) != 1 ||
      SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1) {
    return nullptr;
  }
  for (size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) != 1) {
      return nullptr;
    }
  }
  return context;
}

}  // namespace

struct TlsAcceptor::Context {
  Openssl<SSL_CTX> ssl;
};

TlsAcceptor::TlsAcceptor(TlsReload* files)
    : files_(files), context_(std::make_unique<Context>()) {}
TlsAcceptor::~TlsAcceptor() = default;

absl::StatusOr<std::unique_ptr<TlsAcceptor>> TlsAcceptor::Make(
    TlsReload* files) {
  auto acceptor = absl::WrapUnique(new TlsAcceptor(files));
  MutexLock lock(&acceptor->mutex_);
  AGG_RETURN_IF_ERROR(acceptor->Look());
  return acceptor;
}

absl::Status TlsAcceptor::Look() {
  const absl::optional<TlsContents> contents = files_->Next(&seen_);
  if (!contents.has_value()) return absl::OkStatus();
  ERR_clear_error();
  Openssl<SSL_CTX> made = MakeContext(*contents);
  if (made != nullptr) {
    context_->ssl = std::move(made);
    return absl::OkStatus();
  }
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  const std::string text = reason == nullptr ? "no reason is known" : reason;
  ERR_clear_error();
  return absl::InvalidArgumentError(
      absl::StrCat("OpenSSL does not take the TLS files: ", text));
}

std::unique_ptr<TlsSession> TlsAcceptor::Accept() {
  MutexLock lock(&mutex_);
  const absl::Status status = Look();
  if (!status.ok()) {
    LogWarningOf("TLS files", status.message(), "; those of before stay");
  }
  ERR_clear_error();
  auto session = std::make_unique<OpensslSession>(context_->ssl.get());
  if (!session->valid()) return nullptr;
  return session;
}

}  // namespace agg
