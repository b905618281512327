#include <gtest/gtest.h>

#include <cstdlib>

#include "worker_client/channel.h"

namespace agg {
namespace {

class TlsEnvironmentTest : public testing::Test {
 protected:
  TlsEnvironmentTest() {
    setenv("AGG_TLS_CA", "ca", 1);
    setenv("AGG_TLS_CERTIFICATE", "certificate", 1);
    setenv("AGG_TLS_KEY", "key", 1);
    setenv("AGG_TLS_SERVER_NAME", "name", 1);
  }
  ~TlsEnvironmentTest() override {
    for (const char* name : {"AGG_TLS_CA", "AGG_TLS_CERTIFICATE", "AGG_TLS_KEY",
                             "AGG_TLS_SERVER_NAME"}) {
      unsetenv(name);
    }
  }
};

TEST_F(TlsEnvironmentTest, FillsWhatIsEmpty) {
  const TlsOptions tls = WithTlsEnvironment({});
  EXPECT_EQ(tls.ca, "ca");
  EXPECT_EQ(tls.certificate, "certificate");
  EXPECT_EQ(tls.key, "key");
  EXPECT_EQ(tls.server_name, "name");
}

TEST_F(TlsEnvironmentTest, WhatIsSaidWins) {
  TlsOptions said;
  said.ca = "a";
  said.server_name = "n";
  const TlsOptions tls = WithTlsEnvironment(said);
  EXPECT_EQ(tls.ca, "a");
  EXPECT_EQ(tls.certificate, "certificate");
  EXPECT_EQ(tls.server_name, "n");
}

// The environment's key is not that of another certificate.
TEST_F(TlsEnvironmentTest, ACertificateAndItsKeyComeTogether) {
  TlsOptions said;
  said.certificate = "c";
  EXPECT_EQ(WithTlsEnvironment(said).key, "");
  EXPECT_EQ(WithTlsEnvironment(said).certificate, "c");
}

TEST_F(TlsEnvironmentTest, NothingThereIsNothing) {
  unsetenv("AGG_TLS_CA");
  setenv("AGG_TLS_CERTIFICATE", "", 1);
  unsetenv("AGG_TLS_KEY");
  EXPECT_FALSE(WithTlsEnvironment({}).any());
}

}  // namespace
}  // namespace agg
