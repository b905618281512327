// The far end's certificate is checked after the handshake and not in it, so
// that there is one to talk about. gRPC sends no alert when it refuses a
// certificate: it closes the connection, where an accepted one gets settings.
#include "server/tls/tls_diagnosis.h"

#include <netdb.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/base/address.h"
#include "server/base/mutex.h"
#include "server/tls/openssl_handles.h"
#include "server/tls/tls_files.h"

namespace agg {

// Sockets do not block; poll does, until the deadline.

namespace {

FileDescriptor ConnectTo(const SocketAddress& one, absl::Time deadline) {
  FileDescriptor made(socket(one.bytes.ss_family,
                             SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.valid()) return made;
  if (connect(made.get(), reinterpret_cast<const sockaddr*>(&one.bytes),
              one.size) == 0) {
    return made;
  }
  int error = errno;
  if (error == EINPROGRESS && AwaitSocket(made.get(), true, deadline)) {
    socklen_t size = sizeof(error);
    getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  return error == 0 ? std::move(made) : FileDescriptor();
}

}  // namespace

bool AwaitSocket(int socket, bool write, absl::Time deadline) {
  pollfd waited = {socket, static_cast<short>(write ? POLLOUT : POLLIN), 0};
  while (true) {
    const absl::Duration left =
        std::max(deadline - absl::Now(), absl::ZeroDuration());
    const int ready =
        poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(left)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

FileDescriptor ConnectTcp(const std::string& address, absl::Time deadline) {
  const absl::StatusOr<Address> parsed = ParseAddress(address);
  if (!parsed.ok()) return FileDescriptor();
  for (const SocketAddress& one : ResolveHost(*parsed, deadline)) {
    FileDescriptor made = ConnectTo(one, deadline);
    if (made.valid()) return made;
  }
  return FileDescriptor();
}

namespace {

std::atomic<int> lookups{0};

// Shared by who waits and by the thread, which may outlive that one.
struct Lookup {
  Mutex mutex;
  CondVar changed;
  bool done ABSL_GUARDED_BY(mutex) = false;
  std::vector<SocketAddress> found ABSL_GUARDED_BY(mutex);
};

std::vector<SocketAddress> SystemResolve(const Address& address) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(),
                  &hints, &first) != 0) {
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(first,
                                                               &freeaddrinfo);
  std::vector<SocketAddress> found;
  for (const addrinfo* one = first; one != nullptr; one = one->ai_next) {
    SocketAddress copy;
    if (one->ai_addrlen > sizeof(copy.bytes)) continue;
    std::memcpy(&copy.bytes, one->ai_addr, one->ai_addrlen);
    copy.size = one->ai_addrlen;
    found.push_back(copy);
  }
  return found;
}

}  // namespace

std::vector<SocketAddress> ResolveHost(const Address& address,
                                       absl::Time deadline,
                                       const Resolver& resolve) {
  if (lookups.fetch_add(1) >= kMaxLookups) {
    --lookups;
    return {};
  }
  auto lookup = std::make_shared<Lookup>();
  try {
    std::thread([lookup, address, resolve] {
      std::vector<SocketAddress> found =
          resolve == nullptr ? SystemResolve(address) : resolve(address);
      --lookups;
      MutexLock lock(&lookup->mutex);
      lookup->found = std::move(found);
      lookup->done = true;
      lookup->changed.NotifyAll();
    }).detach();
  } catch (const std::system_error&) {  // no thread is to be had
    --lookups;
    return {};
  }
  MutexLock lock(&lookup->mutex);
  while (!lookup->done) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return {};
    lookup->changed.WaitFor(&lookup->mutex, left);
  }
  return std::move(lookup->found);
}

namespace {

// "" if it is for that host, a DNS name or an address; else for whom it is.
std::string WhyNotFor(X509* certificate, const std::string& name) {
  if (X509_check_host(certificate, name.data(), name.size(), 0, nullptr) == 1 ||
      X509_check_ip_asc(certificate, name.c_str(), 0) == 1) {
    return "";
  }
  return absl::StrCat("is for ", NamesOf(certificate), " and not for ", name);
}

// A server may name as many CAs as fit into a message.
constexpr int kMaxNames = 4;

// One connection and what was seen of it.
class Probe {
 public:
  explicit Probe(const TlsTarget& target)
      : target_(target), deadline_(absl::Now() + target.limit) {}
  ~Probe() { ERR_clear_error(); }

