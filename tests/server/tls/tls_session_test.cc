// The other end is OpenSSL's own client, whose bytes are carried by hand.
#include "server/tls/tls_session.h"

#include <openssl/ssl.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/tls/tls_reload.h"
#include "tests/server/tls/test_certificates.h"

namespace agg {
namespace {

// Trusts `ca`; shows nothing.
class Client {
 public:
  explicit Client(const std::string& ca)
      : context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_load_verify_file(context_, ca.c_str());
    SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    ssl_ = SSL_new(context_);
    in_ = BIO_new(BIO_s_mem());
    out_ = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl_, in_, out_);
    SSL_set_connect_state(ssl_);
  }
  ~Client() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  SSL* ssl() { return ssl_; }
  void Feed(const std::string& bytes) {
    BIO_write(in_, bytes.data(), static_cast<int>(bytes.size()));
  }
  std::string TakeOutput() {
    std::string bytes(BIO_ctrl_pending(out_), '\0');
    if (!bytes.empty()) {
      BIO_read(out_, &bytes[0], static_cast<int>(bytes.size()));
    }
    return bytes;
  }
  // Until both have nothing more to say; whether hands are shaken.
  bool Shake(TlsSession* session) {
    char byte;
    for (int i = 0; i < 10; ++i) {
      SSL_do_handshake(ssl_);
      session->Feed(TakeOutput());
      if (session->Read(&byte, 1) < 0) return false;
      Feed(session->TakeOutput());
    }
    return SSL_is_init_finished(ssl_) != 0;
  }
  std::string Read() {
    std::string bytes(100000, '\0');
    size_t size = 0;
    for (int n; (n = SSL_read(ssl_, &bytes[size],
                              static_cast<int>(bytes.size() - size))) > 0;) {
      size += static_cast<size_t>(n);
    }
    return bytes.substr(0, size);
  }
  // Whether the certificate that it was shown is the one of that file's bytes.
  std::string Serial() {
    const ASN1_INTEGER* const serial =
        X509_get0_serialNumber(SSL_get0_peer_certificate(ssl_));
    uint64_t number = 0;
    ASN1_INTEGER_get_uint64(&number, serial);
    return std::to_string(number);
  }

 private:
  SSL_CTX* const context_;
  SSL* ssl_ = nullptr;
  BIO* in_ = nullptr;
  BIO* out_ = nullptr;
};

class TlsSessionTest : public testing::Test {
 protected:
  TlsSessionTest() : clock_(absl::Now()) {
    ca_.Issue("one");
    TlsFiles files = ca_.files("one");
    files.ca = "";
    reload_ = std::make_unique<TlsReload>(files, absl::Seconds(60), &clock_);
    EXPECT_TRUE(reload_->Open().ok());
    auto acceptor = TlsAcceptor::Make(reload_.get());
    EXPECT_TRUE(acceptor.ok()) << acceptor.status();
    acceptor_ = *std::move(acceptor);
  }

  TestCa ca_;
  FakeClock clock_;
  std::unique_ptr<TlsReload> reload_;
  std::unique_ptr<TlsAcceptor> acceptor_;
};

TEST_F(TlsSessionTest, CarriesBytesBothWays) {
  Client client(ca_.ca());
  auto session = acceptor_->Accept();
  ASSERT_TRUE(client.Shake(session.get()));
  SSL_write(client.ssl(), "abc", 3);
  session->Feed(client.TakeOutput());
  char bytes[10];
  EXPECT_EQ(session->Read(bytes, 10), 3);
  EXPECT_EQ(session->Read(bytes, 10), 0);  // it takes more first
  const std::string large(50000, 'x');
  EXPECT_EQ(session->Write(large), static_cast<ssize_t>(TlsSession::kMaxWrite));
  client.Feed(session->TakeOutput());
  EXPECT_EQ(client.Read(), large.substr(0, TlsSession::kMaxWrite));
}

// A client knows an answer that is cut off from one that has ended.
TEST_F(TlsSessionTest, AnEndIsSaid) {
  Client client(ca_.ca());
  auto session = acceptor_->Accept();
  ASSERT_TRUE(client.Shake(session.get()));
  session->End();
  client.Feed(session->TakeOutput());
  char byte;
  EXPECT_EQ(SSL_get_error(client.ssl(), SSL_read(client.ssl(), &byte, 1)),
            SSL_ERROR_ZERO_RETURN);
  SSL_shutdown(client.ssl());
  session->Feed(client.TakeOutput());
  EXPECT_LT(session->Read(&byte, 1), 0);
}

TEST_F(TlsSessionTest, WhatIsNotTlsIsOver) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(1000, '\0'),
        std::string("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", 10)}) {
    auto session = acceptor_->Accept();
    session->Feed(bytes);
    char byte;
    EXPECT_LT(session->Read(&byte, 1), 0);
    session->End();
    EXPECT_LT(session->Write("a"), 0);
  }
}

TEST_F(TlsSessionTest, OldVersionsAreRefused) {
  Client client(ca_.ca());
  SSL_set_max_proto_version(client.ssl(), TLS1_1_VERSION);
  SSL_set_security_level(client.ssl(), 0);
  SSL_set_cipher_list(client.ssl(), "ALL:@SECLEVEL=0");
  auto session = acceptor_->Accept();
  EXPECT_FALSE(client.Shake(session.get()));
}

TEST_F(TlsSessionTest, NewSessionsHaveTheNewCertificateOldOnesGoOn) {
  Client before(ca_.ca());
  auto session = acceptor_->Accept();
  ASSERT_TRUE(before.Shake(session.get()));
  ca_.Issue("one");
  clock_.Advance(absl::Seconds(60));
  Client after(ca_.ca());
  auto other = acceptor_->Accept();
  ASSERT_TRUE(after.Shake(other.get()));
  EXPECT_NE(before.Serial(), after.Serial());
  ASSERT_EQ(session->Write("still here"), 10);
  before.Feed(session->TakeOutput());
  EXPECT_EQ(before.Read(), "still here");
}

}  // namespace
}  // namespace agg
