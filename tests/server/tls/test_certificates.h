// Certificates for tests, good and bad: made with OpenSSL, in a folder that
// goes with the object.
#ifndef AGG_TESTS_SERVER_TLS_TEST_CERTIFICATES_H_
#define AGG_TESTS_SERVER_TLS_TEST_CERTIFICATES_H_

#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/tls_options.h"
#include "server/tls/tls_files.h"

namespace agg {

// A certificate to be made.
struct TestRequest {
  // OpenSSL's subjectAltName; "": none.
  std::string names = "DNS:localhost,IP:127.0.0.1,IP:::1";
  absl::Time from = absl::Now() - absl::Hours(1);
  absl::Time to = absl::Now() + absl::Hours(1);
  int rsa_bits = 0;  // 0: a key of the curve P-256
};

// A CA of its own in a folder of its own.
class TestCa {
 public:
  // `name` stands in the certificates' issuer.
  explicit TestCa(const std::string& name = "test CA");
  ~TestCa();
  TestCa(const TestCa&) = delete;
  TestCa& operator=(const TestCa&) = delete;

  // Files of the folder: NAME.pem and NAME.key, replaced at once.
  void Issue(const std::string& name, const TestRequest& request = {});
  void Write(const std::string& file, const std::string& text) const;

  std::string path(const std::string& file) const;
  std::string ca() const { return path("ca.pem"); }
  // Files with the CA as that of clients.
  TlsFiles files(const std::string& name) const;
  // Options of who trusts this CA and shows `name`'s certificate, or none for
  // "".
  TlsOptions options(const std::string& name) const;

 private:
  struct Keys;
  const std::string folder_;
  Keys* const keys_;
};

}  // namespace agg

#endif  // AGG_TESTS_SERVER_TLS_TEST_CERTIFICATES_H_
