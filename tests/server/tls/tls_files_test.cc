#include "server/tls/tls_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "tests/server/tls/test_certificates.h"

namespace agg {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class TlsFilesTest : public testing::Test {
 protected:
  TlsFilesTest() { ca_.Issue("one"); }

  std::string ErrorOf(const TlsFiles& files) {
    const absl::Status status = ReadTlsFiles(files, absl::Now()).status();
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }
  std::string ErrorOf(const TlsOptions& tls) {
    const absl::Status status = CheckTlsOptions(tls, absl::Now());
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }

  TestCa ca_;
};

TEST_F(TlsFilesTest, GoodFiles) {
  const auto contents = ReadTlsFiles(ca_.files("one"), absl::Now());
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_THAT(contents->certificate, HasSubstr("BEGIN CERTIFICATE"));
  EXPECT_THAT(contents->key, HasSubstr("PRIVATE KEY"));
  EXPECT_THAT(contents->ca, HasSubstr("BEGIN CERTIFICATE"));
  EXPECT_GT(contents->expires.certificate, absl::Now() + absl::Minutes(30));
  EXPECT_LT(contents->expires.certificate, absl::Now() + absl::Hours(2));
}

TEST_F(TlsFilesTest, AFileThatIsNotThere) {
  TlsFiles files = ca_.files("none");
  EXPECT_THAT(ErrorOf(files),
              AllOf(HasSubstr("tls.certificate is \"" + files.certificate),
                    HasSubstr("No such file")));
  files = ca_.files("one");
  files.key = ca_.path("none.key");
  files.key_field = "security.tls.key";
  EXPECT_THAT(ErrorOf(files),
              AllOf(HasSubstr("security.tls.key is \"" + files.key),
                    HasSubstr("No such file")));
  files = ca_.files("one");
  files.ca = ca_.path("none.pem");
  EXPECT_THAT(ErrorOf(files), HasSubstr("tls.ca is \"" + files.ca));
}

TEST_F(TlsFilesTest, WhatIsNoPem) {
  ca_.Write("bad.pem", "no certificate");
  ca_.Write("empty.pem", "");
  ca_.Write("bad.key", "no key");
  ca_.Write("cut.pem",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  TlsFiles files = ca_.files("one");
  for (const char* name : {"bad.pem", "cut.pem"}) {
    files.certificate = ca_.path(name);
    EXPECT_THAT(ErrorOf(files), HasSubstr("no certificate in PEM can be read"));
  }
  files.certificate = ca_.path("empty.pem");
  EXPECT_THAT(ErrorOf(files), HasSubstr("it is empty"));
  files = ca_.files("one");
  files.key = ca_.path("bad.key");
  EXPECT_THAT(ErrorOf(files), HasSubstr("no private key in PEM can be read"));
  files = ca_.files("one");
  files.ca = ca_.path("bad.pem");
  EXPECT_THAT(ErrorOf(files), HasSubstr("no certificate in PEM can be read"));
}

TEST_F(TlsFilesTest, AHugeFileIsRefused) {
  ca_.Write("huge.pem", std::string((1 << 20) + 1, 'x'));
  TlsFiles files = ca_.files("one");
  files.certificate = ca_.path("huge.pem");
  EXPECT_THAT(ErrorOf(files), HasSubstr("more than 1 MiB"));
}

TEST_F(TlsFilesTest, TheKeyOfAnotherCertificate) {
  ca_.Issue("two");
  TlsFiles files = ca_.files("one");
  files.key = ca_.path("two.key");
  EXPECT_THAT(ErrorOf(files),
              HasSubstr("(it is not the key of " + files.certificate + ")"));
}

// With these files every handshake would fail.
TEST_F(TlsFilesTest, AKeyThatOpenSslFindsTooShort) {
  TestRequest weak;
  weak.rsa_bits = 1024;
  ca_.Issue("weak", weak);
  EXPECT_THAT(ErrorOf(ca_.files("weak")),
              AllOf(HasSubstr("tls.certificate is \""),
                    HasSubstr("(OpenSSL refuses it: ee key too small)")));
  // As an intermediate, too.
  std::string chain;
  for (const char* name : {"one.pem", "weak.pem"}) {
    std::ifstream file(ca_.path(name));
    chain.append(std::istreambuf_iterator<char>(file), {});
  }
  ca_.Write("chain.pem", chain);
  TlsFiles files = ca_.files("one");
  files.certificate = ca_.path("chain.pem");
  EXPECT_THAT(ErrorOf(files), HasSubstr("(OpenSSL refuses it: "));
}

TEST_F(TlsFilesTest, TimesAreLookedAt) {
  TestRequest old;
  old.from = absl::Now() - absl::Hours(3);
  old.to = absl::FromCivil(absl::CivilDay(2020, 5, 17), absl::UTCTimeZone());
  old.from = old.to - absl::Hours(1);
  ca_.Issue("old", old);
  EXPECT_THAT(ErrorOf(ca_.files("old")),
              HasSubstr("(it expired on 2020-05-17 00:00:00 UTC)"));
  TestRequest early;
  early.from = absl::Now() + absl::Hours(1);
  early.to = absl::Now() + absl::Hours(2);
  ca_.Issue("early", early);
  EXPECT_THAT(ErrorOf(ca_.files("early")), HasSubstr("it is valid from "));
}

TEST_F(TlsFilesTest, OptionsOfAClient) {
  EXPECT_TRUE(CheckTlsOptions(TlsOptions(), absl::Now()).ok());
  EXPECT_TRUE(CheckTlsOptions(ca_.options(""), absl::Now()).ok());
  EXPECT_TRUE(CheckTlsOptions(ca_.options("one"), absl::Now()).ok());
  TlsOptions tls = ca_.options("one");
  tls.ca = "";
  EXPECT_THAT(ErrorOf(tls), HasSubstr("tls.ca is \"\"; allowed: "));
  // Not plain text without a word.
  TlsOptions name_alone;
  name_alone.server_name = "shard.example";
  EXPECT_THAT(ErrorOf(name_alone), HasSubstr("tls.ca is \"\"; allowed: "));
  tls = ca_.options("one");
  tls.key = "";
  EXPECT_THAT(ErrorOf(tls), HasSubstr("tls.key is \"\"; allowed: "));
  tls = ca_.options("one");
  tls.certificate = "";
  EXPECT_THAT(ErrorOf(tls), HasSubstr("tls.certificate is \"\"; allowed: "));
}

}  // namespace
}  // namespace agg
