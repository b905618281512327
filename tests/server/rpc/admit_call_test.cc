// Every method of every service has its line in the table of roles.
#include "server/rpc/admit_call.h"

#include <google/protobuf/descriptor.h>

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/admin.pb.h"
#include "proto/agg.pb.h"
#include "proto/control.pb.h"
#include "proto/reduction.pb.h"
#include "server/access/access_rules.h"
#include "server/access/caller_gate.h"

namespace agg {
namespace {

void ExpectRoles(const google::protobuf::FileDescriptor& file) {
  EXPECT_GT(file.service_count(), 0) << file.name();
  for (int s = 0; s < file.service_count(); ++s) {
    const google::protobuf::ServiceDescriptor& service = *file.service(s);
    for (int m = 0; m < service.method_count(); ++m) {
      const std::string method =
          absl::StrCat(service.full_name(), "/", service.method(m)->name());
      const auto roles = RolesOf(method);
      ASSERT_TRUE(roles.has_value()) << method;
      EXPECT_FALSE(roles->empty()) << method;
    }
  }
}

TEST(AdmitCallTest, EveryMethodHasItsRoles) {
  ExpectRoles(*v1::JoinRequest::descriptor()->file());
  ExpectRoles(*v1::PhaseRequest::descriptor()->file());
  ExpectRoles(*v1::SetRuleRequest::descriptor()->file());
  ExpectRoles(*v1::ReduceRequest::descriptor()->file());
}

// A connection that was opened in time and first used afterwards: its call is
// cancelled, which does not keep it from its service.
TEST(AdmitCallTest, ACallByAnExpiredCertificateIsRefused) {
  CallContext context;
  const std::string method = "agg.v1.Admin/SetRule";
  EXPECT_TRUE(AdmitCall(*CallerGate::Open(), context, method).ok());
  context.SetExpired();
  const absl::Status refused =
      AdmitCall(*CallerGate::Open(), context, method).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnauthenticated) << refused;
}

}  // namespace
}  // namespace agg
