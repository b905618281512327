// Texts go through a memory BIO, which is how OpenSSL prints.
#include "server/tls/openssl_handles.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <ctime>
#include <utility>

#include "absl/strings/escaping.h"

namespace agg {
namespace {

Openssl<BIO> ReadOf(absl::string_view text) {
  return Openssl<BIO>(
      BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string Written(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return size > 0 ? std::string(data, static_cast<size_t>(size)) : "";
}

// What a peer has sent has any bytes, and any length.
std::string Shown(const std::string& text) {
  constexpr size_t kMost = 300;
  return absl::CHexEscape(
      text.size() <= kMost ? text : text.substr(0, kMost) + " and more");
}

// In place of the prompt for a password.
int NoPassword(char*, int, int, void*) { return -1; }

}  // namespace

std::vector<Openssl<X509>> ParseCertificates(absl::string_view pem) {
  const Openssl<BIO> bio = ReadOf(pem);
  std::vector<Openssl<X509>> certificates;
  while (true) {
    Openssl<X509> one(
        PEM_read_bio_X509(bio.get(), nullptr, &NoPassword, nullptr));
    if (one == nullptr) break;
    certificates.push_back(std::move(one));
  }
  // The end of the text is an error, too, and the only one that is none.
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  if (ERR_GET_LIB(error) != ERR_LIB_PEM ||
      ERR_GET_REASON(error) != PEM_R_NO_START_LINE) {
    certificates.clear();
  }
  return certificates;
}

Openssl<EVP_PKEY> ParseKey(absl::string_view pem) {
  const Openssl<BIO> bio = ReadOf(pem);
  Openssl<EVP_PKEY> key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, &NoPassword, nullptr));
  ERR_clear_error();
  return key;
}

absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm tm = {};
  if (ASN1_TIME_to_tm(time, &tm) != 1) return absl::InfinitePast();
  return absl::FromCivil(
      absl::CivilSecond(tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
                        tm.tm_hour, tm.tm_min, tm.tm_sec),
      absl::UTCTimeZone());
}

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

std::string NameText(const X509_NAME* name) {
  const Openssl<BIO> bio(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(bio.get(), name, 0, XN_FLAG_ONELINE);
  return Shown(Written(bio.get()));
}

std::string NamesOf(const X509* certificate) {
  auto* const names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  if (names == nullptr) return NameText(X509_get_subject_name(certificate));
  std::string text;
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const Openssl<BIO> bio(BIO_new(BIO_s_mem()));
    GENERAL_NAME_print(bio.get(), sk_GENERAL_NAME_value(names, i));
    text += (i == 0 ? "" : ", ") + Written(bio.get());
  }
  GENERAL_NAMES_free(names);
  return Shown(text);
}

}  // namespace agg
