// Most keys are of the curve P-256, which takes no time to make.
#include "tests/server/tls/test_certificates.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

namespace agg {
namespace {

std::string NewFolder() {
  std::string path = testing::TempDir() + "/tls_XXXXXX";
  std::vector<char> buffer(path.c_str(), path.c_str() + path.size() + 1);
  if (mkdtemp(buffer.data()) == nullptr) std::abort();
  return buffer.data();
}

void SetName(X509_NAME* name, const std::string& text) {
  X509_NAME_add_entry_by_txt(
      name, "CN", MBSTRING_UTF8,
      reinterpret_cast<const unsigned char*>(text.c_str()), -1, -1, 0);
}

void AddExtension(X509* certificate, int id, const std::string& value) {
  X509_EXTENSION* const extension =
      X509V3_EXT_conf_nid(nullptr, nullptr, id, value.c_str());
  if (extension == nullptr) std::abort();
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

template <typename WriteCall>
std::string Pem(WriteCall write) {
  BIO* const bio = BIO_new(BIO_s_mem());
  write(bio);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

std::string CertificatePem(X509* certificate) {
  return Pem([&](BIO* bio) { PEM_write_bio_X509(bio, certificate); });
}

std::string KeyPem(EVP_PKEY* key) {
  return Pem([&](BIO* bio) {
    PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}

// Signed by `issuer`, or by itself.
X509* NewCertificate(const std::string& name, EVP_PKEY* key, const X509* issuer,
                     EVP_PKEY* signer, const TestRequest& request) {
  static long serial = 0;
  X509* const made = X509_new();
  X509_set_version(made, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(made), ++serial);
  ASN1_TIME_set(X509_getm_notBefore(made), absl::ToTimeT(request.from));
  ASN1_TIME_set(X509_getm_notAfter(made), absl::ToTimeT(request.to));
  X509_set_pubkey(made, key);
  SetName(X509_get_subject_name(made), name);
  X509_set_issuer_name(made, issuer == nullptr ? X509_get_subject_name(made)
                                               : X509_get_subject_name(issuer));
  AddExtension(made, NID_basic_constraints,
               issuer == nullptr ? "critical,CA:TRUE" : "critical,CA:FALSE");
  if (issuer != nullptr && !request.names.empty()) {
    AddExtension(made, NID_subject_alt_name, request.names);
  }
  X509_sign(made, signer, EVP_sha256());
  return made;
}

}  // namespace

struct TestCa::Keys {
  EVP_PKEY* key;
  X509* certificate;
};

TestCa::TestCa(const std::string& name)
    : folder_(NewFolder()), keys_(new Keys{EVP_EC_gen("P-256"), nullptr}) {
  keys_->certificate =
      NewCertificate(name, keys_->key, nullptr, keys_->key, TestRequest());
  Write("ca.pem", CertificatePem(keys_->certificate));
}

TestCa::~TestCa() {
  X509_free(keys_->certificate);
  EVP_PKEY_free(keys_->key);
  delete keys_;
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string TestCa::path(const std::string& file) const {
  return folder_ + "/" + file;
}

void TestCa::Write(const std::string& file, const std::string& text) const {
  const std::string next = path(file) + ".new";
  std::ofstream(next) << text;
  if (std::rename(next.c_str(), path(file).c_str()) != 0) std::abort();
}

void TestCa::Issue(const std::string& name, const TestRequest& request) {
  EVP_PKEY* const key =
      request.rsa_bits == 0
          ? EVP_EC_gen("P-256")
          : EVP_RSA_gen(static_cast<unsigned int>(request.rsa_bits));
  X509* const made =
      NewCertificate(name, key, keys_->certificate, keys_->key, request);
  Write(name + ".key", KeyPem(key));
  Write(name + ".pem", CertificatePem(made));
  X509_free(made);
  EVP_PKEY_free(key);
}

TlsFiles TestCa::files(const std::string& name) const {
  TlsFiles files;
  files.certificate = path(name + ".pem");
  files.key = path(name + ".key");
  files.ca = ca();
  return files;
}

TlsOptions TestCa::options(const std::string& name) const {
  TlsOptions options;
  options.ca = ca();
  if (!name.empty()) {
    options.certificate = path(name + ".pem");
    options.key = path(name + ".key");
  }
  options.reload = absl::Seconds(1);
  return options;
}

}  // namespace agg