  std::string Run() {
    deadline_ = absl::Now() + target_.limit;
    socket_ = ConnectTcp(target_.address, deadline_);
    if (!socket_.valid() || !Prepare()) return "";
    if (!Handshake()) return target_.tls.any() ? NoHandshake() : "";
    if (!target_.tls.any()) {
      return absl::StrCat(target_.address, " speaks TLS, and this end does not",
                          ": tls.ca is missing (--tls_ca, AGG_TLS_CA)");
    }
    const std::string reason = CertificateProblem();
    if (!reason.empty()) return reason;
    return Refused() ? Refusal() : "";
  }

 private:
  static int OnRequest(SSL*, void* probe) {
    static_cast<Probe*>(probe)->asked_ = true;
    return 1;
  }

  bool Prepare() {
    context_.reset(SSL_CTX_new(TLS_client_method()));
    if (context_ == nullptr) return false;
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_NONE, nullptr);
    SSL_CTX_set_cert_cb(context_.get(), &OnRequest, this);
    const TlsOptions& tls = target_.tls;
    if (!tls.ca.empty()) {
      SSL_CTX_load_verify_file(context_.get(), tls.ca.c_str());
    }
    if (!tls.certificate.empty()) {
      SSL_CTX_use_certificate_chain_file(context_.get(),
                                         tls.certificate.c_str());
      SSL_CTX_use_PrivateKey_file(context_.get(), tls.key.c_str(),
                                  SSL_FILETYPE_PEM);
    }
    ssl_.reset(SSL_new(context_.get()));
    if (ssl_ == nullptr) return false;
    static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
    SSL_set_alpn_protos(ssl_.get(), kHttp2, sizeof(kHttp2));
    SSL_set_tlsext_host_name(ssl_.get(), target_.server_name.c_str());
    in_ = BIO_new(BIO_s_mem());
    out_ = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl_.get(), in_, out_);  // takes both
    return in_ != nullptr && out_ != nullptr;
  }

  // Sends what OpenSSL has written. Not through its own sockets: those raise
  // SIGPIPE, which ends a process that has not heard of it.
  bool Flush() {
    char bytes[4096];
    int size;
    while ((size = BIO_read(out_, bytes, sizeof(bytes))) > 0) {
      for (int sent = 0; sent < size;) {
        late_ = !AwaitSocket(socket_.get(), /*write=*/true, deadline_);
        const ssize_t count =
            late_ ? -1
                  : send(socket_.get(), bytes + sent,
                         static_cast<size_t>(size - sent), MSG_NOSIGNAL);
        if (count <= 0) return false;
        sent += static_cast<int>(count);
      }
    }
    return true;
  }

  // Whether `result` of an SSL call is not final, and there is more to read.
  bool Again(int result) {
    const bool wants = SSL_get_error(ssl_.get(), result) == SSL_ERROR_WANT_READ;
    if (!Flush() || !wants) return false;
    late_ = !AwaitSocket(socket_.get(), /*write=*/false, deadline_);
    if (late_) return false;
    char bytes[4096];
    const ssize_t count = recv(socket_.get(), bytes, sizeof(bytes), 0);
    return count > 0 && BIO_write(in_, bytes, static_cast<int>(count)) > 0;
  }

  bool Handshake() {
    int result;
    do {
      ERR_clear_error();
      result = SSL_connect(ssl_.get());
    } while (result != 1 && Again(result));
    error_ = ERR_peek_error();
    if (result == 1) Flush();
    return result == 1;
  }

  std::string NoHandshake() const {
    if (late_) return "";
    if (SSL_get0_peer_certificate(ssl_.get()) != nullptr) return Refusal();
    if (ERR_GET_LIB(error_) == ERR_LIB_SSL &&
        ERR_GET_REASON(error_) > SSL_AD_REASON_OFFSET) {
      return absl::StrCat(target_.address, " has ended the TLS handshake: ",
                          ERR_reason_error_string(error_));
    }
    return absl::StrCat(target_.address,
                        " does not answer in TLS: its job has "
                        "no security.tls, or it is no agg_server");
  }

  std::string CertificateProblem() const {
    X509* const certificate = SSL_get0_peer_certificate(ssl_.get());
    if (certificate == nullptr) return "";
    const std::string which =
        absl::StrCat("the certificate of ", target_.address);
    const long result = SSL_get_verify_result(ssl_.get());
    switch (result) {
      case X509_V_OK:
        break;
      case X509_V_ERR_CERT_HAS_EXPIRED:
        return absl::StrCat(which, " expired on ",
                            TimeText(TimeOf(X509_get0_notAfter(certificate))),
                            " or one that signed it has");
      case X509_V_ERR_CERT_NOT_YET_VALID:
        return absl::StrCat(which, " is valid from ",
                            TimeText(TimeOf(X509_get0_notBefore(certificate))),
                            " on: one of the two clocks is wrong");
      case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
      case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
      case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
      case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
      case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        return absl::StrCat(which, " is not signed by a CA of ", target_.tls.ca,
                            ": its issuer is \"",
                            NameText(X509_get_issuer_name(certificate)), "\"");
      default:
        return absl::StrCat(which, " cannot be verified with ", target_.tls.ca,
                            ": ", X509_verify_cert_error_string(result));
    }
    const std::string why = WhyNotFor(certificate, target_.server_name);
    if (why.empty()) return "";
    return absl::StrCat(which, " ", why, " (tls.server_name can name another)");
  }

  // Whether the connection ends where it should begin.
  bool Refused() {
    char byte;
    int result;
    do {
      ERR_clear_error();
      result = SSL_read(ssl_.get(), &byte, 1);
    } while (result <= 0 && Again(result));
    error_ = ERR_peek_error();
    return result <= 0 && !late_;
  }

  // What the server says of CAs that it takes.
  std::string Takes() const {
    const STACK_OF(X509_NAME)* names = SSL_get0_peer_CA_list(ssl_.get());
    const int number = names == nullptr ? 0 : sk_X509_NAME_num(names);
    std::string text;
    for (int i = 0; i < std::min(number, kMaxNames); ++i) {
      absl::StrAppend(&text, i == 0 ? "; it takes those signed by \"" : ", \"",
                      NameText(sk_X509_NAME_value(names, i)), "\"");
    }
    if (number > kMaxNames) {
      absl::StrAppend(&text, " and ", number - kMaxNames, " more");
    }
    return text;
  }

  std::string Refusal() const {
    const std::string& file = target_.tls.certificate;
    if (file.empty()) {
      return asked_ ? absl::StrCat(target_.address, " asks for a client ",
                                   "certificate: tls.certificate and tls.key ",
                                   "are missing (AGG_TLS_CERTIFICATE, ",
                                   "AGG_TLS_KEY)")
                    : absl::StrCat(target_.address, " ended the connection");
    }
    const X509* const own = SSL_get_certificate(ssl_.get());
    return absl::StrCat(
        target_.address, " refuses the certificate ", file, " of the issuer \"",
        own == nullptr ? "" : NameText(X509_get_issuer_name(own)), "\"",
        Takes());
  }

  const TlsTarget& target_;
  absl::Time deadline_;
  FileDescriptor socket_;
  Openssl<SSL_CTX> context_;
  Openssl<SSL> ssl_;
  BIO* in_ = nullptr;  // of ssl_: what the far end has sent
  BIO* out_ = nullptr;
  bool asked_ = false;  // the server wants a certificate
  bool late_ = false;
  unsigned long error_ = 0;
};

}  // namespace

std::string WhyNotFor(absl::string_view pem, const std::string& host) {
  const std::vector<Openssl<X509>> chain = ParseCertificates(pem);
  if (chain.empty()) return "is no certificate in PEM";
  return WhyNotFor(chain.front().get(), host);
}

std::string DiagnoseTls(const TlsTarget& target) {
  const absl::Status files = CheckTlsOptions(target.tls, absl::Now());
  if (!files.ok()) return std::string(files.message());
  return Probe(target).Run();
}

std::string WhyNotConnected(absl::string_view grpc_message,
                            const TlsTarget& target) {
  // The beginning of gRPC's text, as in all its releases of this decade.
  if (!absl::StrContains(grpc_message, "failed to connect")) return "";
  return DiagnoseTls(target);
}

}  // namespace agg
